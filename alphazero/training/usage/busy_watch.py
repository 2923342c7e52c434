"""Warns where GPUs are idle for long, and says what they wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

from alphazero.training.usage.time_shares import Cause

BUSY_ENOUGH = 0.8
IN_A_ROW = 3
QUIET_S = 3600.0  # between two warnings of the same cause

ADVICE = {
    Cause.DATA: "more loader threads (--num-workers), a faster disk for the data, or fewer ranks per host",
    Cause.COMMUNICATION: "a larger --batch-size, and the preflight's table of slow links",
    Cause.HOST: "larger micro-batches (--micro-batch-size) or --compile, and nothing else on these cores",
    Cause.CHECKPOINT: "a longer --checkpoint-interval",
    Cause.SELF_PLAY: "more games at a time (--lanes), a larger --evaluation-batch, more cores per GPU",
}


class BusyWatch:
    """Looks at one kind of stretches: log intervals of training, or generations of games.

    say: gets a line. clock: seconds that are never set back.
    """

    def __init__(
        self, stretches: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stretches = stretches
        self._say = say
        self._clock = clock
        self._idle_in_a_row = 0
        self._said_at: dict[Cause, float] = {}

    def look(self, busy: float, causes: dict[Cause, float], where: str = "") -> None:
        """One more stretch: `busy` of it the GPUs computed, and `causes` took these shares of it."""
        if busy >= BUSY_ENOUGH:
            self._idle_in_a_row = 0
            return
        self._idle_in_a_row += 1
        cause = max(causes, key=lambda one: causes[one])
        now = self._clock()
        is_quiet = now - self._said_at.get(cause, now - QUIET_S) < QUIET_S
        if self._idle_in_a_row < IN_A_ROW or is_quiet:
            return
        self._said_at[cause] = now
        self._say(
            f"warning: the GPUs were busy {busy:.0%} of the time, below {BUSY_ENOUGH:.0%} for "
            f"{self._idle_in_a_row} {self._stretches} in a row: they wait for {cause.value} "
            f"({causes[cause]:.0%} of the time{where}); what helps: {ADVICE[cause]}"
        )
