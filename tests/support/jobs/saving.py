"""Made-up checkpoints; run as a program, it saves them without end (to be killed)."""

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from alphazero.network.weights.checkpoint import Checkpoint, TrainingState
from alphazero.run import checkpoint_files
from alphazero.training.loop.writer import CheckpointWriter
from tests.support.evaluation.small_nets import write_small_net


def checkpoint_of(step: int, figures: dict[str, float] | None = None) -> Checkpoint:
    """A small checkpoint whose tensors tell its step."""
    state = TrainingState(step, 100, 0, 64, 16, "window", 2, {"network": {}}, figures=figures or {})
    weights = {"a": torch.full((3, 2), float(step)), "count": torch.tensor(step)}
    return Checkpoint(state, weights, {"a/exp_avg": torch.ones(3, 2), "step": torch.tensor(float(step))})


def write_newest(directory: Path) -> Callable[[Checkpoint, Sequence[str]], object]:
    """Writes a weights file before each checkpoint, as a run does."""

    def publish(checkpoint: Checkpoint, metrics: Sequence[str]) -> None:
        if not metrics:
            write_small_net(directory / "net.pt", "tictactoe", checkpoint.state.step)

    return publish


def main() -> None:
    """Save, mark and prune from the newest step on; a line for each step that is on disk."""
    directory = Path(sys.argv[1])
    newest = checkpoint_files.find_newest(directory, print)
    first = checkpoint_files.step_of(newest) + 1 if newest else 1
    writer = CheckpointWriter(directory, 2, write_newest(directory), lambda text: None)
    for step in itertools.count(first):
        writer.submit(checkpoint_of(step, {"policy_top1": step / 1e6}))
        writer.wait()
        assert writer.fault is None
        print(step, flush=True)


if __name__ == "__main__":
    main()
