"""What an import shows while it reads: the file, on a terminal as a bar, elsewhere as lines."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphazero.base.log import Work
from alphazero.cli.main import main
from alphazero.data.formats.importer import import_games
from alphazero.show import console as module
from tests.support.paths import REPOSITORY

NAMES = ("first.pgn.gz", "second.pgn.gz", "with \x1b[31m and a\nline.pgn.gz")
SHOWN = (*NAMES[:2], r"with \x1b[31m and a\nline.pgn.gz")
ESCAPES = re.compile(r"\x1b\[\w")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of several thousand games; what shows progress looks at it often."""
    directory = tmp_path / "games"
    directory.mkdir()
    packed = (REPOSITORY / "examples" / "games.pgn.gz").read_bytes()
    for name in NAMES:
        (directory / name).write_bytes(packed * 30)  # members of one gzip file
    monkeypatch.setattr(module, "TICK_S", 0.005)
    monkeypatch.setattr(module, "FIRST_SILENCE_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_SILENCE_S", 0.02)
    return directory


@contextlib.contextmanager
def stderr_is(writer: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with os.fdopen(writer, "w", buffering=1) as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield


def test_into_a_pipe_go_lines_that_name_the_file_and_no_carriage_return(
    sources, tmp_path, monkeypatch
) -> None:
    said = tmp_path / "stderr"  # a file as a pipe: no terminal, and it takes all
    with stderr_is(os.open(said, os.O_CREAT | os.O_WRONLY), monkeypatch):
        assert (
            main(["data", "import", str(sources), "--store", str(tmp_path / "store"), "--workers", "1"]) == 0
        )
    text = said.read_bytes().decode()
    assert "\r" not in text
    lines = text.splitlines()
    assert lines
    time, figures = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r"\d+ of 8 MB in \d+ s \| .*games, [\d,]+ games/s"
    form = rf"{time} import (?P<name>.+\.gz): {figures}.*"
    named = [found["name"] for line in lines if (found := re.fullmatch(form, line))]
    assert list(dict.fromkeys(named)) == list(SHOWN)


def test_a_terminal_gets_a_bar_that_names_the_file(sources, tmp_path, monkeypatch) -> None:
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    os.set_blocking(reader, False)
    said = b""
    with stderr_is(writer, monkeypatch):
        take = Drain(reader)
        import_in_the_terminal(sources, tmp_path / "store", take)
        said = take.rest()
    os.close(reader)
    text = said.decode()
    for name in SHOWN:
        assert re.search(rf"\rimport {re.escape(name)}: +\d+%\|.*\| \d/8 MB, \d+ s, [\d,]+ games", text), name
    # The bar goes when all is read.
    assert not ESCAPES.sub("", text.rsplit("\r", 1)[1]).strip()


class Drain:
    """Reads what a terminal shows, so that its writer never waits."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._said = b""

    def __call__(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._reader, 65536):
                self._said += part

    def rest(self) -> bytes:
        self()
        return self._said


def import_in_the_terminal(sources: Path, store: Path, take: Drain) -> None:
    with module.showing("import", 0, "") as work:
        import_games([sources], store, workers=1, progress=work, beat=take)


def test_who_watches_is_told_of_every_file_in_turn_and_gets_its_own_words_back(sources, tmp_path) -> None:
    work, told = Work("reading the games"), []
    import_games(
        [sources],
        tmp_path / "store",
        workers=2,
        progress=work,
        beat=lambda: told.append((work.what, work.total, work.unit, work.done)),
    )
    assert list(dict.fromkeys(what for what, *_ in told)) == [f"import {name}" for name in SHOWN]
    assert {(total, unit) for _, total, unit, _ in told} == {(8, "MB")}
    done = [number for *_, number in told]
    assert done == sorted(done)
    assert done[-1] == 3 * 30 * 92280 // 1_000_000
    assert (work.what, work.total, work.unit) == ("reading the games", 0, "")
