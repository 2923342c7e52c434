"""Actors beside the ranks of a host: which are started again, when, how often, and what is said."""

import subprocess
import time
from pathlib import Path

import pytest

from alphazero.launch.agent import host_actors
from alphazero.launch.agent.host_actors import HostActors
from alphazero.launch.agent.protocol import Output
from alphazero.launch.agent.rank_output import OutputStream
from alphazero.launch.plan.launch_plan import Command


class Played:
    """One actor that runs a line of a shell, and what has been said and started of it."""

    def __init__(self, directory: Path, line: str) -> None:
        self.said: list[str] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self.log = directory / "actor0.log"
        output = OutputStream(None, self.log, True, self._take)
        self.actors = HostActors([(Command(("sh", "-c", line)), output)], self._start)

    def _take(self, output: Output) -> None:
        self.said += output.text.splitlines()

    def _start(self, command: Command, output: OutputStream) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen(command.argv))
        return self.started[-1]

    def advance_to_the_end(self) -> None:
        deadline = time.monotonic() + 20
        while self.actors.advance(starts=True):
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch) -> None:
    monkeypatch.setattr(host_actors, "FIRST_DELAY_S", 0.01)


def test_one_that_dies_is_started_again_ever_later_and_not_for_ever(tmp_path):
    played = Played(tmp_path, "kill -9 $$")
    began = time.monotonic()
    played.advance_to_the_end()
    assert time.monotonic() - began > 0.31  # 0.01 + 0.02 + 0.04 + 0.08 + 0.16
    assert len(played.started) == len(played.said) == 6
    killed = "alphazero: actor 0 was killed by SIGKILL: perhaps out of memory, see dmesg"
    assert played.said[0] == f"{killed}; it starts again in 0 s"
    assert played.said[-1] == f"{killed}; it is not started again"
    assert all(line in played.log.read_text() for line in played.said)


def test_one_that_lived_long_is_started_again_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(host_actors, "STEADY_S", 0.0)
    played = Played(tmp_path, "exit 1")
    while len(played.started) < 9:
        assert played.actors.advance(starts=True)
        time.sleep(0.01)
    assert all("starts again in 0 s" in line for line in played.said)


def test_one_that_cannot_play_here_is_not_started_again(tmp_path):
    played = Played(tmp_path, "exit 2")
    played.advance_to_the_end()
    assert played.said == ["alphazero: actor 0 ended with exit status 2; it is not started again"]


def test_one_that_was_asked_to_end_stays_ended(tmp_path):
    played = Played(tmp_path, "exit 0")
    played.advance_to_the_end()
    assert (len(played.started), played.said) == (1, [])


def test_nothing_is_started_while_the_job_ends(tmp_path):
    played = Played(tmp_path, "exec sleep 100")
    assert played.actors.advance(starts=True)
    assert played.actors.pids() == {played.started[0].pid}
    assert played.actors.advance(starts=False)
    played.started[0].kill()
    played.started[0].wait()
    assert not played.actors.advance(starts=False)
    assert (len(played.started), played.said) == (1, [])


def test_one_whose_program_is_gone_is_tried_again_as_well(tmp_path, monkeypatch):
    played = Played(tmp_path, "")

    def fail(command: Command, output: OutputStream) -> subprocess.Popen[bytes]:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(played.actors, "_start", fail)
    played.advance_to_the_end()
    assert len(played.said) == 6
    assert played.said[0] == (
        "alphazero: actor 0 could not be started: No such file or directory; it starts again in 0 s"
    )
