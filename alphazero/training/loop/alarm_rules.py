"""An alarm: what goes wrong slowly, by how much, and what to do about it.

Clocks that cannot be trusted: hosts that disagree on the time, or a clock that is set again and again.

A disk that will be full before the run has ended, at the rate at which it fills now.

Self-play that has stopped looking around: policies to learn from that are nearly a single move.

Faults that the watch of a host finds: each is told once, at once.

GPUs that are idle, and what they wait for.

A stretch of training that rules judge: log intervals, put together until they last long enough.

A host that is running out of memory: below a tenth the page cache goes, and with it the loader's speed.

A network that loses packets: TCP segments that a host has to send again.

A head that learns its positions by heart: worse on held-out positions while training gets better.

Sides that resign games they would not have lost, by the games that are played to the end all the same.

A rank for whom all others wait: by its own work for each micro-batch, communication left out.

A job that has become slower than it was: under 70 % of its own median.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alphazero.machine.findings import Finding
from alphazero.machine.memory import CRITICAL_SHARE, LOW_SHARE
from alphazero.training.loop.part_clock import Cause
from alphazero.training.loop.usage import HostNow


@dataclass(frozen=True)
class Alarm:
    """What a rule finds in one interval; people hear of it when it holds for several in a row (desk.py).

    cause: one of config.ALARMS, by which it is muted. text: what was measured, and against what it is judged.
    advice: what to do. reason: tells alarms of one cause apart that are worth a line each within the hour.
    subject: the rank or host concerned, which must be the same in all intervals in a row.
    """

    cause: str
    text: str
    advice: str
    reason: str = ""
    subject: str = ""


CAUSE = "clock"
# As between hosts before a start (cluster/launch/compare.py); hosts read their clocks up to a step apart.
MOST_APART_S = 2.0
# Between two readings the wall clock may gain or lose so much on the clock that nobody sets.
MOST_SET_S = 1.0

ADVICE = "start chrony, ntpd or systemd-timesyncd on every host: logs and files of the run have wrong times"


class Clocks:
    """Remembers what each host's clock was ahead of its steady one."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}

    def look(self, hosts: list[HostNow], step_s: float) -> list[Alarm]:
        """Judge one more reading of all hosts. step_s: how long a step takes."""
        found = []
        for now in hosts:
            ahead = now.clock_s - now.steady_s
            moved = ahead - self._ahead.get(now.host, ahead)
            self._ahead[now.host] = ahead
            if abs(moved) > MOST_SET_S:
                text = f"the clock of {now.host} was set by {moved:+.1f} s while the run went on"
                found.append(Alarm(CAUSE, text, ADVICE, subject=now.host))
        if len(hosts) > 1 and not found:
            found += _apart(hosts, MOST_APART_S + step_s)
        return found


def _apart(hosts: list[HostNow], limit_s: float) -> list[Alarm]:
    first = min(hosts, key=lambda now: now.clock_s)
    last = max(hosts, key=lambda now: now.clock_s)
    apart_s = last.clock_s - first.clock_s
    if apart_s <= limit_s:
        return []
    text = f"the clocks of {first.host} and {last.host} are {apart_s:.1f} s apart (limit {limit_s:.1f} s)"
    return [Alarm(CAUSE, text, ADVICE, subject=f"{first.host} {last.host}")]


DISK_CAUSE = "disk"
GIB = 1 << 30
# Beyond this nothing is predicted: checkpoints that are kept stop growing in number, other users clean up.
HORIZON_S = 24 * 3600.0
# What filled for a minute is predicted for less than two hours: somebody may just be copying a file.
FORESIGHT = 100
# Smaller changes are what a file system keeps for itself.
LEAST_BYTES = 1 << 20
# A disk that fills now, and one that fills by a checkpoint every so often.
SHORT_S, LONG_S = 0.0, 3600.0


class FillingDisk:
    """Compares the free space of each host with that of the interval before.

    every_s: the least length of an interval; what comes earlier is passed over.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._judged_at: float | None = None
        self._before: dict[str, HostNow] = {}
        self._since: dict[str, HostNow] = {}  # when each disk began to fill without a pause

    def look(self, hosts: list[HostNow], remaining_s: float) -> list[Alarm] | None:
        """Judge by how much less is free; None where the interval has not ended.

        remaining_s: until the run's end, inf where it is not known.
        """
        now_s = hosts[0].steady_s if hosts else 0.0
        if not hosts or (self._judged_at is not None and now_s - self._judged_at < self._every_s):
            return None
        self._judged_at = now_s
        found = [alarm for now in hosts if (alarm := self._judge(now, remaining_s))]
        self._before = {now.host: now for now in hosts}
        return found

    def _judge(self, now: HostNow, remaining_s: float) -> Alarm | None:
        before = self._before.get(now.host, now)
        if not before.disk_free_bytes - now.disk_free_bytes >= LEAST_BYTES:  # nan: not known
            self._since.pop(now.host, None)
            return None
        since = self._since.setdefault(now.host, before)
        seconds = now.steady_s - since.steady_s
        rate = (since.disk_free_bytes - now.disk_free_bytes) / seconds
        if now.disk_free_bytes / rate >= min(remaining_s, HORIZON_S, FORESIGHT * seconds):
            return None
        return _alarm(now, rate)


def _alarm(now: HostNow, rate: float) -> Alarm:
    hours = now.disk_free_bytes / rate / 3600
    left = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    return Alarm(
        DISK_CAUSE,
        f"the disk of the run directory on {now.host} loses {rate * 3600 / GIB:,.2f} GiB an hour and has "
        f"{now.disk_free_bytes / GIB:,.1f} GiB left: at this rate it is full in {left}, before the run ends",
        "make room there, fewer --keep-checkpoints, or a --runs-dir on a larger disk",
        subject=now.host,
    )


ENTROPY_CAUSE = "entropy"
# Of the largest mean entropy of a generation since this start. Chess from zero went from 2.42 to 1.77 nats in
# an hour (docs/performance.md).
LEAST_SHARE = 0.2
# In nats: a move that gets 98.5 % of the visits and one that gets the rest.
LEAST_NATS = 0.08


class PolicyEntropy:
    """Remembers the most varied generation."""

    def __init__(self) -> None:
        self._most = 0.0

    def look(self, nats: float) -> list[Alarm]:
        """Judge one more generation by the mean entropy of the policies it is trained on."""
        self._most = max(self._most, nats)
        limit = max(LEAST_NATS, LEAST_SHARE * self._most)
        if nats >= limit:
            return []
        return [
            Alarm(
                ENTROPY_CAUSE,
                f"the policies of self-play have {nats:.3f} nats of entropy, below {limit:.3f} (the most was "
                f"{self._most:.3f}): nearly all visits go to one move, and games repeat themselves",
                "more --noise-epsilon or --dirichlet-alpha, a larger --c-init, a longer --temperature-plies, "
                "more --opening-plies, or a smaller --learning-rate",
            )
        ]


HEALTH_CAUSE = "health"


def health_alarm(finding: Finding) -> Alarm:
    """The finding as an alarm; those of unlike devices, names or severities are told apart."""
    kind = f"{finding.device} {finding.name} {finding.severity.word}"
    return Alarm(HEALTH_CAUSE, finding.matter, finding.advice, reason=kind)


IDLE_GPUS_CAUSE = "idle-gpus"
BUSY_ENOUGH = 0.8

IDLE_GPUS_ADVICE = {
    Cause.DATA: "more loader threads (--num-workers), a faster disk for the data, or fewer ranks per host",
    Cause.COMMUNICATION: "a larger --batch-size, and the preflight's table of slow links",
    Cause.HOST: "larger micro-batches (--micro-batch-size) or --compile, and nothing else on these cores",
    Cause.CHECKPOINT: "a longer --checkpoint-interval",
    Cause.SELF_PLAY: "more games at a time (--lanes), a larger --evaluation-batch, more cores per GPU",
}


def look_at_gpus(busy: float, waits: Mapping[Cause, float], where: str = "") -> list[Alarm]:
    """Judge an interval: `busy` of it the GPUs computed, and `waits` took these shares of it.

    where: whose shares these are, as " on rank 3".
    """
    if busy >= BUSY_ENOUGH:
        return []
    longest = max(waits, key=lambda one: waits[one])
    return [
        Alarm(
            IDLE_GPUS_CAUSE,
            f"the GPUs were busy {busy:.0%} of the time, below {BUSY_ENOUGH:.0%}: they wait for "
            f"{longest.value} ({waits[longest]:.0%} of the time{where})",
            IDLE_GPUS_ADVICE[longest],
            reason=longest.value,
        )
    ]


@dataclass(frozen=True)
class Interval:
    """steps with `positions` in all, which took `seconds`; work_s_R and hosts as in IntervalUsage.

    passes_R: micro-batches of each rank. hosts: as they were at the end. remaining_s: until the run's end.
    """

    steps: int
    positions: int
    seconds: float
    work_s_R: tuple[float, ...]
    passes_R: tuple[int, ...]
    hosts: tuple[HostNow, ...]
    remaining_s: float

    def followed_by(self, later: Interval) -> Interval:
        """Both as one."""
        return Interval(
            self.steps + later.steps,
            self.positions + later.positions,
            self.seconds + later.seconds,
            tuple(_sums(self.work_s_R, later.work_s_R)),
            tuple(map(int, _sums(self.passes_R, later.passes_R))),
            later.hosts,
            later.remaining_s,
        )


def _sums(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(left, right, strict=True)]


MEMORY_CAUSE = "memory"


def look_at_memory(hosts: list[HostNow]) -> list[Alarm]:
    """The hosts with less than LOW_SHARE of their memory available, a container's limit counted."""
    return [
        Alarm(
            MEMORY_CAUSE,
            f"{now.host} has {now.memory_available_bytes / GIB:.1f} of {now.memory_total_bytes / GIB:.1f} "
            f"GiB of memory available, below {LOW_SHARE:.0%}",
            "end other programs there, or run fewer ranks or a smaller --micro-batch-size; below "
            f"{CRITICAL_SHARE:.0%} the run saves a checkpoint and stops",
            subject=now.host,
        )
        for now in hosts
        if now.memory_available_bytes < LOW_SHARE * now.memory_total_bytes
    ]


NETWORK_CAUSE = "network"
# Of the segments sent, as the preflight's retransmitted_warn: a healthy local network loses under 0.01 %, and
# TCP is several times slower at 1 %.
MOST_RETRANSMITTED = 0.01
# Segments of an interval behind a judgement.
LEAST_SEGMENTS = 1000


class Network:
    """Remembers the counters of each host."""

    def __init__(self) -> None:
        self._before: dict[str, HostNow] = {}

    def look(self, hosts: list[HostNow]) -> list[Alarm]:
        """Judge by what the hosts sent since the last reading; a job on one host uses no network."""
        found = []
        for now in hosts if len(hosts) > 1 else []:
            before = self._before.get(now.host, now)
            self._before[now.host] = now
            sent, again = now.segments - before.segments, now.retransmitted - before.retransmitted
            if sent >= LEAST_SEGMENTS and again > MOST_RETRANSMITTED * sent:
                found.append(_network_alarm(now.host, sent, again))
        return found


def _network_alarm(host: str, sent: float, again: float) -> Alarm:
    return Alarm(
        NETWORK_CAUSE,
        f"{host} had to send {again:,.0f} of {sent:,.0f} TCP segments again ({again / sent:.1%}, limit "
        f"{MOST_RETRANSMITTED:.0%})",
        "check that host's cable, switch port and MTU (ip -s link), and whether others fill the network",
        subject=host,
    )


OVERFITTING_CAUSE = "overfitting"
# Of the loss: differences below it are what validations differ by without a reason.
LEAST_RISE = 0.01
LEAST_FALL = 0.01

OVERFITTING_ADVICE = {
    "value": "more games (positions of one game share one result), a smaller --value-weight, a larger "
    "--weight-decay, or fewer epochs; --resume best-value_loss goes on from the best",
    "policy": "more games, a larger --weight-decay, a smaller network, or fewer epochs; "
    "--resume best-policy_loss goes on from the best",
}


@dataclass(frozen=True)
class Standing:
    """A validation: its step, the loss held out, and the mean training loss of the steps before it."""

    step: int
    held_out: float
    training: float


class Overfitting:
    """Compares each validation with the best one so far, for policy and value apart."""

    def __init__(self) -> None:
        self._best: dict[str, Standing] = {}

    def look(self, step: int, held_out: Mapping[str, float], training: Mapping[str, float]) -> list[Alarm]:
        """Judge one more validation. training: the means of the same losses since the last one."""
        found = []
        for head in OVERFITTING_ADVICE:
            name = f"{head}_loss"
            if name not in held_out or name not in training:
                continue
            now = Standing(step, held_out[name], training[name])
            best = self._best.setdefault(head, now)
            if now.held_out <= best.held_out:
                self._best[head] = now
            elif (
                now.held_out > (1 + LEAST_RISE) * best.held_out
                and now.training < (1 - LEAST_FALL) * best.training
            ):
                found.append(_overfitting_alarm(head, now, best))
        return found


def _overfitting_alarm(head: str, now: Standing, best: Standing) -> Alarm:
    return Alarm(
        OVERFITTING_CAUSE,
        f"the {head} head overfits: its loss on held-out positions is {now.held_out:.4f} at step {now.step}, "
        f"{now.held_out / best.held_out - 1:.1%} above its best of {best.held_out:.4f} at step {best.step}, "
        f"while in training it fell from {best.training:.4f} to {now.training:.4f}",
        OVERFITTING_ADVICE[head],
        reason=head,
        subject=head,
    )


RESIGNATIONS_CAUSE = "resignations"
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
                RESIGNATIONS_CAUSE,
                f"of {games:,} games that one side would have resigned and that were played on, it did not "
                f"lose {wrong:,} ({wrong / games:.1%}, limit {MOST_WRONG:.0%}): games that end by "
                "resignation teach wrong results",
                "a --resign-threshold nearer to 1, or 0 (never resign) until the value head is better",
            )
        ]


SLOW_RANK_CAUSE = "slow-rank"
# Times the median of the other ranks, as the preflight's straggler_ratio_warn.
MOST_RATIO = 1.5
# Per micro-batch: shorter differences are noise, as the preflight's straggler_floor_ms.
LEAST_SECONDS = 0.002


def look_at_ranks(work_s_R: Sequence[float], passes_R: Sequence[int], hosts_R: Sequence[str]) -> list[Alarm]:
    """The slowest rank where it is much slower than the others.

    work_s_R: seconds of the interval that each rank spent on passes, on its loader and between them.
    passes_R: micro-batches of a rank in it (unequal weights mean unequal numbers).
    """
    if len(work_s_R) < 2 or not all(passes_R):
        return []
    per_pass_R = [seconds / passes for seconds, passes in zip(work_s_R, passes_R, strict=True)]
    slowest = max(range(len(per_pass_R)), key=lambda rank: per_pass_R[rank])
    others = statistics.median(per_pass_R[:slowest] + per_pass_R[slowest + 1 :])
    own = per_pass_R[slowest]
    if own < MOST_RATIO * others or own - others < LEAST_SECONDS:
        return []
    host = hosts_R[slowest]
    return [
        Alarm(
            SLOW_RANK_CAUSE,
            f"rank {slowest} on {host} takes {1000 * own:,.0f} ms per micro-batch, {own / others:.1f} times "
            f"the median of the other ranks ({1000 * others:,.0f} ms), and all of them wait for it",
            f"look at {host}: other programs (top), heat and clocks (alphazero health), a slow disk under "
            "the data; or give its ranks a smaller share with --host-weights",
            subject=f"rank {slowest}",
        )
    ]


THROUGHPUT_CAUSE = "throughput"
THROUGHPUT_LEAST_SHARE = 0.7
# Intervals before the first judgement: the first ones choose kernels and fill caches.
LEAST_HISTORY = 5
MOST_HISTORY = 1000


class Throughput:
    """Remembers the rates of intervals. unit: of a rate, as "positions/s"; where: for people."""

    def __init__(self, unit: str, where: str) -> None:
        self._unit = unit
        self._where = where
        self._rates: deque[float] = deque(maxlen=MOST_HISTORY)

    def look(self, rate: float) -> list[Alarm]:
        """Judge one more interval by those before it."""
        found = []
        if len(self._rates) >= LEAST_HISTORY:
            median = statistics.median(self._rates)
            if rate < THROUGHPUT_LEAST_SHARE * median:
                found.append(self._alarm(rate, median))
        self._rates.append(rate)
        return found

    def _alarm(self, rate: float, median: float) -> Alarm:
        return Alarm(
            THROUGHPUT_CAUSE,
            f"{self._where} runs at {rate:,.0f} {self._unit}, {rate / median:.0%} of the run's median of "
            f"{median:,.0f} (limit {THROUGHPUT_LEAST_SHARE:.0%})",
            "see what else runs on the hosts (top, nvidia-smi), whether a device is hot or throttled "
            "(alphazero health), and what the shares of time say that the log lines tell",
            reason=self._where,
        )
