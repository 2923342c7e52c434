"""What the doctor measured of one preset, as it goes between processes and hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PresetFigures:
    """Over all ranks; rates per second; watts by processor or GPU.

    largest_micro_batch: positions that fit into a rank's memory. plays: positions to train on that self-play
    makes, 0 where it was not measured. how: how each figure was got, by its name. fault: what kept the preset
    from being measured; the rest then means nothing.
    """

    preset: str
    game: str = ""
    network: str = ""
    mode: str = ""
    ranks: int = 0
    device: str = ""
    precision: str = ""
    batch_size: int = 0
    trains: float = 0.0
    largest_micro_batch: int = 0
    plays: float = 0.0
    evaluations: float = 0.0
    watts: Mapping[str, float] = field(default_factory=dict)
    how: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


def figures_from_json(told: Mapping[str, Any]) -> PresetFigures:
    """What dataclasses.asdict made of them. Raises TypeError for what it did not make."""
    return PresetFigures(**told)
