"""Where the positions of a run come from: given games, or games that are played as training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from alphazero.games.batch import MicroBatch
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint.checkpoint import Checkpoint

# The network's whole tensors as it plays: averaged where a run keeps an average. Collective.
Weights = Callable[[], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class SourceState:
    """What a checkpoint keeps of a source.

    window_id: hash of the data that the order is a function of. self_play: of Generations, empty for given
    games. lanes: games under way, as selfplay/games.py writes them. champion: the network that plays, whole,
    where it is not always the newest.
    """

    window_id: str
    self_play: dict[str, Any] = field(default_factory=dict)
    lanes: bytes | None = None
    champion: dict[str, torch.Tensor] | None = None


class DataSource(Protocol):
    """Gives micro-batches a stretch of steps at a time; every rank has one, and they agree."""

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Stand where the checkpoint stood, None: at the beginning. Collective."""
        ...

    def prepare(self, step: int, weights: Weights) -> int | None:
        """Make data for the steps from `step` on; the step at which it ends. Collective, may take long.

        None: a signal asked for the end, and nothing has changed.
        """
        ...

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 under a plan."""
        ...

    def state(self) -> SourceState:
        """What a checkpoint of now keeps."""
        ...
