"""A piece of work that takes a while: how far it is, how fast, how long it still takes, in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

FIRST_SILENCE_S = 5.0  # until people are told how far it is, where there is no bar


@dataclass
class Work:
    """what: in words, as 'self-play, generation 1'. total: units of it, 0 where nobody knows. note: more
    words for people. left_s: until its end, where somebody knows better than its mean speed, else -1.
    clock: seconds that are never set back.
    """

    what: str
    total: int = 0
    unit: str = ""
    done: int = 0
    note: str = ""
    left_s: float = -1.0
    clock: Callable[[], float] = time.monotonic
    first: int = field(init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.done
        self.started = self.clock()

    def advance(self, done: int, note: str = "") -> None:
        """So many units are done now."""
        self.done = done
        self.note = note or self.note

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self.clock() - self.started

    @property
    def per_second(self) -> float:
        """Units per second since it began, 0 before the first."""
        return (self.done - self.first) / max(self.seconds, 1e-9)

    def line(self) -> str:
        """How it stands."""
        parts = [f"{self.what}: {duration(self.seconds)} so far"]
        if self.unit:
            of = f" of {self.total:,}" if self.total else ""
            parts = [f"{self.what}: {self.done:,}{of} {self.unit}s in {duration(self.seconds)}"]
        if self.per_second and self.left_s < 0:
            rate = self.per_second
            if rate >= 1:
                parts.append(f"{rate:,.3g}/s" if rate < 100 else f"{rate:,.0f}/s")
            else:
                parts.append(f"{1 / rate:,.1f} s per {self.unit}")
        return " | ".join([*parts, *self.remarks()])

    def remarks(self) -> list[str]:
        """What else is known: the note, and how long it still takes."""
        left_s = self.left_s
        if left_s < 0 and self.per_second and self.total:
            left_s = max(0, self.total - self.done) / self.per_second
        parts = [self.note] if self.note else []
        return [*parts, f"about {duration(left_s)} left"] if left_s >= 0 else parts

    def fields(self) -> dict[str, object]:
        """The same for programs."""
        told: dict[str, object] = {"work": self.what, "seconds": round(self.seconds, 1)}
        return told | ({"done": self.done, "total": self.total, "unit": self.unit} if self.unit else {})


def duration(seconds: float) -> str:
    """'8 s', '2 min 10 s', '1:02:03', '3 days, 1:02:03'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return str(timedelta(seconds=whole))
