"""Started from a directory with files named as Python's own modules: none of them is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.base.files import read_text
from alphazero.launch.head.remote import remote_argv
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import Remote
from tests.support.evaluation.small_nets import write_small_net
from tests.support.paths import REPOSITORY

# Of Python itself, of what is installed, and of this program.
NAMES = (
    *("random", "queue", "psutil", "runpy", "pkgutil", "signal", "threading", "selectors", "json", "socket"),
    *("struct", "tempfile", "types", "contextlib", "typing", "numpy", "torch", "pynvml", "site", "base"),
    *("sitecustomize", "usercustomize", "multiprocessing", "alphazero"),
)
HOSTILE = "import os; open(os.environ['TRAP'], 'a').write(__name__ + '\\n')\nraise SystemExit(9)\n"
SCRIPT = str(REPOSITORY / "launch_distributed_training.sh")
TINY = (
    *("--device", "cpu", "--blocks", "1", "--filters", "8", "--batch-size", "32", "--micro-batch-size", "16"),
    *("--steps", "2", "--warmup-steps", "1", "--precision", "fp32", "--validation-interval", "0"),
    *("--policy-head", "convolution", "--no-tensorboard"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "downloads"
    directory.mkdir()
    for name in NAMES:
        (directory / f"{name}.py").write_text(HOSTILE)
    return directory


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    trap = folder.parent / "imported"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words,
        cwd=folder,
        env={**environment, "TRAP": str(trap)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not trap.exists(), f"{read_text(trap)}\n{done.stderr}"
    return done


def test_the_launcher_script_and_its_ranks_import_nothing_from_there(folder: Path) -> None:
    done = run(folder, SCRIPT, "--gpus", "2", *TINY)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_deepspeed_s_launcher_and_its_ranks_import_nothing_from_there(folder: Path) -> None:
    words = ("--launcher", "deepspeed", "--no-preflight", "--gpus", "2")
    done = run(folder, SCRIPT, *words, *TINY)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_trainer_started_by_its_path_imports_nothing_from_there(folder: Path) -> None:
    trainer = str(REPOSITORY / "train_distributed.py")
    assert run(folder, sys.executable, trainer, "--world-size", "2", *TINY).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("selfplay", "--out", "games", "--games", "2", "--simulations", "2", "--lanes", "2"),
        ("match", "--against", "random", "--games", "2", "--tc", "0.2+0.01", "--maxmoves", "2"),
    ],
)
def test_processes_of_a_command_import_nothing_from_there(folder: Path, words: tuple[str, ...]) -> None:
    write_small_net(folder / "net.pt", "chess")
    program = str(Path(sys.executable).with_name("alphazero"))
    shared = () if "--tc" in words else ("--gpus", "2")
    command, *rest = words
    weights = ("--weights", "net.pt") if command == "selfplay" else ("net.pt",)
    done = run(folder, program, command, *weights, "--device", "cpu", *rest, *shared)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_programs_on_hosts_import_nothing_from_there(folder: Path, name: str) -> None:
    run(folder, *remote_argv(Remote("here"), sys.executable, [*programs.words_of(name), "--help"]))
