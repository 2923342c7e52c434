"""The files of a match: each game as PGN (--pgn-out), and the state from which it continues (--resume).

The state is a line of JSON with what the match was begun with, then one for each game, with its PGN: a match
that was killed may have written a game here and not there. After each line's JSON stands the sha256 of it and
of all JSON before it, so that a state that was changed is not believed.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO

from alphazero.base.errors import ConfigError, DataError
from alphazero.base.files import replacing
from alphazero.base.records import from_json, to_json
from alphazero.base.text import quoted, reason
from alphazero.play.matches.game import Decision, Ending, FinishedGame, Pairing
from alphazero.play.matches.limits import clock_text
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.players import Player
from alphazero.play.pgn.writing import pgn_text

VERSION = 3
MOST_BYTES = 1 << 31
RESULTS = {1.0: "1-0", 0.5: "1/2-1/2", 0.0: "0-1"}


@dataclass(frozen=True)
class MatchHead:
    """settings: what the match was begun with, by names for people."""

    version: int
    settings: dict[str, str]


@dataclass(frozen=True)
class SavedGame:
    """A finished game by its number. opening: a digest. pgn: "" without a PGN file."""

    number: int
    points: float
    ending: Ending
    opening: str
    pgn: str


class MatchRecord(contextlib.ExitStack):
    """Each finished game goes to both files at once; a context manager. Without a path there is no file."""

    def __init__(
        self,
        players: Sequence[Player],
        pgn: Path | None = None,
        state: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Raises DataError for files that cannot be used, ConfigError for other settings than the state's."""
        super().__init__()
        self._players = players
        self._saved: list[SavedGame] = []
        self._pgn_path, self._state_path = pgn, state
        self._pgn: IO[str] | None = None
        self._state: IO[bytes] | None = None
        self._digest = hashlib.sha256()  # of the JSON in the state
        if state is not None:
            try:
                self._state = self._open_state(state, settings or {})
            except OSError as error:
                raise DataError(f"--resume {state}: cannot be used: {error.strerror}") from error
        if pgn is not None:
            try:
                self._pgn = self.enter_context(pgn.open("a", encoding="utf-8"))
            except OSError as error:
                raise DataError(f"--pgn-out {pgn}: cannot be written: {error.strerror}") from error
            self._complete_pgn()

    def games_before(self, pairings: Sequence[Pairing]) -> list[FinishedGame]:
        """The games of the state, without their moves. Raises DataError for those of another match."""
        by_number = {pairing.number: pairing for pairing in pairings}
        games = []
        for game in self._saved:
            pairing = by_number.pop(game.number, None)
            which = f"--resume {self._state_path}: game {game.number}"
            if pairing is None:
                raise DataError(f"{which}: expected each game once, of {len(pairings):,}")
            if game.opening != _digest(pairing.opening):
                raise DataError(f"{which}: expected the openings with which this match was begun")
            games.append(FinishedGame(pairing, game.points, game.ending, "", (), 0.0))
        return games

    def add(self, game: FinishedGame) -> None:
        """Write a game to the state, then as PGN."""
        text = "" if self._pgn is None else pgn_of(game, self._players)
        if self._state is not None:
            number, opening = game.pairing.number, _digest(game.pairing.opening)
            self._state.write(self._line(SavedGame(number, game.points, game.ending, opening, text)))
            self._state.flush()
            os.fsync(self._state.fileno())
        if self._pgn is not None:
            self._pgn.write(text)
            self._pgn.flush()

    def _open_state(self, path: Path, settings: Mapping[str, str]) -> IO[bytes]:
        if not path.exists():
            with replacing(path) as file:
                file.write(self._line(MatchHead(VERSION, dict(settings))))
            self._digest = hashlib.sha256()
        if not path.is_file():  # a pipe or device may never end
            raise DataError(f"--resume {path}: expected a file")
        state = self.enter_context(path.open("r+b"))
        try:
            fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"--resume {path}: another match writes to it") from None
        try:
            if os.fstat(state.fileno()).st_size > MOST_BYTES:
                raise ValueError(f"over {MOST_BYTES:,} bytes")
            content = state.read()
            *lines, unfinished = content.split(b"\n")  # of a match that was killed while it wrote
            (head, _, _), *games = parts = [line.partition(b"\t") for line in lines or [b""]]
            if (version := json.loads(head)["version"]) != VERSION:
                raise ValueError(f"version {quoted(version)}; expected {VERSION}")
            for number, (text, _, digest) in enumerate(parts, start=1):
                self._digest.update(text)
                if digest != self._digest.hexdigest().encode():
                    raise ValueError(f"line {number}: changed since it was written, or a line before it")
            begun_with = from_json(MatchHead, head).settings
            self._saved = [from_json(SavedGame, text) for text, _, _ in games]
            for game in self._saved:
                if game.points not in RESULTS:
                    raise ValueError(f"game {game.number}: {game.points:g} points")
                game.pgn.encode()  # JSON may hold half of a character
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(
                f"--resume {path}: {reason(error)}; expected the file of a match that --resume wrote"
            ) from error
        for name in sorted(settings.keys() | begun_with.keys()):
            words = (each.get(name, "").split() for each in (settings, begun_with))
            for pair in zip_longest(*words):
                got, was = ("not given" if word is None else quoted(word) for word in pair)
                if got != was:
                    raise ConfigError(
                        f"--resume {path}: {name} {got}; expected {was}, with which this match was begun"
                    )
        state.truncate(len(content) - len(unfinished))
        state.seek(0, os.SEEK_END)
        return state

    def _line(self, record: MatchHead | SavedGame) -> bytes:
        """A line of the state."""
        text = to_json(record).encode()
        self._digest.update(text)
        return text + b"\t" + self._digest.hexdigest().encode() + b"\n"

    def _complete_pgn(self) -> None:
        """Write the games that the file lacks; a part of the newest one at its end is completed."""
        assert self._pgn is not None and self._pgn_path is not None
        if not self._saved or not stat.S_ISREG(os.fstat(self._pgn.fileno()).st_mode):
            return
        content = self._pgn_path.read_bytes()
        for game in self._saved:
            text = game.pgn.encode()
            if text not in content:
                begun = next(size for size in range(len(text), -1, -1) if content.endswith(text[:size]))
                os.ftruncate(self._pgn.fileno(), len(content) - begun)
                self._pgn.write(game.pgn)
                self._pgn.flush()
                content = content[: len(content) - begun] + text


def _digest(opening: Opening) -> str:
    return hashlib.sha256(repr(opening).encode()).hexdigest()[:16]


def pgn_of(game: FinishedGame, players: Sequence[Player]) -> str:
    """The game as PGN, each move with a comment of score, depth, time and nodes as fastchess writes it."""
    opening = game.pairing.opening
    comments = ["book"] * len(opening.moves) + [_comment(decision) for decision in game.decisions]
    moves = [*opening.moves, *(decision.move for decision in game.decisions)]
    headers = _headers(game, players)
    return pgn_text(opening.start, moves, headers, comments, game.reason, chess960=opening.chess960)


def _headers(game: FinishedGame, players: Sequence[Player]) -> dict[str, str]:
    white, black = players[game.pairing.first], players[game.pairing.second]
    controls = {"WhiteTimeControl": str(white.limit), "BlackTimeControl": str(black.limit)}
    if len(set(controls.values())) == 1:
        controls = {"TimeControl": str(white.limit)}
    return {
        "Event": "alphazero match",
        "Site": "?",
        "Date": datetime.date.today().strftime("%Y.%m.%d"),
        "Round": str(game.pairing.number),
        "White": white.name,
        "Black": black.name,
        "Result": RESULTS[game.points],
        "Termination": game.ending.value,
        "PlyCount": str(game.plies),
        "GameDuration": clock_text(game.seconds),
        **controls,
    }


def _comment(decision: Decision) -> str:
    """+0.35/12 0.104s, n=800."""
    nodes = f", n={decision.nodes}" if decision.nodes else ""
    score = "" if decision.score is None else f"{decision.score}/{decision.depth} "
    return f"{score}{decision.time_s:.3f}s{nodes}"
