"""Alarms: what is judged of an interval of work, by which limit, what is reported and what to do about it."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from alphazero.machine.memory import CRITICAL_SHARE, LOW_SHARE

GIB = 1 << 30
IN_A_ROW = 3  # intervals in which a condition must hold
QUIET_S = 3600.0  # between two alarms of the same cause
KIND = "alarm"  # of the event in the metrics

# Of the median rate.
LEAST_RATE = 0.7
# Intervals before the first judgement of a rate: the first ones choose kernels and fill caches.
LEAST_HISTORY = 5
MOST_RATES = 1000
# Of the time, in which the GPUs compute.
LEAST_BUSY = 0.8
# Times the median of the other ranks: far over the spread of equal devices, a few percent.
MOST_SLOWER = 1.5
# Seconds per micro-batch: shorter differences are noise.
LEAST_SLOWER_S = 0.002
# Of the disk: ten checkpoints of 20x256 with their optimizer are 4 GiB.
LEAST_FREE_BYTES = 5 * GIB


@dataclass(frozen=True)
class Alarm:
    """What is found in one interval.

    text: the measured value and its limit. advice: what to do. reason: separates alarms of one cause that
    each deserve a line within the hour. subject: the rank or host concerned, which must be the same in all
    intervals in a row.
    """

    cause: str
    text: str
    advice: str
    reason: str = ""
    subject: str = ""


class Alarms:
    """Reports what holds for several intervals in a row, once per cause and hour, unless it is muted.

    say: takes a line. record: takes the kind and the fields of an event of the metrics. clock: monotonic
    seconds. Any thread may call.
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
        self._reported_at: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def take(self, work: str, alarms: Sequence[Alarm]) -> None:
        """Take what was found in one more interval of `work`. What is not found again has ended."""
        before = self._in_a_row.get(work, {})
        counts: dict[tuple[str, str], int] = {}
        for alarm in alarms:
            key = (alarm.cause, alarm.subject)
            counts[key] = before.get(key, 0) + 1
            if counts[key] >= IN_A_ROW:
                self.report(alarm, f", for {counts[key]} intervals in a row")
        self._in_a_row[work] = counts

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


@dataclass
class RateHistory:
    """The rates of earlier intervals of a kind of work. unit: of its rates."""

    work: str
    unit: str
    before: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_RATES))

    def judge(self, rate: float) -> list[Alarm]:
        """Compare with the median of the rates before, and add the rate to them."""
        alarms = []
        if len(self.before) >= LEAST_HISTORY:
            median = statistics.median(self.before)
            if rate < LEAST_RATE * median:
                text = (
                    f"{self.work} runs at {rate:,.0f} {self.unit}, {rate / median:.0%} of the run's median "
                    f"of {median:,.0f} (limit {LEAST_RATE:.0%})"
                )
                advice = (
                    "see what else runs on the hosts (top, nvidia-smi), whether a device is hot or throttled "
                    "(alphazero health), and the shares of time in the log lines"
                )
                alarms.append(Alarm("throughput", text, advice, reason=self.work))
        self.before.append(rate)
        return alarms


IDLE_GPUS_ADVICE = {
    "data": "more loader threads (--num-workers), a faster disk for the data, or fewer ranks per host",
    "communication": "a larger --batch-size, or the interface that the preflight warns about (--interface)",
    "host launches": "larger micro-batches (--micro-batch-size), --compile, and nothing else on these cores",
    "checkpoints": "a longer --checkpoint-interval",
    "self-play": "more games at a time (--lanes), a larger --evaluation-batch, more cores per GPU",
}


def judge_gpus(busy: float, waits: Mapping[str, float], where: str = "") -> list[Alarm]:
    """busy: the share of the time in which the GPUs computed. waits: the shares in which they waited.

    where: whose shares these are, as " on rank 3".
    """
    if busy >= LEAST_BUSY:
        return []
    longest = max(waits, key=lambda cause: waits[cause])
    text = (
        f"the GPUs were busy {busy:.0%} of the time, below {LEAST_BUSY:.0%}: they wait for {longest} "
        f"({waits[longest]:.0%} of the time{where})"
    )
    return [Alarm("idle-gpus", text, IDLE_GPUS_ADVICE[longest], reason=longest)]


def judge_ranks(work_s_R: Sequence[float], passes_R: Sequence[int], hosts_R: Sequence[str]) -> list[Alarm]:
    """The slowest rank where it is much slower than the others.

    work_s_R: seconds that each rank spent on passes, on its loader and between them, without communication.
    passes_R: micro-batches of each rank (unequal weights mean unequal numbers).
    """
    if len(work_s_R) < 2 or not all(passes_R):
        return []
    per_pass_R = [seconds / passes for seconds, passes in zip(work_s_R, passes_R, strict=True)]
    slowest = max(range(len(per_pass_R)), key=lambda rank: per_pass_R[rank])
    others = statistics.median(per_pass_R[:slowest] + per_pass_R[slowest + 1 :])
    own, host = per_pass_R[slowest], hosts_R[slowest]
    if own < MOST_SLOWER * others or own - others < LEAST_SLOWER_S:
        return []
    text = (
        f"rank {slowest} on {host} takes {1000 * own:,.0f} ms per micro-batch, {own / others:.1f} times the "
        f"median of the other ranks ({1000 * others:,.0f} ms), and all of them wait for it"
    )
    advice = (
        f"look at {host}: other programs (top), heat and clocks (alphazero health), a slow disk under the "
        "data; or give its ranks a smaller share with --host-weights"
    )
    return [Alarm("slow-rank", text, advice, subject=f"rank {slowest}")]


def judge_disk(host: str, free_bytes: float) -> list[Alarm]:
    """Too little room on the disk of the run directory."""
    if free_bytes >= LEAST_FREE_BYTES:
        return []
    text = (
        f"the disk of the run directory on {host} has {free_bytes / GIB:,.1f} GiB left, below "
        f"{LEAST_FREE_BYTES / GIB:.0f} GiB"
    )
    advice = "make room there, fewer --keep-checkpoints, or a --runs-dir on a larger disk"
    return [Alarm("disk", text, advice, subject=host)]


def judge_memory(host: str, available_bytes: float, total_bytes: float) -> list[Alarm]:
    """Too little memory available, a container's limit counted."""
    # Below LOW_SHARE the page cache goes, and with it the loader's speed.
    if available_bytes >= LOW_SHARE * total_bytes:
        return []
    text = (
        f"{host} has {available_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB of memory available, "
        f"below {LOW_SHARE:.0%}"
    )
    advice = (
        "end other programs there, or run fewer ranks or a smaller --micro-batch-size; below "
        f"{CRITICAL_SHARE:.0%} the run saves a checkpoint and stops"
    )
    return [Alarm("memory", text, advice, subject=host)]
