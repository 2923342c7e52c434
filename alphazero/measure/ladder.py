"""The ladder of a game: opponents whose ratings are published (chess), or estimated by games among them.

In games other than chess these are random play, 0 by definition, and tree search with random playouts. Each
meets the next stronger one, and all ratings follow by maximum likelihood. The scores are kept in the user's
cache directory: a game's ladder is played once, and one that was interrupted continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from alphazero.base.files import read_text, write_json
from alphazero.base.records import from_json
from alphazero.base.section import read_toml
from alphazero.data.store.verification import default_cache_directory
from alphazero.games.registry import CHESS
from alphazero.machine.environment import page
from alphazero.measure.elo import MatchScore
from alphazero.measure.rating import PAIRS_AT_ONCE, Rung, ratings
from alphazero.play.matches.limits import Limit
from alphazero.play.matches.players import Player

PACKAGE = Path(__file__).resolve().parents[1]
PUBLISHED = PACKAGE / "assets" / "ladder.toml"
# A directory with the networks that the ladder names.
DIRECTORY_VARIABLE = "ALPHAZERO_LADDER"
# Beside a checkout of this project.
REFERENCE = PACKAGE.parents[1] / "shared" / "data" / "lc0"
STOCKFISH = "stockfish"
# Where Debian keeps programs that are games: not on every user's PATH.
GAMES = "/usr/games"

VERSION = 1  # of the players and of what is kept of them
SIMULATIONS = (10, 30, 100, 300, 1000, 3000)  # a move
PAIRS = 24  # of games between neighbours
# The score of the first against the second in pairs of games, numbered from the first number on.
PlayPairs: TypeAlias = Callable[[Player, Player, int, int], MatchScore]


@dataclass(frozen=True)
class Ladder:
    """scale: what the ratings mean, a sentence. digest: of estimated ratings, "" of published ones."""

    game: str
    rungs: tuple[Rung, ...]
    scale: str
    digest: str = ""


def read_ladder() -> list[dict[str, Any]]:
    """The opponents of the file, from the lowest."""
    return sorted(read_toml(PUBLISHED).table["rung"], key=lambda rung: float(rung["rating"]))


def published_ladder(directory: Path | None) -> tuple[Ladder, list[str]]:
    """That of chess, as far as this machine has its players, and a line for each file or program missing.

    directory: of networks, as the user gave it; else the variable, else the reference data.
    """
    given = os.environ.get(DIRECTORY_VARIABLE)
    networks = directory or (Path(given) if given else REFERENCE)
    stockfish = shutil.which(STOCKFISH) or shutil.which(STOCKFISH, path=GAMES)
    rungs, missing_files, lacks_stockfish = [], set(), False
    for entry in read_ladder():
        kind, file = entry["kind"], entry.get("file", "")
        if kind == "weights" and not (networks / file).is_file():
            missing_files.add(file)
        elif kind == STOCKFISH and stockfish is None:
            lacks_stockfish = True
        else:
            rungs.append(Rung(_player(entry, stockfish or "", networks), entry["rating"]))
    lines = []
    if missing_files:
        names = ", ".join(sorted(missing_files))
        where = f" in {networks}" if networks != REFERENCE or REFERENCE.is_dir() else ""
        lines.append(f"the ladder lacks {names}: not found{where} (--ladder DIR)")
    if lacks_stockfish:
        lines.append("the ladder lacks Stockfish: no program `stockfish` on PATH")
    scale = f"Elo on the ladder's scale ({page('matches.md')}); the opponents' ratings are taken as exact."
    return Ladder(CHESS, tuple(rungs), scale), lines


def _player(entry: Mapping[str, Any], stockfish: str, networks: Path) -> Player:
    is_engine = entry["kind"] == STOCKFISH
    return Player(
        entry["name"],
        "engine" if is_engine else entry["kind"],
        entry["name"],
        str(networks / entry["file"]) if "file" in entry else "",
        (stockfish,) if is_engine else (),
        options={"Threads": "1", "Hash": "16"} if is_engine else {},
        limit=Limit(nodes=entry.get("nodes")),
        random_share=entry.get("random_share", 0.0),
    )


class EstimatedLadder:
    """The ladder of a game other than chess while it is played."""

    def __init__(self, game: str, directory: Path | None = None) -> None:
        """directory: of the file that keeps the scores, each against the one below; else the user's cache."""
        name = hashlib.sha256(f"{VERSION} {game}".encode()).hexdigest()[:16]
        self._file = (directory or default_cache_directory()) / f"ladder-{name}.json"
        self._game = game
        self._players = [Player("random", "random")]  # from the weakest
        for number in SIMULATIONS:
            self._players.append(Player(f"mcts-{number}", "mcts", limit=Limit(nodes=number)))
        self._scores = {player.name: MatchScore(0, 0, 0) for player in self._players[1:]} | self._kept()

    @property
    def games_left(self) -> int:
        """To be played before the ratings are known."""
        return sum(2 * PAIRS - score.games for score in self._scores.values())

    def estimate(self, play: PlayPairs) -> Ladder:
        """Play the games that are missing; each part is kept as it ends."""
        for low, high in pairwise(self._players):
            while (done := self._scores[high.name].games // 2) < PAIRS:
                self._scores[high.name] += play(high, low, done, min(PAIRS_AT_ONCE, PAIRS - done))
                with contextlib.suppress(OSError):  # where it cannot be kept, it is played again
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                    write_json(self._file, {name: asdict(score) for name, score in self._scores.items()})
        return self._ladder()

    def table(self, ladder: Ladder) -> list[tuple[str, str, str]]:
        """For people: each opponent, its rating, and its games against the one below."""
        rows = [("opponent", "Elo", "against the one above")]
        for rung in ladder.rungs:
            score = self._scores.get(rung.player.name)
            games = "" if score is None else f"+{score.wins} ={score.draws} -{score.losses}"
            rows.append((rung.player.name, f"{rung.rating:.0f}", games))
        return rows

    def _ladder(self) -> Ladder:
        met = {(high, high - 1): score for high, score in enumerate(self._scores.values(), start=1)}
        estimates = ratings(len(self._players), met)
        rungs = tuple(
            Rung(player, round(own.elo - estimates[0].elo, 1))
            for player, own in zip(self._players, estimates, strict=True)
        )
        digest = hashlib.sha256(json.dumps([rung.rating for rung in rungs]).encode()).hexdigest()[:12]
        games = sum(score.games for score in met.values())
        scale = (
            f"Elo in {self._game}: random play is 0 by definition; the other opponents' ratings come from "
            f"{games} games among them ({self._file}) and are taken as exact."
        )
        return Ladder(self._game, rungs, scale, digest)

    def _kept(self) -> dict[str, MatchScore]:
        """What was played before; nothing where the file is absent, damaged or has other players."""
        try:
            kept = from_json(dict[str, MatchScore], read_text(self._file))
        except (OSError, ValueError):
            return {}
        return kept if kept.keys() <= {player.name for player in self._players[1:]} else {}
