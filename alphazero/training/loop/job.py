"""What one rank trains, and with whom: fixed from the start to the end of a run."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.config import Config
from alphazero.run.run_directory import RunDirectory
from alphazero.training.runtime import Runtime


@dataclass(frozen=True)
class Job:
    """num_samples: positions of the given games, an epoch; 0 where games are played on the way."""

    config: Config
    runtime: Runtime
    run: RunDirectory
    num_steps: int
    num_samples: int

    @property
    def batch_size(self) -> int:
        """Positions per step over all ranks."""
        return self.config.training.batch_size
