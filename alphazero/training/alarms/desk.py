"""The desk that all alarms of a job pass: three intervals in a row, once per cause and hour, unless muted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from alphazero.training.alarms.alarm import Alarm

IN_A_ROW = 3
QUIET_S = 3600.0  # between two alarms of the same cause
KIND = "alarm"  # of the event in the metrics


class AlarmDesk:
    """Decides which findings people hear of.

    say: gets a line. record: gets the kind and the fields of an event of the metrics. muted: causes that are
    not told. clock: seconds that are never set back. Any thread may call.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        record: Callable[[str, Mapping[str, str | float]], None],
        muted: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._record = record
        self._muted = frozenset(muted)
        self._clock = clock
        self._in_a_row: dict[str, dict[tuple[str, str], int]] = {}
        self._said_at: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def look(self, watch: str, intervals: str, found: Sequence[Alarm]) -> None:
        """One more interval of `watch`: what was found in it. What is not found again has ended.

        intervals: what they are called, as "log intervals".
        """
        before = self._in_a_row.get(watch, {})
        counts: dict[tuple[str, str], int] = {}
        for alarm in found:
            key = (alarm.cause, alarm.subject)
            counts[key] = before.get(key, 0) + 1
            if counts[key] >= IN_A_ROW:
                self._tell(alarm, f", for {counts[key]} {intervals} in a row")
        self._in_a_row[watch] = counts

    def tell(self, alarm: Alarm) -> None:
        """What is wrong however long it lasts: told at once, unless it is muted or was told."""
        self._tell(alarm, "")

    def _tell(self, alarm: Alarm, lasting: str) -> None:
        key = (alarm.cause, alarm.reason)
        with self._lock:
            now = self._clock()
            is_quiet = now - self._said_at.get(key, now - QUIET_S) < QUIET_S
            if is_quiet or alarm.cause in self._muted:
                return
            self._said_at[key] = now
        text = f"{alarm.text}{lasting}"
        self._say(f"alarm {alarm.cause}: {text}; what to do: {alarm.advice}")
        self._record(KIND, {"cause": alarm.cause, "text": text, "advice": alarm.advice})


def silent_desk() -> AlarmDesk:
    """Of the ranks that tell nobody: all but rank 0."""
    return AlarmDesk(lambda line: None, lambda kind, fields: None)
