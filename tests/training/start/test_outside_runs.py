"""Runs of games of OpenSpiel and of Python files: killed, on one rank and on two, they end alike."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from alphazero.games.registry import read_game
from tests.support.jobs.kill_chain import final_names, hashes_of, sleep_while_running
from tests.support.paths import REPOSITORY
from tests.training.start.test_self_play_runs import GENERATIONS, RUN, STEPS, games_of

KILLS = 5
HEX = "openspiel:hex(board_size=3)"
NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"
ARGUMENTS = (
    *("--mode", "selfplay", "--blocks", "1", "--filters", "8", "--run-name", "job", "--device", "cpu"),
    *("--generations", str(GENERATIONS), "--steps-per-generation", str(STEPS), "--reuse", "1"),
    *("--lanes", "10", "--simulations-per-round", "40", "--simulations", "6", "--evaluation-batch", "8"),
    *("--batch-size", "32", "--micro-batch-size", "16", "--precision", "fp32", "--window-minimum", "100"),
    *("--checkpoint-interval", "3", "--validation-interval", "0", "--log-interval", "5", "--no-tensorboard"),
)


def end_of(directory: Path) -> tuple[str, dict[str, str]]:
    """The games' sha256, and those of weights and optimizer in the last checkpoint."""
    last = final_names(directory / RUN)[-1]
    assert last.name == f"step-{GENERATIONS * STEPS:08d}"
    return games_of(directory).manifest.sha256, hashes_of(last)


def whole_run(zygote, directory: Path, ranks: int, game: str) -> float:
    """How long an undisturbed run lives."""
    job = zygote.start(directory, ranks, ("--game", game, *ARGUMENTS))
    assert job.wait() == [0] * ranks, job.output()[-4000:]
    return time.monotonic() - job.started_s


@pytest.fixture(params=[HEX, pytest.param(NIM, id="nim.py", marks=pytest.mark.slow)])
def game(request: pytest.FixtureRequest) -> str:
    """Named in this process as well, which reads the games."""
    if request.param.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    read_game("--game", request.param)
    return request.param


@pytest.mark.slow
def test_five_kills_leave_no_trace(zygote, tmp_path, game: str) -> None:
    life_s = whole_run(zygote, tmp_path / "whole", 2, game)
    whole = end_of(tmp_path / "whole")
    assert any(name.startswith("optimizer") for name in whole[1]), [*whole[1]]
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILL_SEED={seed} chooses these instants again")
    rng, killed = random.Random(seed), tmp_path / "killed"
    kills = finished = 0
    while kills < KILLS or not finished:
        job = zygote.start(killed, 2, ("--game", game, *ARGUMENTS))
        if kills < KILLS:
            sleep_while_running(job, rng.uniform(0.1, life_s / 2))
            job.kill()
        statuses = job.wait()
        kills += -9 in statuses
        assert -9 in statuses or statuses == [0, 0], job.output()[-4000:]
        if statuses == [0, 0]:
            # Where it ended before it was killed often enough it begins once more.
            assert end_of(killed) == whole
            finished += 1
            (killed / RUN).rename(killed / f"finished-{finished}")
    assert kills == KILLS


@pytest.mark.slow
def test_games_and_weights_are_the_same_on_one_rank_and_on_two(zygote, tmp_path, game: str) -> None:
    ends = []
    for ranks in (1, 2):
        whole_run(zygote, tmp_path / str(ranks), ranks, game)
        games, hashes = end_of(tmp_path / str(ranks))
        ends.append((games, {name: one for name, one in hashes.items() if name.startswith("weights")}))
    assert ends[0] == ends[1] and ends[0][1]
