"""What a rank says of itself, and what of it a reader can rely on."""

import json
from pathlib import Path

import pytest

from alphazero.run.rank import JOB_VARIABLE, HeartbeatWriter, Phase, read_heartbeats


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_within_a_phase_a_file_is_written_once_a_second_at_most_and_no_change_is_lost(tmp_path: Path):
    clock = Clock()
    writer = HeartbeatWriter(tmp_path, 3, "here", job="a", clock=clock)
    path = tmp_path / "rank-00003.json"
    writes = 0
    for batch in range(40):
        before = path.read_bytes() if path.exists() else b""
        writer.beat(Phase.SELF_PLAY, 7, batch)
        writes += path.read_bytes() != before
        clock.now_s += 0.25
    assert writes == 10
    (beat,) = read_heartbeats(tmp_path)
    assert (beat.rank, beat.job, beat.step, beat.phase) == (3, "a", 7, Phase.SELF_PLAY)
    assert (beat.progress, beat.changes) == (36, 37)


def test_a_new_phase_is_written_at_once(tmp_path: Path):
    writer = HeartbeatWriter(tmp_path, 0, "here", job="a", clock=Clock())
    for phase in Phase:
        writer.beat(phase, 1)
        assert read_heartbeats(tmp_path)[0].phase is phase


def test_the_same_word_again_is_no_change(tmp_path: Path):
    clock = Clock()
    writer = HeartbeatWriter(tmp_path, 0, "here", job="a", clock=clock)
    for _ in range(3):
        writer.beat(Phase.GATE, 1, 5)
        clock.now_s += 2
    assert read_heartbeats(tmp_path)[0].changes == 1


def test_the_job_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(JOB_VARIABLE, "token")
    HeartbeatWriter(tmp_path, 0, "here").beat(Phase.STEP, 1)
    assert read_heartbeats(tmp_path)[0].job == "token"


@pytest.mark.parametrize(
    "text",
    [
        '{"rank": 1, "host": "h", "pid": 1, "step": 4, "phase": "self-play: move 9", "time_s": 1.5}',
        '{"rank": 1, "host": "h", "pid": 1, "step": 4, "phase": "step", "time_s": 1.5}',
        "",
        "[]",
        "{",
    ],
)
def test_a_file_of_an_older_version_is_left_out_and_hides_no_other(tmp_path: Path, text: str):
    (tmp_path / "rank-00001.json").write_text(text)
    HeartbeatWriter(tmp_path, 2, "here", job="").beat(Phase.STEP, 5)
    assert [beat.rank for beat in read_heartbeats(tmp_path)] == [2]
    HeartbeatWriter(tmp_path, 1, "here", job="").beat(Phase.STEP, 0)
    assert json.loads((tmp_path / "rank-00001.json").read_text())["phase"] == "step"
    assert [beat.rank for beat in read_heartbeats(tmp_path)] == [1, 2]
