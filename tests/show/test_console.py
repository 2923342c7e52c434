"""What people are told on a terminal and elsewhere, in text and in JSON."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time

import pytest

from alphazero.base.log import (
    FORMAT_VARIABLE,
    JsonStream,
    Topic,
    error_line,
    in_json,
    program_line,
    stamped,
)
from alphazero.show import console as module
from alphazero.show.console import Console

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def opened():
    """Makes consoles and closes them."""
    consoles = []

    def make(**style: object) -> Console:
        consoles.append(Console(True, **style))
        return consoles[-1]

    yield make
    for console in consoles:
        console.close()


def until(holds):
    """Wait for what a thread does."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_until(reader: int, mark: str) -> str:
    """What comes out of a terminal, up to the mark; it never blocks for long."""
    os.set_blocking(reader, False)
    said = ""

    def has_come() -> bool:
        nonlocal said
        with contextlib.suppress(BlockingIOError):
            said += os.read(reader, 65536).decode()
        return mark in said

    until(has_come)
    return said


def test_every_line_has_its_time_where_no_terminal_is(opened, capsys, tmp_path):
    console = opened()
    console.log_to(tmp_path)
    console.say("one\ntwo")
    console.alarm("three")
    said = capsys.readouterr().err
    assert re.fullmatch(rf"{TIME} one\n{TIME} two\n{TIME} three\n", said)
    assert re.fullmatch(rf"{TIME} one\n{TIME} two\n", (tmp_path / "log.txt").read_text())


def test_other_ranks_are_silent_but_for_alarms(capsys):
    console = Console(False)
    console.say("one")
    console.warn("two")
    with console.working("three", 3, "step"):
        console.start_bar(0, 2)
        console.advance_bar()
        console.end_bar()
    console.alarm("four")
    assert capsys.readouterr().err.endswith(" four\n")


def test_json_is_an_object_a_line_with_the_figures(opened, capsys, tmp_path):
    console = opened(log_format="json")
    console.log_to(tmp_path)
    console.say("one\ntwo", Topic.STEP, {"step": 3, "loss": 0.5})
    console.alarm("three")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", first.pop("time"))
    assert first == {"topic": "step", "step": 3, "loss": 0.5, "text": "one\ntwo"}
    assert (second["topic"], second["text"]) == ("warning", "three")
    assert json.loads((tmp_path / "log.jsonl").read_text())["loss"] == 0.5
    assert not (tmp_path / "log.txt").exists()


def test_quiet_shows_warnings_validations_and_the_end_and_keeps_the_rest_in_the_log(opened, capsys, tmp_path):
    console = opened(quiet=True)
    console.log_to(tmp_path)
    console.say("banner")
    console.say("step", Topic.STEP)
    console.say("validation", Topic.VALIDATION)
    console.warn("warning")
    console.say("end", Topic.END)
    shown = [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["validation", "warning", "end"]
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 5


def test_silence_is_broken_at_growing_intervals(opened, capsys, monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 0.02)
    monkeypatch.setattr(module, "FIRST_SILENCE_S", 0.04)
    console, said = opened(), []
    with console.working("self-play", 100, "position") as work:
        work.advance(0, "7 moves")
        until(lambda: said.append(capsys.readouterr().err) or "".join(said).count("\n") == 3)
    assert all(
        re.match(rf"{TIME} self-play: 0 of 100 positions in \d+ s \| 7 moves$", line)
        for line in "".join(said).splitlines()
    )
    assert console._longest_s == pytest.approx(0.04 * 8)


def test_the_innermost_work_is_told_of_and_ends_with_its_outer_one(opened, capsys, monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 0.02)
    monkeypatch.setattr(module, "FIRST_SILENCE_S", 0.04)
    console = opened(log_format="json")
    outer = console.begin("training", 5, "step")
    console.begin("validation")
    said = []
    until(lambda: said.append(capsys.readouterr().err) or any(said))
    told = json.loads("".join(said).splitlines()[0])
    assert (told["topic"], told["work"]) == ("progress", "validation")
    console.end(outer)
    assert console._works == []


def test_a_terminal_gets_a_bar_at_once_and_lines_without_times(monkeypatch):
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with os.fdopen(writer, "w", buffering=1) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        console = Console(True)
        console.start_bar(0, 10)
        first = read_until(reader, "0/10")
        console.advance_bar()
        console.note_bar("loss 1.5", 20.0)
        console.say("a line")
        console.end_bar()
        console.close()
        rest = read_until(reader, "1/10, 0 s, loss 1.5, about 20 s left")
    os.close(reader)
    assert "training:   0%" in first
    assert "a line\r\n" in rest and not re.search(TIME, rest)


def test_a_line_keeps_the_time_it_has():
    (line,) = stamped("words\n").splitlines()
    assert stamped(line + "\n") == line + "\n"
    assert stamped("") == ""
    assert re.fullmatch(rf"{TIME} one\n{TIME} two", stamped("one\ntwo"))


def test_what_anyone_prints_becomes_json(capsys, monkeypatch):
    told = list(map(json.loads, in_json('bar\rwords\n\n{"a": 1}\n[1]\n{"b"\n', "host1 rank 3").splitlines()))
    assert [line.get("text") for line in told] == ["words", None, "[1]", '{"b"']
    assert told[1] == {"a": 1} and told[0]["source"] == "host1 rank 3"
    stream = JsonStream(sys.stderr, "rank 0")
    print("a warning", end="", file=stream)
    assert capsys.readouterr().err == ""
    print(" of numpy", file=stream)
    assert json.loads(capsys.readouterr().err)["text"] == "a warning of numpy"
    monkeypatch.setenv(FORMAT_VARIABLE, "json")
    assert json.loads(error_line("no data"))["topic"] == "error"
    assert json.loads(program_line("starting"))["text"] == "starting"
    monkeypatch.delenv(FORMAT_VARIABLE)
    assert error_line("no data") == "alphazero: error: no data"
    assert re.fullmatch(rf"{TIME} alphazero: starting", program_line("starting"))


def test_a_reader_that_has_ended_is_no_reason_to_end(opened, monkeypatch, tmp_path):
    """As ssh after Ctrl-C at DeepSpeed's launcher: the checkpoint that follows must still be written."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        console = opened()
        console.log_to(tmp_path)
        console.say("one")
        console.say("two")
    assert [line.split()[-1] for line in (tmp_path / "log.txt").read_text().splitlines()] == ["one", "two"]
