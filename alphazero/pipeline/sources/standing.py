"""Where the generations of a run stand, as its checkpoints keep it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Standing:
    """How many generations were played, and what they gave.

    end_step: the step until which the newest generation is trained on. positions: full searches of all
    stored games. num_shards, store_id: the store of games as it was then. given_id: of the window of given
    games that are mixed in; empty where there are none, and in checkpoints of earlier versions.
    """

    generation: int = 0
    end_step: int = 0
    games: int = 0
    positions: int = 0
    num_shards: int = 0
    store_id: str = ""
    given_id: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return asdict(self)
