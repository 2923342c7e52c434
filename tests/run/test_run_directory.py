"""Choosing and claiming a run's directory: one writer, nothing cleaned too early, nothing left behind."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alphazero.base.errors import BusyError, ConfigError
from alphazero.run.directory import (
    RunDirectory,
    choose_run_directory,
    claimed,
    describe_environment,
    require_free,
)
from tests.support.paths import REPOSITORY

CLAIM = """
import sys, time
from pathlib import Path
from alphazero.run.directory import RunDirectory, claimed
with claimed(RunDirectory(Path(sys.argv[1])), print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def held_by_another(tmp_path):
    """The process that writes to tmp_path/job."""
    argv = [sys.executable, "-c", CLAIM, str(tmp_path / "job")]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def choose(directory: Path, **keywords: bool) -> RunDirectory:
    return choose_run_directory(str(directory), "job", **keywords)


def test_choosing_a_directory_leaves_what_its_writer_is_writing(tmp_path):
    unfinished = [
        tmp_path / "job" / ".config.json.12.tmp",
        tmp_path / "job" / "checkpoints" / ".step-00000004.tmp" / "weights.safetensors",
    ]
    for path in unfinished:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert choose(tmp_path, fresh_start=False).path == tmp_path / "job"
    assert all(path.exists() for path in unfinished)


def test_a_claim_removes_what_a_killed_writer_left(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ".config.json.12.tmp").touch()
    with claimed(RunDirectory(tmp_path / "job"), print):
        pass
    assert not (tmp_path / "job" / ".config.json.12.tmp").exists()


def test_a_second_writer_is_refused_and_cleans_nothing(tmp_path, held_by_another):
    unfinished = tmp_path / "job" / ".config.json.12.tmp"
    unfinished.touch()
    run = choose(tmp_path, fresh_start=False)
    for refuse in (lambda: claimed(run, print).__enter__(), lambda: require_free(run)):
        with pytest.raises(BusyError, match=rf"\(training, process {held_by_another.pid} on "):
            refuse()
    assert unfinished.exists()


def test_a_restart_waits_for_what_is_left_of_the_start_before(tmp_path, held_by_another):
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        held_by_another.kill()

    with claimed(RunDirectory(tmp_path / "job"), say, wait_s=30):
        pass
    assert len(said) == 1 and "to 30 s for training" in said[0]


def test_fresh_starts_at_one_moment_take_a_directory_each(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        chosen = list(pool.map(lambda _: choose(tmp_path, fresh_start=True, reserve=True).path, range(16)))
    assert len(set(chosen)) == 16 and all(path.is_dir() for path in chosen)


def test_a_start_that_comes_to_nothing_leaves_no_directory(tmp_path):
    run = RunDirectory(tmp_path / "runs" / "job")
    with claimed(run, print):
        assert run.path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_comes_to_nothing_leaves_what_others_put_there(tmp_path):
    run = RunDirectory(tmp_path / "job")
    with claimed(run, print):
        (run.path / "logs").mkdir()
    assert [path.name for path in run.path.iterdir()] == ["logs"]


def test_a_run_that_was_begun_keeps_its_directory(tmp_path):
    run = RunDirectory(tmp_path / "job")
    with claimed(run, print):
        run.config.touch()
    assert [path.name for path in run.path.iterdir()] == ["config.json"]


def test_checkpoints_behind_a_link_are_refused_and_left_alone(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".latest.12.tmp").touch()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=r"job/checkpoints: .*a link"):
        claimed(RunDirectory(tmp_path / "job"), print).__enter__()
    assert (elsewhere / ".latest.12.tmp").exists()


def test_a_start_records_changes_of_files_that_git_tracks_alone_or_none(tmp_path: Path):
    def git(*words: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *names, *words], check=True, capture_output=True)

    (tmp_path / "code.py").write_text("one = 1\n")
    git("init")
    git("add", "code.py")
    git("commit", "--message", "one")
    (tmp_path / "code.py").write_text("one = 2\n")
    (tmp_path / "secret.txt").write_text("password\n")
    recorded = describe_environment([], checkout=tmp_path)
    assert "+one = 2" in str(recorded["diff"]) and "password" not in str(recorded)
    assert recorded["diff_of"] == "files that git tracks"
    left_out = describe_environment([], git_diff=False, checkout=tmp_path)
    assert left_out["diff"] == "" and "--no-git-diff" in left_out["diff_of"]
    assert left_out["commit"] == recorded["commit"]
    (tmp_path / "installed").mkdir()  # below a repository that is not this program's
    below = describe_environment([], checkout=tmp_path / "installed")
    assert (below["commit"], below["diff"]) == ("unknown", "unknown")


def test_a_run_name_that_is_not_utf_8_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--run-name a\\xff: "):
        choose_run_directory(str(tmp_path), "a\udcff", fresh_start=False)
