"""A run with a solver: it reports the moves that err, and keeps the positions that it solved."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from alphazero.games.registry import read_game
from alphazero.measure.truth.outside import FILE, truth_of_run
from alphazero.measure.truth.positions import SolvedPlayer, find_errors
from alphazero.network.weights.open_network import open_network
from alphazero.run.checkpoint_files import best_of
from alphazero.run.directory import RunDirectory
from alphazero.run.validation_record import read_records
from tests.support.jobs.zygote import COMMAND, Zygote, rank_variables
from tests.support.paths import REPOSITORY

NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"
SOLVER = """
class Perfect:
    def __call__(self, state):
        if state.is_terminal():
            return state.returns()[0]
        player, values = state.current_player(), []
        for action in state.legal_actions():
            after = __import__("copy").deepcopy(state)
            after.apply_action(action)
            values.append(self(after))
        return (max if player == 0 else min)(values)
"""
QUICK = ("--lanes", "8", "--simulations", "4", "--evaluation-batch", "8", "--blocks", "1", "--filters", "8")


def train(zygote: Zygote, runs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ("train", "--runs-dir", str(runs), "--run-name", "own")
    steps = ("--batch-size", "32", "--warmup-steps", "2", "--validation-interval", "2", "--device", "cpu")
    whole = (*command, "--steps-per-generation", "2", "--precision", "fp32", *steps, *QUICK, *words)
    return zygote.run_command(runs, *whole)


def validations(run: Path) -> dict[int, float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["move_error"] for line in lines if line["kind"] == "validation"}


def test_a_run_reports_the_moves_that_err_and_solves_its_positions_once(
    zygote: Zygote, tmp_path: Path
) -> None:
    file, run = tmp_path / "own.py", tmp_path / "own"
    file.write_text(SOLVER, encoding="utf-8")
    words = ("--game", NIM, "--ema-decay", "0", "--solver", f"{file}:Perfect")
    begun = train(zygote, tmp_path, "--generations", "2", *words)
    assert begun.returncode == 0, begun.stderr
    found = validations(run)
    assert sorted(found) == [2, 4] and "moves that err" in begun.stderr
    assert "move_error" in best_of(run / "checkpoints")
    game = read_game("--game", NIM)
    solver = json.loads((run / FILE).read_text())["solver"]
    assert solver.startswith("own.py:Perfect@")
    truth = truth_of_run(RunDirectory(run), game, solver, lambda known, searched: pytest.fail("solves again"))
    network, _ = open_network(str(run), torch.device("cpu"))
    asked = truth.exact()
    errors = find_errors(asked, SolvedPlayer(network, torch.device("cpu"), "fp32"))
    assert found[4] == pytest.approx(sum(errors) / len(errors))
    records = read_records(RunDirectory(run))
    assert [(record.step, record.truth) for record in records] == [(2, "exact"), (4, "exact")]
    assert all(record.wrong for record in records)
    # What was recorded runs no file: the positions are those of the run directory.
    file.unlink()
    assert train(zygote, tmp_path, "--game", NIM, "--generations", "3").returncode == 0
    assert sorted(validations(run)) == [2, 4, 6]


def test_a_solver_of_a_game_of_the_core_is_refused_before_anything_is_written(
    zygote: Zygote, tmp_path: Path
) -> None:
    refused = train(zygote, tmp_path, "--config", "connect4", "--solver", "exact")
    assert refused.returncode == 2
    assert "connect4 is" in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "own").exists()


@pytest.mark.slow
def test_a_signal_while_positions_are_solved_ends_the_run_within_seconds(
    zygote: Zygote, tmp_path: Path
) -> None:
    """By rules whose every position takes a fifth of a second, so that no search of them would end."""
    file = tmp_path / "slow.py"
    file.write_text(
        SOLVER.replace("        if state", "        __import__('time').sleep(0.2)\n        if state", 1)
    )
    words = ("--game", NIM, "--solver", f"{file}:Perfect", "--batch-size", "32", "--device", "cpu", *QUICK)
    argv, no_rank = ("train", "--runs-dir", str(tmp_path), *words), dict.fromkeys(rank_variables(0, 1, 0))
    job = zygote.start(tmp_path, 1, argv, COMMAND, no_rank)
    while "solving " not in job.output() and job.is_running():
        time.sleep(0.05)
    job.send(signal.SIGINT)
    assert job.wait(60) == [128 + signal.SIGINT], job.output()
    assert "Traceback" not in job.output()
