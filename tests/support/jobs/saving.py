"""Made-up checkpoints; run as a program, it saves them without end (to be killed)."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState
from alphazero.network.weights.weights import WeightsFile, write_weights
from alphazero.run import checkpoint_files
from alphazero.settings.sections import NetworkConfig
from alphazero.training.loop.writer import CheckpointWriter

NETWORK = NetworkConfig(game="tictactoe", blocks=1, filters=4)


def checkpoint_of(step: int, figures: dict[str, float] | None = None) -> Checkpoint:
    """A small checkpoint whose tensors tell its step."""
    state = TrainingState(step, 100, 0, 64, 16, "window", 2, {"network": {}}, figures=figures or {})
    weights = {"a": torch.full((3, 2), float(step)), "count": torch.tensor(step)}
    return Checkpoint(state, weights, {"a/exp_avg": torch.ones(3, 2), "step": torch.tensor(float(step))})


def write_newest(directory: Path) -> Callable[[Checkpoint], None]:
    """Writes a weights file before each checkpoint, as a run does."""
    network = AlphaZeroNet(NETWORK, get_spec("tictactoe"), torch.Generator().manual_seed(0))

    def write(checkpoint: Checkpoint) -> None:
        file = WeightsFile(NETWORK, network.state_dict(), {"step": checkpoint.state.step})
        write_weights(directory / "net.pt", file)

    return write


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
