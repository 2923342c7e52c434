"""The ladder of a game: opponents whose ratings are published (chess), or estimated by games among them.

In games other than chess these are random play, 0 by definition, and tree search with random playouts. Each
meets the next stronger one, and all ratings follow by maximum likelihood. The scores are kept in the user's
cache directory: a game's ladder is played once, and one that was interrupted continues.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from alphazero.base.files import read_text, write_json
from alphazero.base.records import from_json
from alphazero.data.store.verification import default_cache_directory
from alphazero.measure import rating
from alphazero.measure.elo import MatchScore
from alphazero.measure.rating import PAIRS_AT_ONCE, Rung, ratings
from alphazero.play.matches.game import CHESS

VERSION = 1
SIMULATIONS = (10, 30, 100, 300, 1000, 3000)  # a move
PAIRS = 24  # of games between neighbours
# The score of the first against the second in pairs of games, numbered from the first number on.
PlayPairs: TypeAlias = Callable[[Rung, Rung, int, int], MatchScore]


@dataclass(frozen=True)
class Ladder:
    """scale: what the ratings mean, a sentence. digest: of estimated ratings, "" of published ones."""

    game: str
    rungs: tuple[Rung, ...]
    scale: str
    digest: str = ""


def published_ladder(directory: Path | None) -> tuple[Ladder, list[str]]:
    """That of chess, as far as this machine has its players, and a line for each that is missing.

    directory: of networks, as the user gave it.
    """
    rungs, missing = rating.find_rungs(rating.read_ladder(), directory)
    scale = "Elo on the ladder's scale (docs/matches.md); the opponents' ratings are taken as exact."
    return Ladder(CHESS, tuple(rungs), scale), missing


def playout_rungs() -> tuple[Rung, ...]:
    """The opponents of a game other than chess, from the weakest, without ratings."""
    searches = [Rung(f"mcts-{number}", "mcts", 0.0, nodes=number) for number in SIMULATIONS]
    return (Rung("random", "random", 0.0), *searches)


@dataclass(frozen=True)
class _KeptScores:
    """The file. scores: of each rung against the one below, by name."""

    version: int
    game: str
    scores: dict[str, MatchScore]


class EstimatedLadder:
    """The ladder of a game other than chess while it is played."""

    def __init__(self, game: str, directory: Path | None = None) -> None:
        """directory: of the file that keeps the scores, by default the user's cache."""
        name = hashlib.sha256(game.encode()).hexdigest()[:16]
        self._file = (directory or default_cache_directory()) / f"ladder-{name}.json"
        self._game = game
        self._rungs = playout_rungs()
        self._scores = self._kept()

    @property
    def games_left(self) -> int:
        """To be played before the ratings are known."""
        return 2 * sum(PAIRS - self._score(high).games // 2 for high in self._rungs[1:])

    def estimate(self, play: PlayPairs) -> Ladder:
        """Play the games that are missing; each part is kept as it ends."""
        for low, high in pairwise(self._rungs):
            while (done := self._score(high).games // 2) < PAIRS:
                score = play(high, low, done, min(PAIRS_AT_ONCE, PAIRS - done))
                self._scores[high.name] = self._score(high) + score
                self._keep()
        return self._ladder()

    def table(self, ladder: Ladder) -> list[tuple[str, str, str]]:
        """For people: each opponent, its rating, and its games against the one below."""
        rows = [("opponent", "Elo", "against the one above")]
        for rung in ladder.rungs:
            score = self._score(rung)
            games = f"+{score.wins} ={score.draws} -{score.losses}" if score.games else ""
            rows.append((rung.name, f"{rung.rating:.0f}", games))
        return rows

    def _score(self, high: Rung) -> MatchScore:
        """Of a rung against the one below."""
        return self._scores.get(high.name, MatchScore(0, 0, 0))

    def _ladder(self) -> Ladder:
        met = {(place, place - 1): self._score(rung) for place, rung in enumerate(self._rungs) if place}
        found = ratings(len(self._rungs), met)
        rungs = tuple(
            replace(rung, rating=round(own.elo - found[0].elo, 1))
            for rung, own in zip(self._rungs, found, strict=True)
        )
        digest = hashlib.sha256(json.dumps([rung.rating for rung in rungs]).encode()).hexdigest()[:12]
        games = sum(score.games for score in met.values())
        scale = (
            f"Elo in {self._game}: random play is 0 by definition; the other opponents' ratings come from "
            f"{games} games among them ({self._file}) and are taken as exact."
        )
        return Ladder(self._game, rungs, scale, digest)

    def _kept(self) -> dict[str, MatchScore]:
        """What was played before; nothing where the file is absent, damaged or of another version."""
        try:
            kept = from_json(_KeptScores, read_text(self._file))
        except (OSError, ValueError):
            return {}
        names = {rung.name for rung in self._rungs[1:]}
        if (kept.version, kept.game) != (VERSION, self._game) or not kept.scores.keys() <= names:
            return {}
        return kept.scores if all(map(_is_whole, kept.scores.values())) else {}

    def _keep(self) -> None:
        """Where it cannot be kept, it is played again the next time."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, asdict(_KeptScores(VERSION, self._game, self._scores)))
        except OSError:
            pass


def _is_whole(score: MatchScore) -> bool:
    """Whether the games are these pairs, and no more than are played."""
    counts = (score.wins, score.draws, score.losses, *score.pairs)
    points = sum(place * count for place, count in enumerate(score.pairs))
    return (
        len(score.pairs) == 5
        and min(counts) >= 0
        and score.games == 2 * sum(score.pairs) <= 2 * PAIRS
        and points == 2 * score.wins + score.draws
    )
