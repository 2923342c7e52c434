"""Games of a match as PGN, each move with a comment of score, depth, time and nodes."""

from __future__ import annotations

import contextlib
import datetime
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import chess
import chess.pgn

from alphazero.base.errors import DataError
from alphazero.play.matches.game import Decision, FinishedGame
from alphazero.play.matches.limits import clock_text
from alphazero.play.matches.players import PlayerWords

RESULTS = {1.0: "1-0", 0.5: "1/2-1/2", 0.0: "0-1"}


@dataclass(frozen=True)
class Appended:
    """A game in a PGN file. begin_bytes: the size of the file before."""

    begin_bytes: int
    text: str


class PgnFile(contextlib.ExitStack):
    """A file to which each finished game is appended at once, as a context manager."""

    def __init__(self, path: Path, event: str) -> None:
        """Raises DataError where the file cannot be written."""
        super().__init__()
        self._event = event
        self._path = path
        try:
            self._file: IO[str] = self.enter_context(path.open("a", encoding="utf-8"))
        except OSError as error:
            raise DataError(f"--pgn-out {path}: cannot be written: {error.strerror}") from error

    def next(self, game: FinishedGame, players: Sequence[PlayerWords]) -> Appended:
        """The game's text, and where it will begin."""
        text = pgn_of(game, players, self._event) + "\n\n"
        return Appended(os.fstat(self._file.fileno()).st_size, text)

    def add(self, game: Appended) -> None:
        """Append a game and flush it."""
        self._file.write(game.text)
        self._file.flush()

    def restore(self, game: Appended) -> None:
        """Append a game unless it is there; a part of it, which a killed match left, is completed.

        Raises DataError where the file has become shorter.
        """
        state = os.fstat(self._file.fileno())
        if not stat.S_ISREG(state.st_mode):
            return
        if state.st_size < game.begin_bytes:
            raise DataError(
                f"--pgn-out {self._path}: {state.st_size:,} bytes; expected at least {game.begin_bytes:,}, "
                "as when the match was stopped"
            )
        content = game.text.encode()
        with self._path.open("rb") as file:
            file.seek(game.begin_bytes)
            found = file.read(len(content))
        if found == content:
            return
        if content.startswith(found):
            os.ftruncate(self._file.fileno(), game.begin_bytes)
        self.add(game)


def pgn_of(game: FinishedGame, players: Sequence[PlayerWords], event: str) -> str:
    """The game as PGN."""
    opening = game.pairing.opening
    root = chess.pgn.Game()
    if opening.start is not None:
        root.setup(chess.Board(opening.start))
    for name, value in _headers(game, players, event).items():
        root.headers[name] = value.replace("\\", "\\\\").replace('"', '\\"')  # as PGN has it
    node: chess.pgn.GameNode = root
    for text in opening.moves:
        node = node.add_variation(chess.Move.from_uci(text), comment="book")
    for decision in game.decisions:
        node = node.add_variation(chess.Move.from_uci(decision.move), comment=_comment(decision))
    node.comment = f"{node.comment}, {game.reason}" if node.comment else game.reason
    return root.accept(chess.pgn.StringExporter(columns=100)).strip()


def _headers(game: FinishedGame, players: Sequence[PlayerWords], event: str) -> dict[str, str]:
    white, black = players[game.pairing.first], players[game.pairing.second]
    same = str(white.limit) == str(black.limit)
    controls = (
        {"TimeControl": str(white.limit)}
        if same
        else {"WhiteTimeControl": str(white.limit), "BlackTimeControl": str(black.limit)}
    )
    opening = game.pairing.opening
    known = {"ECO": opening.eco, "Opening": opening.name}
    return {
        "Event": event,
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
        **{name: value for name, value in known.items() if value},
    }


def _comment(decision: Decision) -> str:
    """As fastchess writes it, with the nodes: +0.35/12 0.104s, n=800."""
    nodes = f", n={decision.nodes}" if decision.nodes else ""
    score = "" if decision.score is None else f"{decision.score}/{decision.depth} "
    return f"{score}{decision.time_s:.3f}s{nodes}"
