"""The limit of a move (nodes, depth, seconds or a clock), and the clock of one game."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass

from alphazero.base.text import quoted

MOST_CLOCK_S = 1e6
MARGIN_S = 0.1  # by which an answer may be late, by default
UNLIMITED = "inf"
EXPECTED = (
    "[moves/]time[+increment], time in seconds or minutes:seconds, as 1+0.05, 40/60 or 3:00+2, or "
    f"{UNLIMITED} for no clock"
)
_CONTROL = re.compile(
    r"(?:(?P<moves>\d+)/)?(?:(?P<minutes>\d+):)?(?P<seconds>\d+(?:\.\d+)?|\.\d+)(?:\+(?P<increment>\d*\.?\d+))?"
)


@dataclass(frozen=True)
class TimeControl:
    """time_s for `moves` moves (0: for the game), and increment_s after each move."""

    time_s: float
    increment_s: float = 0.0
    moves: int = 0

    @classmethod
    def parse(cls, text: str) -> TimeControl | None:
        """As `1+0.05`, `40/60` or `3:00+2`; `inf`: no clock, as fastchess has it.

        Raises argparse.ArgumentTypeError.
        """
        if text == UNLIMITED:
            return None
        match = _CONTROL.fullmatch(text)
        if match is None:
            raise argparse.ArgumentTypeError(f"{quoted(text)}: expected {EXPECTED}")
        seconds = 60.0 * int(match["minutes"] or 0) + float(match["seconds"])
        control = cls(seconds, float(match["increment"] or 0), int(match["moves"] or 0))
        if not 0 < control.time_s + control.increment_s <= MOST_CLOCK_S:
            expected = f"expected more than 0 and at most {MOST_CLOCK_S:,.0f} s"
            raise argparse.ArgumentTypeError(f"{quoted(text)}: {expected}")
        return control

    def __str__(self) -> str:
        """As PGN's TimeControl has it: 40/60+0.6."""
        moves = f"{self.moves}/" if self.moves else ""
        increment = f"+{self.increment_s:.6g}" if self.increment_s else ""
        return f"{moves}{self.time_s:.6g}{increment}"


@dataclass(frozen=True)
class Limit:
    """The limits of a move, all of which hold. margin_s: how late an answer may be."""

    nodes: int | None = None
    depth: int | None = None
    move_time_s: float | None = None
    control: TimeControl | None = None
    margin_s: float = MARGIN_S

    @property
    def is_timed(self) -> bool:
        """Whether time is limited."""
        return self.move_time_s is not None or self.control is not None

    @property
    def is_any(self) -> bool:
        """Whether there is any limit."""
        return self.is_timed or self.nodes is not None or self.depth is not None

    def __str__(self) -> str:
        """As PGN's TimeControl has it, with nodes and plies."""
        parts = [
            str(self.control) if self.control else "",
            f"{self.move_time_s:g}/move" if self.move_time_s is not None else "",
            f"{self.nodes} nodes" if self.nodes is not None else "",
            f"{self.depth} plies" if self.depth is not None else "",
        ]
        return ", ".join(part for part in parts if part) or "-"


class Clock:
    """One side's clock in one game."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        control = limit.control
        # As in fastchess and cutechess, the first move has an increment as well.
        self.left_s = control.time_s + control.increment_s if control else math.inf
        self.moves_to_go = control.moves if control else 0

    @property
    def deadline_s(self) -> float:
        """Seconds from now after which an answer is too late."""
        own = self.limit.move_time_s
        return min(self.left_s, math.inf if own is None else own) + self.limit.margin_s

    def spend(self, elapsed_s: float) -> float:
        """Subtract the time of a move; returns by how many seconds it was late, 0 if in time."""
        late_s = elapsed_s - (self.deadline_s - self.limit.margin_s)
        control = self.limit.control
        if control:
            self.left_s = max(0.0, self.left_s - elapsed_s) + control.increment_s
            if control.moves:
                self.moves_to_go -= 1
                if self.moves_to_go == 0:
                    self.moves_to_go = control.moves
                    self.left_s += control.time_s
        return late_s if late_s > self.limit.margin_s else 0.0


def clock_text(duration_s: float) -> str:
    """A duration as hours:minutes:seconds, 00:01:07."""
    minutes, whole_s = divmod(round(duration_s), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{whole_s:02d}"
