"""Runs with an attention body: on any ranks and at any ZeRO stage the same, in self-play to the bit."""

from pathlib import Path

import pytest

from alphazero.network.weights.lc0_export import write_lc0
from alphazero.network.weights.open_network import open_weights
from tests.network.weights.test_lc0_judge import compare
from tests.support.jobs.jobs import SHARED_OUT, step_lines, zero_flags
from tests.training.start.test_self_play_runs import assert_same, run

BODY = (
    *("--body", "attention", "--blocks", "2", "--filters", "32", "--heads", "4", "--ffn-width", "48"),
    *("--smolgen-channels", "2"),
)
STEPS = "10"


@pytest.fixture(scope="module")
def one_rank(zygote, tmp_path_factory, random_store):
    directory = tmp_path_factory.mktemp("one")
    zygote.run_job(directory, random_store, 1, "--steps", STEPS, *BODY)
    return directory


@pytest.mark.parametrize(
    ("stage", "recomputed"),
    [
        pytest.param(*one, marks=pytest.mark.slow)
        for one in ((0, "none"), (2, "scores"), (3, "encoders"), (SHARED_OUT, "encoders"))
    ],
)
def test_every_zero_stage_trains_what_one_rank_trains(
    zygote, tmp_path, random_store, one_rank, stage, recomputed
):
    flags = ["--steps", STEPS, *zero_flags(stage), "--activation-checkpointing", recomputed]
    zygote.run_job(tmp_path, random_store, 2, *flags, *BODY)
    losses, expected = ([line["loss"] for line in step_lines(each)] for each in (tmp_path, one_rank))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert losses[0] == pytest.approx(expected[0], rel=1e-6)


def test_what_was_trained_plays_in_lc0(one_rank: Path, tmp_path: Path) -> None:
    weights = open_weights(one_rank / "runs" / "job")
    file = tmp_path / "network.pb.gz"
    write_lc0(file, weights.config, weights.state_dict, int(STEPS))
    compare(file, most=10)


@pytest.mark.slow
def test_games_and_weights_are_the_same_on_one_rank_and_on_two(zygote, tmp_path) -> None:
    run(zygote, tmp_path / "one", 1, *BODY)
    run(zygote, tmp_path / "two", 2, *BODY)
    assert_same(tmp_path / "one", tmp_path / "two")
