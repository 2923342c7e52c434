"""The output of `alphazero match`: a line per game, the score on the way, and the result."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from alphazero.base.text import counted, signed, table
from alphazero.measure.elo import MatchScore, Sprt
from alphazero.measure.match import Scoreboard
from alphazero.measure.rating import Rating, ratings
from alphazero.play.matches.game import Ending, FinishedGame
from alphazero.play.matches.limits import clock_text
from alphazero.play.matches.record import RESULTS


class MatchReport:
    """Counts games and prints the score; with a test it decides when to stop."""

    def __init__(
        self,
        names: Sequence[str],
        games: int,
        test: Sprt | None,
        interval: int,
        before: Iterable[FinishedGame],
    ) -> None:
        """games: of the whole match. interval: pairs between two lines of the score. before: games played."""
        self.board = Scoreboard()
        self._names = names
        self._games = games
        self._test = test
        self._interval = interval
        for game in before:
            self.board.add(game)
        self._before = self.board.games
        self._shown = self._intervals()
        self._started_s = time.monotonic()

    def say(self, line: str) -> None:
        """A line on stderr."""
        print(line, file=sys.stderr, flush=True)

    def take(self, game: FinishedGame) -> bool:
        """Count a game, print it, and the score at intervals; returns whether the match continues."""
        self.board.add(game)
        self.say(self._game_line(game))
        if len(self._names) == 2 and (shown := self._intervals()) > self._shown:
            self._shown = shown
            self.say(score_line(self.score))
            if self._test is not None:
                self.say(sprt_line(self._test, self.score))
        return not self.is_decided

    @property
    def is_decided(self) -> bool:
        """Whether the test has accepted a hypothesis."""
        return self._test is not None and self._test.decide(self.score.pairs) != "continue"

    @property
    def score(self) -> MatchScore:
        """The first player's, of two: complete pairs, with a test those it was decided by."""
        return self.board.in_order(0, 1) if self._test is not None else self.board.score(0, 1)

    def _intervals(self) -> int:
        return sum(self.score.pairs) // self._interval if len(self._names) == 2 else 0

    def _game_line(self, game: FinishedGame) -> str:
        """Result, score of the two, and time left."""
        pairing = game.pairing
        low, high = sorted((pairing.first, pairing.second))
        first, second = self._names[pairing.first], self._names[pairing.second]
        points = self.board.points(low, high)
        hours = (time.monotonic() - self._started_s) / 3600
        rate = (self.board.games - self._before) / max(hours, 1e-9)
        left = self._games - self.board.games
        at_most = "at most " if self._test is not None else ""
        return (
            f"Game {pairing.number} of {self._games} ({first} vs {second}): {RESULTS[game.points]} "
            f"{{{game.reason}}}, {counted(game.plies, 'ply', 'plies')}; "
            f"{self._names[low]} {_points_text(points)}; {rate:,.0f} games/h"
            + (f", {at_most}{clock_text(3600 * left / rate)} left" if left else "")
        )

    def to_text(self) -> str:
        """The result for people."""
        lines = self._tournament_lines() if len(self._names) > 2 else self._lines_of_two()
        return "\n".join([*lines, *self._failures()])

    def to_json(self) -> str:
        """The result for programs. pairs: how many gave 0, 1/2, 1, 3/2 and 2 points."""
        report: dict[str, Any] = {"players": list(self._names)}
        if len(self._names) > 2:
            report["standings"] = [
                {
                    "name": name,
                    "rating": rating.elo,
                    "rating_95": [rating.low, rating.high],
                    **_counts_json(self.board.total(number)),
                }
                for number, (name, rating) in enumerate(zip(self._names, self._ratings(), strict=True))
            ]
            report["meetings"] = [
                {"players": [self._names[low], self._names[high]], **_score_json(self.board.score(low, high))}
                for low, high in self.board.met
            ]
        else:
            report |= _score_json(self.score)
            report["not_counted"] = self.board.games - self.score.games
            report["sprt"] = self._test and {
                "elo": [self._test.elo0, self._test.elo1],
                "model": self._test.model,
                "log_likelihood_ratio": self._test.log_likelihood_ratio(self.score.pairs),
                "bounds": self._test.bounds,
                "decision": self._test.decide(self.score.pairs),
            }
        return json.dumps(report)

    def _lines_of_two(self) -> Iterator[str]:
        score, (first, second) = self.score, self._names
        yield f"{first} against {second}: {score_line(score)}"
        if (test := self._test) is not None:
            yield sprt_line(test, score)
            yield {
                "H1": f"SPRT: at least {test.elo1:g} {test.unit} accepted (H1)",
                "H0": f"SPRT: at most {test.elo0:g} {test.unit} accepted (H0)",
                "continue": "SPRT: not decided; expected more --games",
            }[test.decide(score.pairs)]
        if left := self.board.games - score.games:
            why = "after the decision" if self.is_decided else "whose pairs, or earlier ones, are incomplete"
            yield f"({counted(left, 'game')} {why} not counted)"

    def _ratings(self) -> list[Rating]:
        return ratings(len(self._names), {met: self.board.score(*met) for met in self.board.met})

    def _tournament_lines(self) -> Iterator[str]:
        rows = [("rank", "name", "Elo", "95 %", "games", "score", "draws", "ptnml(0-2)")]
        ranking = sorted(enumerate(self._ratings()), key=lambda item: -item[1].elo)
        for rank, (number, rating) in enumerate(ranking, start=1):
            total = self.board.total(number)
            interval = f"{signed(rating.low)} to {signed(rating.high)}"
            share, draws = f"{total.share:.1%}", f"{total.draws / max(1, total.games):.0%}"
            elo, games, pairs = signed(rating.elo), str(total.games), str(list(total.pairs))
            rows.append((str(rank), self._names[number], elo, interval, games, share, draws, pairs))
        yield from table(rows, "rlrrrrrr")
        yield "Ratings by Bradley-Terry (a draw is half a win), their mean 0."

    def _failures(self) -> Iterator[str]:
        """Players that lost by forfeits."""
        usual = {Ending.NORMAL.value, Ending.ADJUDICATION.value}
        for number, name in enumerate(self._names):
            lost = sorted(self.board.losses(number).items())
            if failed := [f"{count} by {ending}" for ending, count in lost if ending not in usual]:
                yield f"{name} lost {', '.join(failed)}"


def _points_text(score: MatchScore) -> str:
    """+9 =3 -8 (52.5%)."""
    return f"+{score.wins} ={score.draws} -{score.losses} ({score.share:.1%})"


def score_line(score: MatchScore) -> str:
    """All figures of complete pairs."""
    estimate, normalized = score.elo(), score.normalized_elo()
    elo, low, high = (signed(value, 1) for value in (estimate.elo, estimate.low, estimate.high))
    nelo = "unknown" if normalized is None else f"{signed(normalized[0], 1)} +/- {normalized[1]:.1f}"
    return (
        f"{counted(score.games, 'game')} in {counted(sum(score.pairs), 'pair')}: {_points_text(score)}, "
        f"Elo {elo} (95 %: {low} to {high}), nElo {nelo}, LOS {estimate.superiority:.1%}, "
        f"Ptnml(0-2) {list(score.pairs)}"
    )


def sprt_line(test: Sprt, score: MatchScore) -> str:
    """As fastchess prints it, and the unit of the two strengths."""
    ratio, (lower, upper) = test.log_likelihood_ratio(score.pairs), test.bounds
    share = ratio / upper if ratio >= 0 else -ratio / lower
    return (
        f"LLR: {ratio:.2f} ({share:.1%}) ({lower:.2f}, {upper:.2f}) "
        f"[{test.elo0:.2f}, {test.elo1:.2f}] {test.unit}"
    )


def _counts_json(score: MatchScore) -> dict[str, Any]:
    return {**asdict(score), "share": score.share}


def _score_json(score: MatchScore) -> dict[str, Any]:
    estimate, normalized = score.elo(), score.normalized_elo()
    return {
        **_counts_json(score),
        "elo": estimate.elo,
        "elo_95": [estimate.low, estimate.high],
        "normalized_elo": normalized and normalized[0],
        "superiority": estimate.superiority,
    }
