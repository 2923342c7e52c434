"""What a run from a stranger names is never run: only what this start's command line names is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.run.checkpoint_files import MANIFEST, STATE, checkpoints_in, write_manifest
from tests.support.jobs.zygote import Zygote
from tests.support.paths import REPOSITORY

NIM = REPOSITORY / "examples" / "nim.py"
TINY = (
    *("--mode", "selfplay", "--blocks", "1", "--filters", "8", "--device", "cpu", "--precision", "fp32"),
    *("--batch-size", "16", "--micro-batch-size", "16", "--lanes", "4", "--simulations", "2"),
    *("--evaluation-batch", "8", "--steps-per-generation", "1", "--warmup-steps", "1", "--no-tensorboard"),
)
HOSTILE = "open('executed', 'w').close()\n"


def alphazero(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As typed; `train`, which imports torch, is forked from a process that has (zygote.run_command)."""
    program = Path(sys.executable).with_name("alphazero")
    return subprocess.run([program, *words], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def runs_of_others(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the runs of two games: nim and connect4."""
    directory = tmp_path_factory.mktemp("others")
    for name, game in (("nim", f"{NIM}:Nim(piles=3)"), ("connect4", "connect4")):
        done = zygote.run_command(
            directory, "train", "--game", game, "--run-name", name, "--generations", "1", *TINY
        )
        assert done.returncode == 0, done.stderr
    return directory


def gift(runs_of_others: Path, tmp_path: Path, run: str, section: str, key: str, value: str) -> Path:
    """The directory of a user who was given a run with this setting in its checkpoints, and a file beside."""
    shutil.copytree(runs_of_others / "runs" / run, tmp_path / "runs" / "gift", symlinks=True)
    (tmp_path / "runs" / "gift" / "e.py").write_text(HOSTILE + NIM.read_text(encoding="utf-8"))
    for checkpoint in checkpoints_in(tmp_path / "runs" / "gift" / "checkpoints"):
        state = json.loads((checkpoint / STATE).read_text())
        state["config"][section][key] = value
        (checkpoint / STATE).write_text(json.dumps(state))
        write_manifest(checkpoint, list(json.loads((checkpoint / MANIFEST).read_text())["files"]))
    return tmp_path


@pytest.mark.parametrize(("command", "more"), [("launch", ("--gpus", "1", "--no-preflight")), ("train", ())])
@pytest.mark.parametrize(
    ("run", "section", "key", "value", "flag"),
    [
        ("nim", "network", "game", "runs/gift/e.py:Nim(piles=3)", "--game 'PATH/e.py:Nim(piles=3)'"),
        ("connect4", "network", "game", "runs/gift/e.py:Nim(piles=3)", "--game 'PATH/e.py:Nim(piles=3)'"),
        ("nim", "training", "solver", "runs/gift/e.py:Nim", "--solver PATH/e.py:Nim"),
        ("connect4", "training", "solver", "runs/gift/e.py:Nim", "--solver PATH/e.py:Nim"),
    ],
)
def test_a_run_names_no_file_that_is_then_run(
    zygote: Zygote, runs_of_others: Path, tmp_path: Path, command, more, run, section, key, value, flag
) -> None:
    cwd = gift(runs_of_others, tmp_path, run, section, key, value)
    words = (*TINY[6:], "--generations", "2", *more)
    if (run, key) == ("nim", "solver"):  # the game is the user's own
        words = (*words, "--game", f"{NIM}:Nim(piles=3)")
    start = alphazero if command == "launch" else zygote.run_command
    done = start(cwd, command, "--run-name", "gift", *words)
    assert done.returncode == 2 and not (cwd / "executed").exists(), done.stderr
    assert f"expected {flag}" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_same_run_goes_on_where_the_command_line_names_the_file(
    zygote: Zygote, runs_of_others: Path, tmp_path: Path
) -> None:
    cwd = gift(runs_of_others, tmp_path, "nim", "network", "game", "runs/gift/nim.py:Nim(piles=3)")
    named = ("--game", f"{NIM}:Nim(piles=3)")
    done = zygote.run_command(cwd, "train", "--run-name", "gift", *named, *TINY[6:], "--generations", "2")
    assert done.returncode == 0 and not (cwd / "executed").exists(), done.stderr


def test_one_s_own_run_goes_on_with_the_flag_that_its_refusal_shows(
    zygote: Zygote, runs_of_others: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs_of_others / "runs", tmp_path / "runs", symlinks=True)
    words = ("train", "--run-name", "nim", *TINY[6:], "--generations", "2")
    refused = zygote.run_command(tmp_path, *words)
    assert refused.returncode == 2
    line = refused.stderr.splitlines()[-1]
    assert "expected --game 'PATH/nim.py:Nim(piles=3)'" in line
    assert zygote.run_command(tmp_path, *words, "--game", f"{NIM}:Nim(piles=3)").returncode == 0


def test_a_file_named_as_a_preset_in_the_working_directory_is_none(tmp_path: Path) -> None:
    (tmp_path / "e.py").write_text(HOSTILE + NIM.read_text(encoding="utf-8"))
    for preset in ("chess_cpu", "chess_20x256"):
        (tmp_path / preset).write_text('[network]\ngame = "e.py:Nim(piles=3)"\n')
    for words in ((), ("--config", "chess_cpu")):
        done = alphazero(tmp_path, "launch", "--dry-run", "--gpus", "1", "--device", "cpu", *words)
        assert done.returncode == 0 and not (tmp_path / "executed").exists(), done.stderr
