"""Which rated checkpoint is marked best-elo."""

import shutil

import pytest
import torch

from alphazero.base.errors import CheckpointError
from alphazero.games.registry import get_spec
from alphazero.measure.rating import keep_rating, mark_best_rated
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState, save
from alphazero.network.weights.open_network import read_weights
from alphazero.run.checkpoint_files import find_best, prune
from alphazero.settings.load import Config, to_table
from alphazero.settings.sections import NetworkConfig


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of steps 1 to 4."""
    shape = NetworkConfig(game="connect4", blocks=1, filters=8)
    for step in (1, 2, 3, 4):
        network = AlphaZeroNet(shape, get_spec("connect4"), torch.Generator().manual_seed(step))
        state = TrainingState(step, 20, 0, 8, 8, "", 1, to_table(Config(network=shape)))
        save(tmp_path / "x" / "checkpoints", Checkpoint(state, network.state_dict(), {}))
    return tmp_path / "x"


def rated(run, step, elo, limit="1 node", **more):
    keep_rating(run, {"step": step, "elo": elo, "limit": limit, **more})


def test_the_strongest_checkpoint_is_marked_and_its_weights_written(run):
    assert mark_best_rated(run) is None
    for step, elo in ((1, -50), (2, 310.5), (3, 120), (4, 90)):
        rated(run, step, elo)
    best = run / "checkpoints" / "step-00000002"
    assert mark_best_rated(run) == (best, 310.5)
    assert find_best(run / "checkpoints", "elo") == best
    assert read_weights(run / "AlphaZeroNet_1x8_best-elo.pt").metadata["step"] == 2


def test_a_newer_rating_of_the_same_checkpoint_takes_its_place(run):
    for step, elo in ((1, 100), (2, 200), (2, 50)):
        rated(run, step, elo)
    assert mark_best_rated(run) == (run / "checkpoints" / "step-00000001", 100)


def test_ratings_at_another_limit_and_lines_cut_off_do_not_count(run):
    rated(run, 3, 900, "800 nodes")
    rated(run, 1, 100)
    rated(run, 2, 40)
    rated(run, 4, float("nan"))
    with (run / "ratings.jsonl").open("a") as file:
        file.write("[" * 100_000 + "\n" + '{"step": 4, "el')
    assert mark_best_rated(run) == (run / "checkpoints" / "step-00000001", 100)
    rated(run, 2, 500)  # the line cut off is gone
    assert mark_best_rated(run) == (run / "checkpoints" / "step-00000002", 500)


def test_a_checkpoint_that_is_gone_is_not_marked(run):
    rated(run, 1, 10)
    rated(run, 4, 90)
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    assert mark_best_rated(run) == (run / "checkpoints" / "step-00000001", 10)
    shutil.rmtree(run / "checkpoints" / "step-00000001")
    assert mark_best_rated(run) is None


def test_what_is_marked_is_not_pruned(run):
    rated(run, 1, 10)
    mark_best_rated(run)
    checkpoints = run / "checkpoints"
    prune(checkpoints, keep=1)
    assert sorted(path.name for path in checkpoints.glob("step-*")) == ["step-00000001", "step-00000004"]
    with pytest.raises(CheckpointError, match="no best-value_mse"):
        find_best(checkpoints, "value_mse")
