"""Games of a store as PGN, with the value and visits of each searched move in comments.

A comment reads `{ [%eval 0.35] [%clk 0:01:05] q=+0.118 d=0.310 n=800 }`, each part where it is known. The
first two are what python-chess and Lichess read. q (W - L for the side that moved), d (chance of a draw) and
n (visits) are the search's of the position before the move.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from alphazero._core import ChessPosition
from alphazero.base.errors import DataError
from alphazero.base.files import OTHER_PACKINGS, replacing
from alphazero.data.formats.pgn import CHESS960, GAME
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.schema import PGN_HEADERS
from alphazero.data.store.store import GameStore, named_faults
from alphazero.games.notation import RESULTS

_LINE_WIDTH = 80
_ROSTER = ("Event", "Site", "Date", "Round", "White", "Black", "Result")  # that every game has
# lc0's centipawns of a value: 90 tan(1.5637541897 q), src/search/classic/search.cc.
_CENTIPAWNS = 90.0
_STEEPNESS = 1.5637541897


def export_pgn(store: GameStore, path: Path, *, first: int = 0, count: int | None = None) -> tuple[int, int]:
    """Write games `first` ... of the store to a file (.gz: packed), which is written whole or not at all.

    Returns how many games and plies that were. Raises DataError for games other than chess, for names of
    other packings, and where the file exists or cannot be written.
    """
    if store.manifest.game != GAME:
        raise DataError(f"{store.path}: holds games of {store.manifest.game}; PGN knows {GAME} alone")
    if path.name.lower().endswith(OTHER_PACKINGS):
        raise DataError(f"{path}: expected a name ending in .pgn or .pgn.gz")
    if path.exists() or path.is_symlink():
        raise DataError(f"{path}: already exists; expected the name of a new file")
    games = plies = 0
    with named_faults("write", path), replacing(path) as file:
        with _packed(path, file) as text:
            for game in games_of(store, first, count):
                text.write(pgn_of(game).encode())
                games += 1
                plies += len(game.lists["moves"])
        if not games:
            raise DataError(f"{store.path}: holds {store.num_games} games; none from game {first}")
    return games, plies


def _packed(path: Path, file: IO[bytes]) -> AbstractContextManager[IO[bytes] | gzip.GzipFile]:
    return gzip.GzipFile("", "wb", 6, file, 0.0) if path.suffix.lower() == ".gz" else nullcontext(file)


def pgn_of(game: GameRow) -> str:
    """A game's text, with an empty line at its end. Raises DataError for one that cannot be replayed."""
    result = RESULTS[game.values.get("result")]
    lines = [f'[{name} "{_escaped(value)}"]' for name, value in _tags(game, result)]
    return "\n".join([*lines, "", *_lines([*_words(game), result]), "", ""])


def _lines(words: Iterable[str]) -> list[str]:
    """Words in lines of at most _LINE_WIDTH, a comment on one line."""
    lines: list[str] = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _LINE_WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _tags(game: GameRow, result: str) -> Iterator[tuple[str, str]]:
    values = game.values
    tags = {tag: str(values[column]) for column, tag in PGN_HEADERS.items() if column in values}
    tags = {"Date": "????.??.??", "Result": result} | tags
    for tag in _ROSTER:
        yield tag, tags.pop(tag, "?")
    if values["variant"] == CHESS960:
        yield "Variant", "Chess960"
    if "start_fen" in values:
        yield "SetUp", "1"
        yield "FEN", values["start_fen"]
    yield from tags.items()


def _escaped(value: str) -> str:
    """A tag's value on one line."""
    line = " ".join(value.split())
    return line.replace("\\", "\\\\").replace('"', '\\"')


def _words(game: GameRow) -> Iterator[str]:
    try:
        position = ChessPosition(game.values.get("start_fen"))
        is_first = True
        for ply, move in enumerate(game.lists["moves"]):
            number = position.fullmove_number
            if position.turn:
                yield f"{number}."
            elif is_first:
                yield f"{number}..."
            white_moves = position.turn
            yield position.san(int(move))
            position.push(int(move))
            comment = _comment(game, ply, white_moves)
            if comment:
                yield f"{{ {comment} }}"
            is_first = bool(comment)  # after a comment Black's move has its number
    except ValueError as error:  # of the core: no position, no legal move
        raise DataError(f"{game.location}: {error}") from error


def _comment(game: GameRow, ply: int, white_moves: bool) -> str:
    parts = []
    evaluation = _evaluation(game, ply, white_moves)
    if evaluation:
        parts.append(f"[%eval {evaluation}]")
    clock_ms = _entry(game, "clock_ms", ply)
    if clock_ms is not None:
        parts.append(f"[%clk {_clock(int(clock_ms))}]")
    if _is_searched(game, ply):
        parts.append(f"q={game.lists['root_q'][ply]:+.3f} d={game.lists['root_d'][ply]:.3f}")
        parts.append(f"n={game.lists['visits'][ply]}")
    return " ".join(parts)


def _is_searched(game: GameRow, ply: int) -> bool:
    return game.is_searched and int(game.lists["visits"][ply]) > 0


def _entry(game: GameRow, name: str, ply: int) -> Any:  # noqa: ANN401 - of any column
    """A column's entry for a ply; None for nothing, which numbers write as NaN."""
    if name not in game.lists:
        return None
    entry = game.lists[name][ply]
    return None if entry is None or entry != entry else entry


def _evaluation(game: GameRow, ply: int, white_moves: bool) -> str:
    """The text of `[%eval]`, for White and after the move: as read, else from the search's value."""
    depth = _entry(game, "eval_depth", ply)
    of_depth = f",{int(depth)}" if depth is not None else ""
    mate, centipawns = _entry(game, "eval_mate", ply), _entry(game, "eval_cp", ply)
    if mate is not None:
        return f"#{int(mate)}{of_depth}"
    if centipawns is not None:
        return f"{int(centipawns) / 100:.2f}{of_depth}"
    if not _is_searched(game, ply):
        return ""
    played = _entry(game, "played_q", ply)
    value = float(cast(float, game.lists["root_q"][ply]) if played is None else played)
    value = min(max(value, -1.0), 1.0) if white_moves else -min(max(value, -1.0), 1.0)
    return f"{_CENTIPAWNS * math.tan(_STEEPNESS * value) / 100:.2f}"


def _clock(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:03d}".rstrip("0") if rest else text
