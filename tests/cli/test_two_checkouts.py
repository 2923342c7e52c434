"""Two checkouts and one environment: the launcher and its ranks run the code that they stand in, or none."""

import importlib.util
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from alphazero.launch.head.probe import Question, look
from tests.support.paths import REPOSITORY

CHECKOUT = (
    "alphazero",
    "configs",
    "ds_config.json",
    "train_distributed.py",
    "launch_distributed_training.sh",
)
NOTHING_BUILT = shutil.ignore_patterns("_core*", "__pycache__")


def copy_checkout(directory: Path, ignore=None) -> Path:
    """What a job needs of this checkout, with the core or without it."""
    directory.mkdir()
    for name in CHECKOUT:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignore, copy_function=os.link)
        else:
            shutil.copy(source, directory / name)
    return directory


def make_environment(directory: Path, editable: Path | None) -> Path:
    """An environment with the packages of this one, and a checkout installed as editable or none."""
    venv.create(directory)
    (packages,) = directory.glob("lib/python3*/site-packages")
    lines = [str(Path(pytest.__file__).parents[1])]
    if editable is not None:
        # pip wrote it for this checkout: a finder that comes before sys.path.
        spec = importlib.util.find_spec("_editable_skbc_alphazero")
        if spec is None or spec.origin is None:
            pytest.skip("this environment has no editable install")
        text = Path(spec.origin).read_text(encoding="utf-8")
        (packages / "_of_another.py").write_text(text.replace(f"'{REPOSITORY}/", f"'{editable}/"))
        lines.append("import _of_another")
    (packages / "all.pth").write_text("\n".join(lines) + "\n")
    return directory


def run(environment: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in command],
        env={**kept, "VIRTUAL_ENV": str(environment), **variables},
        cwd=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A checkout, a clone of it without a built core, and an environment that has the first installed."""
    directory = tmp_path_factory.mktemp("two").resolve()
    ours, clone = copy_checkout(directory / "installed"), copy_checkout(directory / "clone", NOTHING_BUILT)
    return ours, clone, make_environment(directory / "env", ours)


def test_the_launcher_refuses_an_environment_that_runs_another_checkout(checkouts) -> None:
    ours, clone, environment = checkouts
    job = ("--dry-run", "--device", "cpu")
    refused = run(environment, clone / "launch_distributed_training.sh", *job)
    expected = (
        f"{environment}/bin/python runs the code of {ours}; expected {clone}: run 'make clean setup' there"
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"launch_distributed_training.sh: error: {expected}\n"
    own = run(environment, ours / "launch_distributed_training.sh", *job)
    assert own.returncode == 0, own.stderr
    assert f"{ours}/train_distributed.py" in own.stdout


@pytest.mark.parametrize(
    "launcher",
    [(), pytest.param(("-m", "torch.distributed.run", "--nproc-per-node", "2"), marks=pytest.mark.slow)],
)
def test_ranks_refuse_an_environment_that_runs_another_checkout(checkouts, launcher) -> None:
    ours, clone, environment = checkouts
    python = environment / "bin" / "python"
    refused = run(environment, python, *launcher, clone / "train_distributed.py", "--run-name", "job")
    line = (
        f"alphazero: error: {python} runs the code of {ours}; expected {clone}: run 'make clean setup' there"
    )
    assert line in refused.stderr
    assert refused.returncode == (1 if launcher else 2)  # 1: torchrun's own for any failure
    assert not (environment / "runs").exists()


def test_an_edited_clone_runs_its_own_code_where_nothing_is_installed(checkouts, tmp_path: Path) -> None:
    _, clone, _ = checkouts
    environment = make_environment(tmp_path / "env", None)
    main = clone / "alphazero" / "__main__.py"
    text = main.read_text()
    main.unlink()  # a link to this checkout's
    main.write_text('print("edited")\n' + text)
    script = clone / "launch_distributed_training.sh"
    shown = run(environment, script, "--dry-run", "--device", "cpu")
    assert shown.stdout.startswith("edited\n")
    assert f"{clone}/train_distributed.py" in shown.stdout
    started = run(environment, script, "--device", "cpu")
    assert started.returncode == 2
    expected = f"has no alphazero._core; expected `make setup` in {clone}"
    assert started.stderr == f"alphazero: error: {environment}/bin/python: {expected}\n"


def test_a_host_that_runs_another_checkout_has_a_fault(tmp_path: Path) -> None:
    def fault(checkout: str) -> str:
        return look(Question(str(tmp_path), str(tmp_path), "", 0, False, "cpu", checkout=checkout)).fault

    (tmp_path / "link").symlink_to(REPOSITORY)
    assert fault("") == fault(str(REPOSITORY)) == fault(str(tmp_path / "link")) == ""
    expected = f"runs the code of {REPOSITORY}; expected /elsewhere: `make clean setup` there"
    assert fault("/elsewhere") == expected
