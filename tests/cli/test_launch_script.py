"""The shell launcher as a user types it, and the sample for a batch system."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.cli.main import main
from tests.support.paths import REPOSITORY

SCRIPT = REPOSITORY / "launch_distributed_training.sh"


def run_script(*arguments: str, script: Path = SCRIPT, cwd: Path | None = None, **environment: str):
    """The shell launcher, with this interpreter's environment where the checkout has none."""
    return subprocess.run(
        [str(script), *arguments],
        cwd=cwd,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_shell_launcher_works_from_anywhere_and_leaves_relative_paths_to_the_caller(tmp_path: Path):
    (tmp_path / "games.pgn").touch()
    run = run_script("--dry-run", "--device", "cpu", "--data", "games.pgn", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith(f"{REPOSITORY}/train_distributed.py --data games.pgn --device cpu\n")
    link = tmp_path / "train"
    link.symlink_to(SCRIPT)
    assert run_script("--dry-run", "--device", "cpu", script=link, cwd=tmp_path).returncode == 0


def test_the_shell_launcher_passes_the_exit_status_on():
    run = run_script("--gpus", "none")
    assert run.returncode == 2
    assert run.stderr.startswith("alphazero: error: --gpus: 'none': ") and run.stderr.count("\n") == 1


def test_without_an_environment_the_shell_launcher_names_make_setup(tmp_path: Path):
    checkout, path = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    path.mkdir()
    script = Path(shutil.copy(SCRIPT, checkout))
    for tool in ("bash", "env", "dirname", "readlink"):
        (path / tool).symlink_to(shutil.which(tool))
    run = run_script(script=script, cwd=tmp_path, PATH=str(path), VIRTUAL_ENV="")
    assert (run.returncode, run.stdout) == (2, "")
    assert "no python3 found" in run.stderr
    (path / "python3").symlink_to(sys.executable)  # by another name it has none of the environment's packages
    bare = run_script(script=script, cwd=tmp_path, PATH=str(path), VIRTUAL_ENV="", PYTHONNOUSERSITE="1")
    assert bare.returncode == 2
    assert f"'make setup' in {checkout}" in bare.stderr


def test_the_shell_launcher_is_short_and_clean():
    assert len(SCRIPT.read_text().splitlines()) < 80
    assert_shellcheck_finds_nothing(SCRIPT)


def assert_shellcheck_finds_nothing(script: Path) -> None:
    """Skips where there is no shellcheck."""
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = shutil.which("shellcheck") or (str(beside) if beside.exists() else None)
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    found = subprocess.run([shellcheck, str(script)], capture_output=True, text=True)
    assert found.stdout == ""


def test_the_sample_batch_script_is_clean_and_names_flags_that_exist(capsys: pytest.CaptureFixture[str]):
    sample = REPOSITORY / "examples" / "train.sbatch"
    assert "--ntasks-per-node=1" in sample.read_text()
    command = next(line for line in sample.read_text().splitlines() if line.startswith("exec"))
    words = [word for word in shlex.split(command)[2:] if word != "$@"]
    assert main(["launch", *words, "--device", "cpu", "--dry-run"]) == 0
    assert_shellcheck_finds_nothing(sample)
