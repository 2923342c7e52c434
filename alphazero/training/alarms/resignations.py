"""Sides that resign games they would not have lost, by the games that are played to the end all the same."""

from __future__ import annotations

from collections import deque

from alphazero.training.alarms.alarm import Alarm

CAUSE = "resignations"
# AlphaGo Zero's threshold kept the games that could have been won below 5 % (Silver et al. 2017, Methods);
# here draws count as well.
MOST_WRONG = 0.05
# Checked games behind a judgement: with fewer a single one decides.
LEAST_GAMES = 20
MOST_GENERATIONS = 50


class Resignations:
    """Adds up the games of the newest generations until there are enough."""

    def __init__(self) -> None:
        self._newest: deque[tuple[int, int]] = deque(maxlen=MOST_GENERATIONS)

    def look(self, wrong_share: float, checked: int) -> list[Alarm]:
        """Judge by one more generation: of its `checked` games this share was resigned wrongly."""
        self._newest.append((round(wrong_share * checked), checked))
        wrong = games = 0
        for one_wrong, one_checked in reversed(self._newest):
            wrong, games = wrong + one_wrong, games + one_checked
            if games >= LEAST_GAMES:
                break
        if games < LEAST_GAMES or wrong <= MOST_WRONG * games:
            return []
        return [
            Alarm(
                CAUSE,
                f"of {games:,} games that one side would have resigned and that were played on, it did not "
                f"lose {wrong:,} ({wrong / games:.1%}, limit {MOST_WRONG:.0%}): games that end by "
                "resignation teach wrong results",
                "a --resign-threshold nearer to 1, or 0 (never resign) until the value head is better",
            )
        ]
