"""The alarms of a job: which figures reach which rule, and which findings are reported, on rank 0."""

from __future__ import annotations

import math
import operator
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from alphazero.training.loop.alarm_rules import (
    Alarm,
    FillingDisk,
    HeadLoss,
    judge_clocks,
    judge_entropy,
    judge_fill,
    judge_gpus,
    judge_memory,
    judge_network,
    judge_ranks,
    judge_rate,
    judge_resignations,
    judge_validation,
)
from alphazero.training.loop.part_clock import Cause
from alphazero.training.loop.usage import HostNow, IntervalUsage
from alphazero.training.ranks.batch import BatchPlan

IN_A_ROW = 3
QUIET_S = 3600.0  # between two alarms of the same cause
KIND = "alarm"  # of the event in the metrics
# Log intervals are judged together until they last this long: a busy moment is no trouble.
SHORTEST_INTERVAL_S = 10.0
# Their sums: steps, seconds, and by rank seconds of work and micro-batches.
NO_STRETCH: tuple[Any, ...] = (0, 0.0, 0.0, 0)
MOST_RATES = 1000
MOST_GENERATIONS = 50


class AlarmDesk:
    """Reports what is found in several intervals in a row, once per cause and hour, unless it is muted.

    say: takes a line. record: takes the kind and the fields of an event of the metrics. The defaults report
    nothing, as on all ranks but rank 0. clock: monotonic seconds. Any thread may call.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda line: None,
        record: Callable[[str, Mapping[str, str | float]], None] = lambda kind, fields: None,
        muted: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._record = record
        self._muted = frozenset(muted)
        self._clock = clock
        self._in_a_row: dict[str, dict[tuple[str, str], int]] = {}
        self._reported_at: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def look(self, watch: str, intervals: str, found: Sequence[Alarm]) -> None:
        """Take what was found in one more interval of `watch`. What is not found again has ended.

        intervals: their name, as "log intervals".
        """
        before = self._in_a_row.get(watch, {})
        counts: dict[tuple[str, str], int] = {}
        for alarm in found:
            key = (alarm.cause, alarm.subject)
            counts[key] = before.get(key, 0) + 1
            if counts[key] >= IN_A_ROW:
                self.report(alarm, f", for {counts[key]} {intervals} in a row")
        self._in_a_row[watch] = counts

    def report(self, alarm: Alarm, lasting: str = "") -> None:
        """Report an alarm at once, unless it is muted or was reported within the hour."""
        key = (alarm.cause, alarm.reason)
        with self._lock:
            now = self._clock()
            is_quiet = now - self._reported_at.get(key, now - QUIET_S) < QUIET_S
            if is_quiet or alarm.cause in self._muted:
                return
            self._reported_at[key] = now
        text = f"{alarm.text}{lasting}"
        self._say(f"alarm {alarm.cause}: {text}; what to do: {alarm.advice}")
        self._record(KIND, {"cause": alarm.cause, "text": text, "advice": alarm.advice})


class JobAlarms:
    """Passes a job's figures to the rules and keeps what they compare with, while this process runs.

    num_steps: of the run. hosts_R: the host of each rank. clock: monotonic seconds.
    """

    def __init__(
        self,
        desk: AlarmDesk | None = None,
        num_steps: int = 0,
        hosts_R: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.desk = desk or AlarmDesk()
        self._num_steps = num_steps
        self._hosts_R = hosts_R
        self._clock = clock
        self._began: tuple[int, float] | None = None  # the step and the moment of the first interval
        self._stretch = NO_STRETCH
        self._played_s = self._evaluations = 0.0  # of generations that are judged together
        self._training_sums: Counter[str] = Counter()
        self._training_steps = 0
        self._rates: deque[float] = deque(maxlen=MOST_RATES)
        self._game_rates: deque[float] = deque(maxlen=MOST_RATES)
        # A disk that fills now, and one that fills by a checkpoint every so often.
        self._disks = {"disk": FillingDisk(), "disk by the hour": FillingDisk(every_s=3600.0)}
        self._hosts: dict[str, HostNow] = {}  # at the reading before
        self._best: dict[str, HeadLoss] = {}
        self._most_entropy = 0.0
        self._resignations: deque[tuple[int, int]] = deque(maxlen=MOST_GENERATIONS)

    def look_at_interval(
        self, step: int, steps: int, seconds: float, usage: IntervalUsage, plan: BatchPlan
    ) -> None:
        """Judge one more log interval: `steps` that ended with number `step`."""
        found = [] if usage.busy is None else judge_gpus(usage.busy, usage.waits, usage.where)
        self.desk.look("gpus", "log intervals", found)
        remaining_s = self._remaining_s(step)
        own = (steps, seconds, np.array(usage.work_s_R), steps * np.array(plan.passes))
        self._stretch = tuple(map(operator.add, self._stretch, own))
        steps, seconds, work_s_R, passes_R = self._stretch
        if seconds < SHORTEST_INTERVAL_S:
            return
        self._stretch = NO_STRETCH
        rate, hosts = steps * plan.batch_size / seconds, usage.hosts
        by_watch: dict[str, list[Alarm] | None] = {
            "speed": judge_rate(self._rates, rate, "positions/s", "training"),
            "ranks": judge_ranks(work_s_R.tolist(), passes_R.tolist(), self._hosts_R),
            "memory": judge_memory(hosts),
            "clock": judge_clocks(hosts, self._hosts, seconds / steps),
            "network": judge_network(hosts, self._hosts),
            **{watch: disk.judge(hosts, remaining_s) for watch, disk in self._disks.items()},
        }
        self._hosts |= {now.host: now for now in hosts}
        for watch, alarms in by_watch.items():
            if alarms is not None:
                self.desk.look(watch, "intervals", alarms)

    def note_training(self, figures: Mapping[str, float]) -> None:
        """Add the figures of one more step, which the next validation is compared with."""
        self._training_sums.update({name: value for name, value in figures.items() if name.endswith("_loss")})
        self._training_steps += 1

    def look_at_validation(self, step: int, figures: Mapping[str, float]) -> None:
        """Judge one more validation, of the same positions as those before."""
        count = max(1, self._training_steps)
        training = {name: total / count for name, total in self._training_sums.items()}
        self._training_sums, self._training_steps = Counter(), 0
        self.desk.look("overfitting", "validations", judge_validation(self._best, step, figures, training))

    def look_at_generation(self, figures: Mapping[str, float], busy: float | None) -> None:
        """Judge one more generation of self-play. busy: the share of the time in which GPUs computed."""
        found = [] if busy is None else judge_gpus(busy, {Cause.SELF_PLAY: 1.0})
        self.desk.look("gpus of self-play", "generations", found)
        if "batch_fill" in figures:
            self.desk.look("batches of self-play", "generations", judge_fill(figures["batch_fill"]))
        self._played_s += figures["seconds"]
        self._evaluations += figures["seconds"] * figures["evaluations_per_s"]
        if self._played_s >= SHORTEST_INTERVAL_S:
            rate, self._played_s, self._evaluations = self._evaluations / self._played_s, 0.0, 0.0
            found = judge_rate(self._game_rates, rate, "evaluations/s", "self-play")
            self.desk.look("speed of self-play", "intervals", found)
        if figures.get("positions"):
            nats = figures["policy_entropy"]
            self._most_entropy = max(self._most_entropy, nats)
            self.desk.look("entropy", "generations", judge_entropy(nats, self._most_entropy))
        if "wrong_resignations" in figures:
            checked = int(figures["checked_resignations"])
            self._resignations.append((round(figures["wrong_resignations"] * checked), checked))
            self.desk.look("resignations", "generations", judge_resignations(self._resignations))

    def _remaining_s(self, step: int) -> float:
        """Until the last step, by all the time since the first interval, pauses included."""
        now = self._clock()
        if self._began is None:
            self._began = (step, now)
            return math.inf
        began, then = self._began
        return (self._num_steps - step) * (now - then) / max(1, step - began)
