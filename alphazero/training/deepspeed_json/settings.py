"""What a ds_config.json says, in this program's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alphazero.training.deepspeed_json.key import ALL_STAGES


@dataclass(frozen=True)
class Said:
    """A value for a setting.

    target: "section.field". path: the key, with dots. place: file and line. is_default: not written, but what
    DeepSpeed takes where its block is there.
    """

    target: str
    value: Any
    path: str
    place: str = ""
    is_default: bool = False

    @property
    def name(self) -> str:
        """The field."""
        return self.target.partition(".")[2]


@dataclass(frozen=True)
class Ignored:
    """A key that changes nothing; stages: ZeRO stages at which that is so."""

    path: str
    why: str
    stages: tuple[int, ...] = ALL_STAGES


@dataclass(frozen=True)
class DeepSpeedSettings:
    """What a ds_config.json says; nothing where it is silent.

    said: in the order of the table; a later one beats an earlier one. precisions_off: those it switches off
    by name; any other may be chosen elsewhere. zero_options, passed_on: what DeepSpeed gets as it is.
    """

    source: str = ""
    said: tuple[Said, ...] = ()
    precisions_off: frozenset[str] = frozenset()
    zero_options: Mapping[str, Any] = field(default_factory=dict)
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[Ignored, ...] = ()

    def value_of(self, target: str) -> Any:  # noqa: ANN401 - of any setting
        """What it says of a setting, "section.field"; None where it is silent."""
        return next((said.value for said in reversed(self.said) if said.target == target), None)

    def ignored_line(self, stage: int) -> str:
        """One line for people about the keys that change nothing at this ZeRO stage; "" where all do."""
        told = [f"{one.path} ({one.why})" for one in self.ignored if stage in one.stages]
        return f"{self.source}: ignored: {', '.join(told)}" if told else ""
