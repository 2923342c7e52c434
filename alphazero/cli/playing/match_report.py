"""The output of `alphazero match`: the score on the way, and the result."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tqdm import tqdm

from alphazero.base.text import counted, table
from alphazero.measure.elo import MatchScore, Sprt
from alphazero.measure.match import Scoreboard
from alphazero.measure.rating import Rating, ratings
from alphazero.play.matches.game import Ending, FinishedGame


class MatchReport:
    """Counts games and prints the score; with a test it decides when to stop."""

    def __init__(self, names: Sequence[str], test: Sprt | None, interval: int) -> None:
        """interval: pairs of games between two lines of the score."""
        self.board = Scoreboard()
        self._names = names
        self._test = test
        self._interval = interval
        self._bar: tqdm[NoReturn] | None = None

    @contextlib.contextmanager
    def progress(self, games: int) -> Iterator[None]:
        """A bar of so many games on stderr, where that is a terminal."""
        with tqdm(total=games, unit="game", file=sys.stderr, leave=False, disable=None) as bar:
            self._bar = bar
            try:
                yield
            finally:
                self._bar = None

    def say(self, line: str) -> None:
        """A line on stderr, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(line, file=sys.stderr, flush=True)

    def take(self, game: FinishedGame) -> bool:
        """Count a game, print the score at intervals; returns whether the match continues."""
        self.board.add(game)
        if self._bar is not None:
            self._bar.update()
        if len(self._names) == 2 and self.board.games % (2 * self._interval) == 0:
            self.say(self._score_line(self.board.score(0, 1)))
            if self._test is not None:
                self.say(sprt_line(self._test, self.board.in_order(0, 1)))
        return self._test is None or self._test.decide(self.board.in_order(0, 1).pairs) == "continue"

    @property
    def score(self) -> MatchScore:
        """The first player's, of two: with a test that of the pairs it was decided by."""
        return self.board.in_order(0, 1) if self._test is not None else self.board.score(0, 1)

    def to_text(self) -> str:
        """The result for people."""
        if len(self._names) > 2:
            return "\n".join(self._tournament_lines())
        score, (first, second) = self.score, self._names
        lines = [
            f"{first} against {second}: +{score.wins} ={score.draws} -{score.losses}, "
            f"{score.share:.1%} of the points",
            *elo_lines(score),
        ]
        if self._test is not None:
            lines += [sprt_line(self._test, score), self._verdict(self._test, score)]
            if left := self.board.games - score.games:
                lines.append(f"({counted(left, 'game')} after the decision not counted)")
        return "\n".join([*lines, *self._failures()])

    def to_json(self) -> str:
        """The result for programs. pairs: how many gave 0, 1/2, 1, 3/2 and 2 points."""
        if len(self._names) == 2:
            return json.dumps(
                {"players": list(self._names), **score_json(self.score), "sprt": self._sprt_json()}
            )
        found = self._ratings()
        standings = [
            {
                "name": name,
                "rating": rating.elo,
                "rating_95": [rating.low, rating.high],
                **counts_json(self.board.total(number)),
            }
            for number, (name, rating) in enumerate(zip(self._names, found, strict=True))
        ]
        met = [
            {"players": [self._names[low], self._names[high]], **score_json(self.board.score(low, high))}
            for low, high in self.board.met
        ]
        return json.dumps({"players": list(self._names), "standings": standings, "meetings": met})

    def _sprt_json(self) -> dict[str, Any] | None:
        if self._test is None:
            return None
        pairs = self.score.pairs
        return {
            "elo": [self._test.elo0, self._test.elo1],
            "model": self._test.model,
            "log_likelihood_ratio": self._test.log_likelihood_ratio(pairs),
            "bounds": self._test.bounds,
            "decision": self._test.decide(pairs),
        }

    def _ratings(self) -> list[Rating]:
        return ratings(len(self._names), {met: self.board.score(*met) for met in self.board.met})

    def _tournament_lines(self) -> Iterator[str]:
        found = self._ratings()
        rows = [("rank", "name", "Elo", "95 %", "games", "score", "draws", "ptnml(0-2)")]
        order = sorted(range(len(found)), key=lambda number: -found[number].elo)
        for rank, number in enumerate(order, start=1):
            rating, total = found[number], self.board.total(number)
            rows.append(
                (
                    str(rank),
                    self._names[number],
                    f"{rating.elo:+.0f}",
                    f"{rating.low:+.0f} to {rating.high:+.0f}",
                    str(total.games),
                    f"{total.share:.1%}",
                    f"{total.draws / max(1, total.games):.0%}",
                    str(list(total.pairs)),
                )
            )
        yield from table(rows, "rlrrrrrr")
        yield "Ratings by Bradley-Terry (a draw is half a win), their mean 0."
        yield from self._failures()

    def _failures(self) -> Iterator[str]:
        """Players that lost by forfeits."""
        usual = {Ending.NORMAL.value, Ending.ADJUDICATION.value}
        for number, name in enumerate(self._names):
            failed = {
                ending: count for ending, count in self.board.losses(number).items() if ending not in usual
            }
            if failed:
                losses = ", ".join(f"{count} by {ending}" for ending, count in sorted(failed.items()))
                yield f"{name} lost {losses}"

    def _score_line(self, score: MatchScore) -> str:
        estimate = score.elo()
        half = (estimate.high - estimate.low) / 2
        return (
            f"{counted(score.games, 'game')}: +{score.wins} ={score.draws} -{score.losses} "
            f"({score.share:.1%}), "
            f"Elo {estimate.elo:+.1f} +/- {half:.1f}, LOS {estimate.superiority:.1%}, "
            f"Ptnml(0-2) {list(score.pairs)}"
        )

    def _verdict(self, test: Sprt, score: MatchScore) -> str:
        return {
            "H1": f"SPRT: at least {test.elo1:g} Elo accepted (H1)",
            "H0": f"SPRT: at most {test.elo0:g} Elo accepted (H0)",
            "continue": "SPRT: not decided; expected more --games",
        }[test.decide(score.pairs)]


def elo_lines(score: MatchScore) -> Iterator[str]:
    """Elo with its interval; how the pairs went."""
    estimate = score.elo()
    yield (
        f"Elo {estimate.elo:+.1f} (95 %: {estimate.low:+.1f} to {estimate.high:+.1f}), "
        f"likelihood of superiority {estimate.superiority:.1%}"
    )
    normalized = score.normalized_elo()
    if normalized is not None:
        yield f"nElo {normalized[0]:+.1f} +/- {normalized[1]:.1f}, Ptnml(0-2): {list(score.pairs)}"


def sprt_line(test: Sprt, score: MatchScore) -> str:
    """As fastchess prints it."""
    ratio, (lower, upper) = test.log_likelihood_ratio(score.pairs), test.bounds
    share = ratio / upper if ratio >= 0 else -ratio / lower
    return f"LLR: {ratio:.2f} ({share:.1%}) ({lower:.2f}, {upper:.2f}) [{test.elo0:.2f}, {test.elo1:.2f}]"


def counts_json(score: MatchScore) -> dict[str, Any]:
    """Games and pairs."""
    return {
        "wins": score.wins,
        "draws": score.draws,
        "losses": score.losses,
        "pairs": score.pairs,
        "share": score.share,
    }


def score_json(score: MatchScore) -> dict[str, Any]:
    """The same with Elo."""
    estimate, normalized = score.elo(), score.normalized_elo()
    return {
        **counts_json(score),
        "elo": estimate.elo,
        "elo_95": [estimate.low, estimate.high],
        "normalized_elo": normalized and normalized[0],
        "superiority": estimate.superiority,
    }
