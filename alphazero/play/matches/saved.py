"""The state of a match in a file, whole after each game, from which a stopped match continues."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from alphazero.base.errors import ConfigError, DataError
from alphazero.base.files import read_at_most, replacing
from alphazero.base.records import from_table, to_json
from alphazero.base.text import quoted, reason
from alphazero.play.matches.game import Ending, FinishedGame, Pairing
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.pgn import Appended

VERSION = 1
MOST_BYTES = 1 << 28
POINTS = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class SavedGame:
    """A finished game by its number. opening: a digest of its opening."""

    number: int
    points: float
    ending: Ending
    opening: str


@dataclass(frozen=True)
class MatchState:
    """settings: what the match was begun with, by names for people. last: the newest game's PGN."""

    version: int
    settings: dict[str, str]
    last: Appended | None = None
    games: tuple[SavedGame, ...] = ()


class SavedMatch:
    """A match's state and its file."""

    def __init__(self, path: Path, state: MatchState) -> None:
        self._path = path
        self._state = state
        self._games = [to_json(game) for game in state.games]  # written again after every game
        self._last = state.last
        self._written = _identity(path)

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, str]) -> SavedMatch:
        """The match in the file, else a new one. Raises ConfigError for other settings than the file's."""
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            match = cls(path, MatchState(VERSION, dict(settings)))
            try:
                match._write()
            except OSError as error:
                raise DataError(f"--resume {path}: cannot be written: {error.strerror}") from error
            return match
        except OSError as error:
            raise DataError(f"--resume {path}: cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(mode):
            raise DataError(f"--resume {path}: expected a file")
        state = _read(path)
        for name in sorted(settings.keys() | state.settings.keys()):
            words = settings.get(name, "").split(), state.settings.get(name, "").split()
            for now, before in zip_longest(*words):
                if now != before:
                    raise ConfigError(
                        f"--resume {path}: {name} {_shown(now)}; expected {_shown(before)}, with which this "
                        "match was begun"
                    )
        return cls(path, state)

    @property
    def last(self) -> Appended | None:
        """The PGN of the newest game, which may not be in the PGN file."""
        return self._last

    def games(self, pairings: Sequence[Pairing]) -> list[FinishedGame]:
        """The finished games, without their moves. Raises DataError for games that are not of this match."""
        by_number = {pairing.number: pairing for pairing in pairings}
        found = []
        for game in self._state.games:
            pairing = by_number.pop(game.number, None)
            place = f"--resume {self._path}: game {game.number}"
            if pairing is None:
                raise DataError(f"{place}: expected each game once, of {len(pairings):,}")
            if game.opening != _digest(pairing.opening):
                raise DataError(f"{place}: expected the openings with which this match was begun")
            found.append(FinishedGame(pairing, game.points, game.ending, "", (), 0.0))
        return found

    def add(self, game: FinishedGame, last: Appended | None) -> None:
        """Write the state with one more game. Raises DataError where another process has written to it."""
        if _identity(self._path) != self._written:
            raise DataError(
                f"--resume {self._path}: changed by another process; expected one match to write to it"
            )
        pairing = game.pairing
        saved = SavedGame(pairing.number, game.points, game.ending, _digest(pairing.opening))
        self._games.append(to_json(saved))
        self._last = last
        self._write()

    def _write(self) -> None:
        head = to_json(MatchState(VERSION, self._state.settings, self._last)).removesuffix("]}")
        with replacing(self._path) as file:
            file.write("\n".join([head, ",\n".join(self._games), "]}\n"]).encode())
        self._written = _identity(self._path)


def _shown(word: str | None) -> str:
    return "not given" if word is None else quoted(word)


def _digest(opening: Opening) -> str:
    return hashlib.sha256(repr(opening).encode()).hexdigest()[:16]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> MatchState:
    """Raises DataError, one line, for what is no state of a match."""
    try:
        table = json.loads(read_at_most(path, MOST_BYTES))
        if isinstance(table, dict) and table.get("version") != VERSION:
            raise ValueError(f"version {quoted(table.get('version'))}; expected {VERSION}")
        state = from_table(MatchState, table)
        for game in state.games:
            if game.points not in POINTS:
                raise ValueError(f"game {game.number}: {game.points:g} points")
    except OSError as error:
        raise DataError(f"--resume {path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"--resume {path}: {reason(error)}; expected the file of a match that --resume wrote"
        ) from error
    return state
