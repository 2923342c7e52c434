"""Where a run stands, and how a run of the trainer ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto


class Outcome(Enum):
    """How a run of the trainer ended."""

    FINISHED = auto()
    STOPPED = auto()  # by a signal, after a checkpoint
    DIVERGED = auto()  # too many steps in a row without finite gradients


@dataclass
class Position:
    """Where a run stands. data_offset: steps the data order is ahead of the step count (see rollbacks)."""

    step: int
    data_offset: int = 0
    skipped_steps: int = 0
    elapsed_s: float = 0.0  # of earlier starts of the run
    saved_step: int = field(init=False)

    def __post_init__(self) -> None:
        self.saved_step = self.step
