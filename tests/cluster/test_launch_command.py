"""`alphazero launch` and the shell launcher as a user types them."""

import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.cli.main import main

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "launch_distributed_training.sh"
LIMIT_S = 0.5


def run_script(*arguments: str, script: Path = SCRIPT, cwd: Path = REPOSITORY, **environment: str):
    """The shell launcher, with this interpreter's environment where the checkout has none."""
    return subprocess.run(
        [str(script), *arguments],
        cwd=cwd,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    """As on a machine without an NVIDIA device."""
    monkeypatch.setattr("alphazero.cluster.health.list_devices", lambda files_present: ())


def test_flags_of_the_trainer_go_through_unchanged_and_in_order(
    no_gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for name in ("a b.pgn", "c"):
        Path(name).touch()
    trainer = [
        "--batch-size",
        "2048",
        "--mixed-precision",
        "--data",
        "a b.pgn",
        "c",
        "--run-name=x",
        "--seed",
        "3",
    ]
    assert main(["launch", *trainer[:3], "--gpus", "8", *trainer[3:], "--dry-run"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[words.index(str(REPOSITORY / "train_distributed.py")) + 1 :] == trainer
    assert "--nproc_per_node=8" in words


def test_the_device_is_told_to_the_trainer_where_it_was_asked_for(capsys: pytest.CaptureFixture[str]):
    assert main(["launch", "--device", "cpu", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("train_distributed.py --device cpu\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "x"], "argument --gpus: 'x': wanted a whole number"),
        (["--gpu", "2"], "unrecognized arguments: --gpu 2"),
        (["--batch-sise", "2"], "unrecognized arguments: --batch-sise 2"),
        (["--hostfile", "none"], "--hostfile none: cannot be read: No such file or directory"),
        (["--nodes", "2"], "--nodes 2: wanted --node-rank beside it, 0 to 1"),
        (["--launcher", "mpi"], "argument --launcher: invalid choice: 'mpi'"),
        (["--device", "cuda"], "--device cuda: wanted an NVIDIA device, there is none on"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_before_anything_starts(
    no_gpu, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["launch", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"alphazero: error: {message}")
    assert said.count("\n") == 1


def test_a_port_in_use_is_an_error_that_suggests_another(no_gpu, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert main(["launch", "--master-port", str(port), "--dry-run"]) == 2
    assert f"--master-port {port}: is in use here" in capsys.readouterr().err


def test_several_hosts_are_told_what_to_type_on_each(
    no_gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("gpu1 slots=8\ngpu2 slots=8\n")
    assert main(["launch", "--hostfile", str(hostfile), "--batch-size", "512", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1] == (
        "./launch_distributed_training.sh --gpus 8 --nodes 2 --node-rank 1 --master-addr gpu1 "
        "--master-port 12355 --batch-size 512   # on gpu2"
    )


def test_the_shipped_hostfile_runs_on_this_machine(no_gpu, capsys: pytest.CaptureFixture[str]):
    assert main(["launch", "--hostfile", str(REPOSITORY / "hostfile"), "--dry-run"]) == 0
    assert "--nproc_per_node=1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["--gpus", "2", "--device", "cpu", "--dry-run"]])
def test_help_and_dry_run_answer_at_once_and_import_no_torch(arguments: list[str]):
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from alphazero.cli.main import entry_point; entry_point()"
    )
    command = [sys.executable, "-c", program, "launch", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    fastest = 1e9
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        fastest = min(fastest, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    imported = set(run.stderr.split())
    assert "alphazero.cli.launch" in imported
    assert not {"torch", "deepspeed", "numpy", "pyarrow"} & imported
    assert fastest < LIMIT_S  # CPU time: other work on this machine does not count


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
    assert run.stderr == "alphazero: error: argument --gpus: 'none': wanted a whole number\n"


def test_without_an_environment_the_shell_launcher_names_make_setup(tmp_path: Path):
    checkout, path = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    path.mkdir()
    script = Path(shutil.copy(SCRIPT, checkout))
    for tool in ("bash", "env", "dirname", "readlink"):
        (path / tool).symlink_to(shutil.which(tool))
    run = run_script(script=script, cwd=tmp_path, PATH=str(path), VIRTUAL_ENV="")
    assert (run.returncode, run.stdout) == (2, "")
    assert "no python3 found; wanted Python 3.10 or newer" in run.stderr
    (path / "python3").symlink_to(sys.executable)  # by another name it has none of the environment's packages
    bare = run_script(script=script, cwd=tmp_path, PATH=str(path), VIRTUAL_ENV="", PYTHONNOUSERSITE="1")
    assert bare.returncode == 2
    assert f"run 'make setup' in {checkout}" in bare.stderr


def test_the_shell_launcher_is_short_and_clean():
    assert len(SCRIPT.read_text().splitlines()) < 80
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = shutil.which("shellcheck") or (str(beside) if beside.exists() else None)
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    found = subprocess.run([shellcheck, str(SCRIPT)], capture_output=True, text=True)
    assert found.stdout == ""
