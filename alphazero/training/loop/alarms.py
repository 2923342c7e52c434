"""All alarms of a job: which rule looks at what, and when. On rank 0; elsewhere nobody is told.

The desk that all alarms of a job pass: three intervals in a row, once per cause and hour, unless muted.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from alphazero.training.loop.alarm_rules import (
    LONG_S,
    SHORT_S,
    Alarm,
    Clocks,
    FillingDisk,
    Interval,
    Network,
    Overfitting,
    PolicyEntropy,
    Resignations,
    Throughput,
    look_at_gpus,
    look_at_memory,
    look_at_ranks,
)
from alphazero.training.loop.part_clock import Cause
from alphazero.training.loop.usage import IntervalUsage
from alphazero.training.ranks.batch import BatchPlan

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


# Log intervals are judged together until they last this long: a busy moment is no trouble.
SHORTEST_INTERVAL_S = 10.0


class JobAlarms:
    """Remembers what its rules compare with, from the start of this process to its end.

    num_steps: of the run. clock: seconds that are never set back.
    """

    def __init__(
        self,
        desk: AlarmDesk | None = None,
        num_steps: int = 0,
        hosts_R: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.desk = desk or silent_desk()
        self._num_steps = num_steps
        self._hosts_R = hosts_R
        self._clock = clock
        self._began: tuple[int, float] | None = None  # the step and the moment of the first interval
        self._pending: Interval | None = None
        self._played_s = self._evaluations = 0.0  # of generations that are judged together
        self._training_sums: Counter[str] = Counter()
        self._training_steps = 0
        self._speed = Throughput("positions/s", "training")
        self._games_speed = Throughput("evaluations/s", "self-play")
        self._disks = {"disk": FillingDisk(SHORT_S), "disk by the hour": FillingDisk(LONG_S)}
        self._clocks, self._network = Clocks(), Network()
        self._overfitting, self._entropy, self._resignations = Overfitting(), PolicyEntropy(), Resignations()

    def look_at_interval(
        self, step: int, steps: int, seconds: float, usage: IntervalUsage, plan: BatchPlan
    ) -> None:
        """One more log interval: `steps` that ended with number `step`."""
        found = [] if usage.busy is None else look_at_gpus(usage.busy, usage.waits, usage.where)
        self.desk.look("gpus", "log intervals", found)
        passes_R = tuple(steps * passes for passes in plan.passes)
        remaining_s = self._remaining_s(step)
        positions = steps * plan.batch_size
        interval = Interval(steps, positions, seconds, usage.work_s_R, passes_R, usage.hosts, remaining_s)
        self._pending = self._pending.followed_by(interval) if self._pending else interval
        if self._pending.seconds >= SHORTEST_INTERVAL_S:
            interval, self._pending = self._pending, None
            self._judge(interval)

    def _judge(self, interval: Interval) -> None:
        hosts = list(interval.hosts)
        by_watch = {
            "speed": self._speed.look(interval.positions / interval.seconds),
            "ranks": look_at_ranks(interval.work_s_R, interval.passes_R, self._hosts_R),
            "memory": look_at_memory(hosts),
            "clock": self._clocks.look(hosts, interval.seconds / interval.steps),
            "network": self._network.look(hosts),
        }
        for watch, found in by_watch.items():
            self.desk.look(watch, "intervals", found)
        for watch, disk in self._disks.items():
            filling = disk.look(hosts, interval.remaining_s)
            if filling is not None:
                self.desk.look(watch, "intervals", filling)

    def note_training(self, figures: Mapping[str, float]) -> None:
        """The figures of one more step, which the next validation is compared with."""
        self._training_sums.update({name: value for name, value in figures.items() if name.endswith("_loss")})
        self._training_steps += 1

    def look_at_validation(self, step: int, figures: Mapping[str, float]) -> None:
        """One more validation, of the same positions as those before."""
        count = max(1, self._training_steps)
        training = {name: total / count for name, total in self._training_sums.items()}
        self._training_sums, self._training_steps = Counter(), 0
        self.desk.look("overfitting", "validations", self._overfitting.look(step, figures, training))

    def look_at_generation(self, figures: Mapping[str, float], busy: float | None) -> None:
        """One more generation of self-play. busy: as of an interval, while it was played."""
        found = [] if busy is None else look_at_gpus(busy, {Cause.SELF_PLAY: 1.0})
        self.desk.look("gpus of self-play", "generations", found)
        self._played_s += figures["seconds"]
        self._evaluations += figures["seconds"] * figures["evaluations_per_s"]
        if self._played_s >= SHORTEST_INTERVAL_S:
            rate, self._played_s, self._evaluations = self._evaluations / self._played_s, 0.0, 0.0
            self.desk.look("speed of self-play", "intervals", self._games_speed.look(rate))
        if figures.get("positions"):
            self.desk.look("entropy", "generations", self._entropy.look(figures["policy_entropy"]))
        if "wrong_resignations" in figures:
            wrong, checked = figures["wrong_resignations"], int(figures["checked_resignations"])
            self.desk.look("resignations", "generations", self._resignations.look(wrong, checked))

    def _remaining_s(self, step: int) -> float:
        """Until the last step, by all the time since the first interval, whatever it went into."""
        now = self._clock()
        if self._began is None:
            self._began = (step, now)
            return math.inf
        began, then = self._began
        return (self._num_steps - step) * (now - then) / max(1, step - began)
