"""Which rows of a store, or on their way into one, pass the filters of whole games."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from alphazero.base.text import counted
from alphazero.settings.data import GameFilters, chosen_filters, filter_text

CORRESPONDENCE = "correspondence"
# Seconds that 40 moves may take a player, below which a game is of the class (lichess.org/faq#time-controls).
_BOUNDS = (("ultrabullet", 30.0), ("bullet", 180.0), ("blitz", 480.0), ("rapid", 1500.0))
_SLOWEST = "classical"
_TYPICAL_MOVES = 40

# PGN standard, 9.6.1: fields of moves/seconds, seconds, seconds+increment or *seconds, divided by colons.
_FIELD = re.compile(
    r"(?:(?P<moves>[0-9]{1,4})/|\*)?(?P<base>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
    r"(?:\+(?P<increment>[0-9]{1,9}(?:\.[0-9]{1,9})?))?(?::.*)?",
    re.ASCII | re.DOTALL,
)


def time_class(header: str) -> str | None:
    """The class of a time control by its first field: its seconds and 40 increments; None if it is not known.

    '-' and one move in so many seconds ('1/86400') are correspondence.
    """
    header = header.strip()
    if header == "-":
        return CORRESPONDENCE
    match = _FIELD.fullmatch(header)
    if match is None:
        return None
    if match["moves"] is not None and int(match["moves"]) <= 1:
        return CORRESPONDENCE
    seconds = float(match["base"]) + _TYPICAL_MOVES * float(match["increment"] or 0)
    return next((name for name, bound in _BOUNDS if seconds < bound), _SLOWEST)


GAME_FILTERS = frozenset(field.name for field in fields(GameFilters))

# Shapes: G games.


@dataclass(frozen=True)
class FilterCount:
    """What one filter removed of what those before it had left.

    text: the filter as filter_text has it. noun: 'game' or 'position'. seed: of what was drawn by chance.
    """

    text: str
    noun: str
    removed: int
    before: int
    seed: int | None = None

    @property
    def identity(self) -> list[object]:
        """What it does, whatever it found: of a window's id."""
        return [self.text] if self.seed is None else [self.text, self.seed]

    def __str__(self) -> str:
        return f"{self.text}: removed {self.removed:,} of {counted(self.before, self.noun)}"


def removed_by(rows: pa.RecordBatch | None, num_games: int, filters: GameFilters) -> npt.NDArray[np.uint8]:
    """u8 [G]: 0 for games that pass, else 1 + the index of the first filter that is set and removes it.

    rows: of a store; None for games without headers.
    """
    headers = _Headers(rows, num_games)
    removers = np.zeros(num_games, np.uint8)
    for index, (name, value) in reversed(list(enumerate(game_filters_of(filters).items()))):
        removers[~_JUDGES[name](headers, value)] = index + 1
    return removers


def game_filters_of(filters: GameFilters) -> dict[str, Any]:
    """The filters of whole games that are set, by name. Raises ConfigError where no game can pass."""
    return {name: value for name, value in chosen_filters(filters).items() if name in GAME_FILTERS}


def filter_texts(filters: GameFilters) -> list[str]:
    """Those filters as printed, in their order."""
    return [filter_text(name, value) for name, value in game_filters_of(filters).items()]


class _Headers:
    """The headers of games, column by column."""

    def __init__(self, rows: pa.RecordBatch | None, num_games: int) -> None:
        self._rows = rows
        self.num_games = num_games

    def numbers(self, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """A column of whole numbers, and where it has one."""
        column = self._column(name)
        if column is None:
            return np.zeros(self.num_games, np.int64), np.zeros(self.num_games, np.bool_)
        is_known: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
        return pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64), is_known

    def words(self, name: str, passes: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Where a column of texts passes, each looked at once; a row without a text does not."""
        column = self._column(name)
        if column is None:
            return np.zeros(self.num_games, np.bool_)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        word_passes = np.array([*map(passes, map(str, column.dictionary.to_pylist())), False])
        indices = pc.fill_null(column.indices, len(word_passes) - 1).to_numpy(zero_copy_only=False)
        row_passes: npt.NDArray[np.bool_] = word_passes[indices]
        return row_passes

    def _column(self, name: str) -> Any:  # noqa: ANN401 - the stubs of pyarrow know no dictionary
        return self._rows.column(name) if self._rows and name in self._rows.schema.names else None


def _by_elo(of_both: Callable[[Any, Any], Any], passes: Callable[[Any, int], Any]) -> _Judge:
    """Judges a number of both players' Elo by a bound; games that lack one do not pass."""

    def judge(headers: _Headers, bound: int) -> npt.NDArray[np.bool_]:
        (white, has_white), (black, has_black) = headers.numbers("white_elo"), headers.numbers("black_elo")
        passing: npt.NDArray[np.bool_] = has_white & has_black & passes(of_both(white, black), bound)
        return passing

    return judge


def _has_one(text: str, parts: tuple[str, ...]) -> bool:
    folded = text.casefold()
    return any(part.casefold() in folded for part in parts)


_Judge: TypeAlias = Callable[[_Headers, Any], npt.NDArray[np.bool_]]
# Which games pass, bool [G]; those without a termination do.
_JUDGES: dict[str, _Judge] = {
    "min_elo": _by_elo(np.minimum, operator.ge),
    "max_elo": _by_elo(np.maximum, operator.le),
    "max_elo_difference": _by_elo(lambda white, black: np.abs(white - black), operator.le),
    "time_classes": lambda headers, wanted: headers.words(
        "time_control", lambda header: time_class(header) in wanted
    ),
    "events": lambda headers, wanted: headers.words("event", lambda event: _has_one(event, wanted)),
    "exclude_terminations": lambda headers, unwanted: (
        ~headers.words("termination", lambda text: _has_one(text, unwanted))
    ),
}
assert _JUDGES.keys() == GAME_FILTERS, "each filter of games has a judge: a flag without one does nothing"
