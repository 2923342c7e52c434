"""Games of PGN as python-chess has them, with the line that each begins in: of a text, and of a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import chess.pgn

from alphazero.base.errors import DataError
from alphazero.base.text import reason
from alphazero.data.formats.files import find_sources
from alphazero.data.formats.pgn import CHUNK_BYTES, KIND, SourceReader, cut_chunks


@dataclass(frozen=True)
class PgnGame:
    """line: of the text, counted from 1."""

    line: int
    game: chess.pgn.Game

    @property
    def fault(self) -> str:
        """Why the game cannot be used, with what was expected; "" where it can."""
        if not self.game.variations and self.game.headers == chess.pgn.Headers():
            return "neither tags nor moves; expected a game"
        if self.game.errors:
            return f"{reason(self.game.errors[0])}; expected a game of legal moves"
        if any(not move for move in self.game.mainline_moves()):
            return "a null move (--); expected a game of legal moves"
        return ""


def games_of_text(text: str, first_line: int = 1) -> Iterator[PgnGame]:
    """In order; nothing is logged of faulty ones."""
    stream = io.StringIO(text)
    end, number = 0, first_line
    while True:
        begin = _next_game(text, end)
        number += text.count("\n", end, begin)
        game = chess.pgn.read_game(stream, Visitor=_QuietBuilder)
        if game is None:
            return
        yield PgnGame(number, game)
        end = stream.tell()
        number += text.count("\n", begin, end)


def games_of_file(path: Path) -> Iterator[PgnGame]:
    """Of a file, plain or packed, of which a few MiB are in memory at a time. Raises DataError."""
    if path.is_dir():
        raise DataError(f"{path}: this is a directory; expected a PGN file")
    (source,) = find_sources([path], KIND)
    line = 1
    with closing(SourceReader(source, lambda count: None)) as reader:
        for chunk in cut_chunks(reader, CHUNK_BYTES):
            yield from games_of_text(_decoded(chunk), line)
            line += chunk.count(b"\n")


class _QuietBuilder(chess.pgn.GameBuilder[chess.pgn.Game]):
    """Collects the errors of a game without logging them."""

    def handle_error(self, error: Exception) -> None:
        self.game.errors.append(error)


def _next_game(text: str, begin: int) -> int:
    """Where the text of the next game begins: empty lines stand between games."""
    while begin < len(text) and text[begin].isspace():
        begin += 1
    return begin


def _decoded(chunk: bytes) -> str:
    """PGN is Latin-1 by its standard and UTF-8 by habit."""
    try:
        return chunk.decode("utf-8-sig")
    except UnicodeDecodeError:
        return chunk.decode("latin-1")
