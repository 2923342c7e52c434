"""A pipe in place of any file of a run: what reads runs names it or passes it over, and waits for nobody."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alphazero.cli.main import main
from alphazero.network.weights import checkpoint
from tests.support.data.stores import write_random_store
from tests.support.jobs.saving import checkpoint_of
from tests.support.report.made_up_runs import supervised_run

LIMIT_S = 60


@contextmanager
def ended_in_time() -> Iterator[None]:
    """An open that waits for a writer is interrupted."""

    def interrupt(*_: object) -> None:
        raise AssertionError(f"no end within {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_pipe_among_the_files_of_a_run_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = supervised_run(tmp_path / "runs" / "one")
    write_random_store(run.games, 3)
    checkpoint.save(run.checkpoints, checkpoint_of(20, {"policy_top1": 0.5}))
    (run.path / "ratings.jsonl").write_text("")
    (run.path / ".alphazero.lock").write_text("")
    run.heartbeats.mkdir()
    (run.heartbeats / "rank-0.json").write_text("")
    commands = (
        ["report", str(run.path), "--json"],
        ["report", str(run.path)],
        ["runs", str(tmp_path / "runs")],
        ["checkpoint", "list", str(run.path)],
        ["checkpoint", "verify", str(run.path)],
        ["data", "info", str(run.games)],
        ["data", "verify", str(run.games)],
        ["analyse", "--weights", str(run.path)],
    )
    whole = tmp_path / "whole"
    shutil.copytree(run.path, whole)
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        pipe = run.path / path.relative_to(whole)
        pipe.unlink()
        os.mkfifo(pipe)
        for command in commands:
            with ended_in_time():
                status = main(command)
            written = capsys.readouterr()
            assert status in (0, 2, 3), (pipe, command, written.err)
            assert "internal" not in written.err
        pipe.unlink()
        shutil.copy(path, pipe)
