"""Two players on the same solved positions: the difference of their shares of errors, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.evaluation.elo import Z_95


@dataclass(frozen=True)
class PairedErrors:
    """Positions by who errs there. What both do right or both do wrong says nothing of their difference."""

    positions: int
    both: int
    only_first: int
    only_second: int

    @property
    def difference(self) -> float:
        """The second player's share of errors minus the first's."""
        return (self.only_second - self.only_first) / self.positions

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the difference's 95 % interval, by the variance of pairs.

        One position is added to each count of those where only one errs (Bonett and Price 2012), so that
        a few positions, or none, do not make it certain.
        """
        total = self.positions + 2
        first, second = (self.only_first + 1) / total, (self.only_second + 1) / total
        middle = second - first
        radius = Z_95 * math.sqrt((first + second - middle**2) / total)
        return max(-1.0, middle - radius), min(1.0, middle + radius)


def paired_errors(first: Sequence[bool], second: Sequence[bool]) -> PairedErrors:
    """Of two players' errors on the same positions, in the same order."""
    pairs = list(zip(first, second, strict=True))
    return PairedErrors(
        len(pairs), pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))
    )
