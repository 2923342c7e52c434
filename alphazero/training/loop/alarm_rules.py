"""The rules of the alarms: which figure is judged, its limit, what is reported and what to do about it.

A function per rule judges one interval (a stretch of log intervals, a validation or a generation). Where a
rule compares with the past, its caller keeps that past and passes it in.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alphazero.machine.findings import Finding
from alphazero.machine.memory import CRITICAL_SHARE, LOW_SHARE
from alphazero.training.loop.part_clock import Cause
from alphazero.training.loop.usage import HostNow

GIB = 1 << 30


@dataclass(frozen=True)
class Alarm:
    """What a rule finds in one interval; reported when it holds for several in a row (alarms.py).

    text: the measured value and its limit. advice: what to do. reason: separates alarms of one cause that
    each deserve a line within the hour. subject: the rank or host concerned, which must be the same in all
    intervals in a row.
    """

    cause: str
    text: str
    advice: str
    reason: str = ""
    subject: str = ""


IDLE_GPUS_ADVICE = {
    Cause.DATA: "more loader threads (--num-workers), a faster disk for the data, or fewer ranks per host",
    Cause.COMMUNICATION: "a larger --batch-size, and the preflight's table of slow links",
    Cause.HOST: "larger micro-batches (--micro-batch-size) or --compile, and nothing else on these cores",
    Cause.CHECKPOINT: "a longer --checkpoint-interval",
    Cause.SELF_PLAY: "more games at a time (--lanes), a larger --evaluation-batch, more cores per GPU",
}
OVERFITTING_ADVICE = {
    "value": "more games (positions of one game share one result), a smaller --value-weight, a larger "
    "--weight-decay, or fewer epochs; --resume best-value_loss continues from the best",
    "policy": "more games, a larger --weight-decay, a smaller network, or fewer epochs; "
    "--resume best-policy_loss continues from the best",
}
CLOCK_ADVICE = (
    "start chrony, ntpd or systemd-timesyncd on every host: logs and files of the run have wrong times"
)

# Of the median rate.
LEAST_RATE = 0.7
# Intervals before the first judgement of a rate: the first ones choose kernels and fill caches.
LEAST_HISTORY = 5
# Of the time, in which the GPUs compute.
LEAST_BUSY = 0.8
# Of the batches of self-play: the presets have 0.85 and more (docs/performance.md).
LEAST_FILL = 0.7
# Times the median of the other ranks, as the preflight's straggler_ratio_warn.
MOST_SLOWER = 1.5
# Seconds per micro-batch: shorter differences are noise, as the preflight's straggler_floor_ms.
LEAST_SLOWER_S = 0.002
# Of the loss: smaller differences between validations are noise.
LEAST_LOSS_CHANGE = 0.01
# Of the largest mean entropy of a generation since this start. Chess from zero went from 2.42 to 1.77 nats in
# an hour (docs/performance.md).
LEAST_ENTROPY = 0.2
# In nats: a move that gets 98.5 % of the visits and one that gets the rest.
LEAST_NATS = 0.08
# AlphaGo Zero's threshold kept the games that could have been won below 5 % (Silver et al. 2017, Methods);
# here draws count as well.
MOST_WRONG = 0.05
# Checked games behind a judgement of resignations: with fewer a single one decides.
LEAST_GAMES = 20
# Seconds in which a disk is full. Later nothing is predicted: the number of kept checkpoints stops growing.
HORIZON_S = 24 * 3600.0
# What filled for a minute is predicted for less than two hours: it may be the copy of one file.
FORESIGHT = 100
# Smaller changes of the free space are the file system's own.
LEAST_BYTES = 1 << 20
# Seconds that the wall clock may gain or lose on the monotonic clock between two readings.
MOST_MOVED_S = 1.0
# Seconds, as between hosts before a start (launch/head/compare.py); readings differ by a step.
MOST_APART_S = 2.0
# Of the segments sent, as the preflight's retransmitted_warn: a healthy local network loses under 0.01 %, and
# TCP is several times slower at 1 %.
MOST_RETRANSMITTED = 0.01
# TCP segments of an interval behind a judgement.
LEAST_SEGMENTS = 1000


def judge_rate(before: deque[float], rate: float, unit: str, what: str) -> list[Alarm]:
    """Compare a rate with the median of those before, and add it to them."""
    found = []
    if len(before) >= LEAST_HISTORY:
        median = statistics.median(before)
        if rate < LEAST_RATE * median:
            text = (
                f"{what} runs at {rate:,.0f} {unit}, {rate / median:.0%} of the run's median of "
                f"{median:,.0f} (limit {LEAST_RATE:.0%})"
            )
            advice = (
                "see what else runs on the hosts (top, nvidia-smi), whether a device is hot or throttled "
                "(alphazero health), and the shares of time in the log lines"
            )
            found.append(Alarm("throughput", text, advice, reason=what))
    before.append(rate)
    return found


def judge_gpus(busy: float, waits: Mapping[Cause, float], where: str = "") -> list[Alarm]:
    """busy: the share of the time in which the GPUs computed. waits: the shares in which they waited.

    where: whose shares these are, as " on rank 3".
    """
    if busy >= LEAST_BUSY:
        return []
    longest = max(waits, key=lambda cause: waits[cause])
    text = (
        f"the GPUs were busy {busy:.0%} of the time, below {LEAST_BUSY:.0%}: they wait for {longest.value} "
        f"({waits[longest]:.0%} of the time{where})"
    )
    return [Alarm("idle-gpus", text, IDLE_GPUS_ADVICE[longest], reason=longest.value)]


def judge_fill(fill: float) -> list[Alarm]:
    """fill: the mean share of real positions in the batches of self-play."""
    if not fill < LEAST_FILL:
        return []
    text = (
        f"the batches of self-play are {fill:.0%} full, below {LEAST_FILL:.0%}: the network evaluates padding"
    )
    advice = (
        "fewer ranks or a smaller --evaluation-batch, as each rank needs two batches of lanes; longer rounds "
        "(--simulations-per-round); or a new run, which takes --lanes for its ranks"
    )
    return [Alarm("batch-fill", text, advice)]


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


@dataclass(frozen=True)
class HeadLoss:
    """The loss of a head at a validation, and its mean training loss of the steps before."""

    step: int
    held_out: float
    training: float


def judge_validation(
    best: dict[str, HeadLoss], step: int, held_out: Mapping[str, float], training: Mapping[str, float]
) -> list[Alarm]:
    """Compare each head with its best validation so far, which `best` keeps.

    training: the means of the same losses since the validation before.
    """
    found = []
    for head, advice in OVERFITTING_ADVICE.items():
        name = f"{head}_loss"
        if name not in held_out or name not in training:
            continue
        now = HeadLoss(step, held_out[name], training[name])
        then = best.setdefault(head, now)
        if now.held_out <= then.held_out:
            best[head] = now
            continue
        is_worse = now.held_out > (1 + LEAST_LOSS_CHANGE) * then.held_out
        if is_worse and now.training < (1 - LEAST_LOSS_CHANGE) * then.training:
            text = (
                f"the {head} head overfits: its loss on held-out positions is {now.held_out:.4f} at step "
                f"{step}, {now.held_out / then.held_out - 1:.1%} above its best of {then.held_out:.4f} at "
                f"step {then.step}, while in training it fell from {then.training:.4f} to {now.training:.4f}"
            )
            found.append(Alarm("overfitting", text, advice, reason=head, subject=head))
    return found


def judge_entropy(nats: float, most: float) -> list[Alarm]:
    """nats: the mean entropy of a generation's policies. most: that of the most varied generation."""
    least = max(LEAST_NATS, LEAST_ENTROPY * most)
    if not nats < least:  # nan: not known
        return []
    text = (
        f"the policies of self-play have {nats:.3f} nats of entropy, below {least:.3f} (the most was "
        f"{most:.3f}): nearly all visits go to one move, and games repeat themselves"
    )
    advice = (
        "more --noise-epsilon or --dirichlet-alpha, a larger --c-init, a longer --temperature-plies, more "
        "--opening-plies, or a smaller --learning-rate"
    )
    return [Alarm("entropy", text, advice)]


def judge_resignations(checks: Sequence[tuple[int, int]]) -> list[Alarm]:
    """Judge the newest LEAST_GAMES games or more.

    checks: for each generation, how many games were wrongly resigned and how many were played on.
    """
    wrong = games = 0
    for one_wrong, one_checked in reversed(checks):
        wrong, games = wrong + one_wrong, games + one_checked
        if games >= LEAST_GAMES:
            break
    if games < LEAST_GAMES or wrong <= MOST_WRONG * games:
        return []
    text = (
        f"of {games:,} games that one side would have resigned and that were played on, it did not lose "
        f"{wrong:,} ({wrong / games:.1%}, limit {MOST_WRONG:.0%}): games that end by resignation teach wrong "
        "results"
    )
    advice = "a --resign-threshold nearer to 1, or 0 (never resign) until the value head is better"
    return [Alarm("resignations", text, advice)]


@dataclass
class FillingDisk:
    """The free space of each host's disk over time, judged at most once every `every_s`."""

    every_s: float = 0.0
    judged_at: float = -math.inf
    before: dict[str, HostNow] = field(default_factory=dict)
    since: dict[str, HostNow] = field(default_factory=dict)  # when each disk began to fill without a pause

    def judge(self, hosts: Sequence[HostNow], remaining_s: float) -> list[Alarm] | None:
        """None where the interval has not ended. remaining_s: until the run's end, inf where unknown."""
        now_s = hosts[0].steady_s if hosts else -math.inf
        if not hosts or now_s - self.judged_at < self.every_s:
            return None
        self.judged_at = now_s
        found = [alarm for now in hosts if (alarm := self._judge_host(now, remaining_s))]
        self.before = {now.host: now for now in hosts}
        return found

    def _judge_host(self, now: HostNow, remaining_s: float) -> Alarm | None:
        before = self.before.get(now.host, now)
        if not before.disk_free_bytes - now.disk_free_bytes >= LEAST_BYTES:  # nan: not known
            self.since.pop(now.host, None)
            return None
        since = self.since.setdefault(now.host, before)
        seconds = now.steady_s - since.steady_s
        rate = (since.disk_free_bytes - now.disk_free_bytes) / seconds
        left_s = now.disk_free_bytes / rate
        if left_s >= min(remaining_s, HORIZON_S, FORESIGHT * seconds):
            return None
        left = f"{left_s / 3600:.1f} hours" if left_s >= 3600 else f"{left_s / 60:.0f} minutes"
        text = (
            f"the disk of the run directory on {now.host} loses {rate * 3600 / GIB:,.2f} GiB an hour and "
            f"has {now.disk_free_bytes / GIB:,.1f} GiB left: at this rate it is full in {left}, before the "
            "run ends"
        )
        advice = "make room there, fewer --keep-checkpoints, or a --runs-dir on a larger disk"
        return Alarm("disk", text, advice, subject=now.host)


def judge_memory(hosts: Sequence[HostNow]) -> list[Alarm]:
    """Hosts with little memory available, a container's limit counted."""
    found = []
    for now in hosts:
        # Below LOW_SHARE the page cache goes, and with it the loader's speed.
        if now.memory_available_bytes < LOW_SHARE * now.memory_total_bytes:
            text = (
                f"{now.host} has {now.memory_available_bytes / GIB:.1f} of "
                f"{now.memory_total_bytes / GIB:.1f} GiB of memory available, below {LOW_SHARE:.0%}"
            )
            advice = (
                "end other programs there, or run fewer ranks or a smaller --micro-batch-size; below "
                f"{CRITICAL_SHARE:.0%} the run saves a checkpoint and stops"
            )
            found.append(Alarm("memory", text, advice, subject=now.host))
    return found


def judge_clocks(hosts: Sequence[HostNow], before: Mapping[str, HostNow], step_s: float) -> list[Alarm]:
    """Clocks that were set since the reading before; else clocks that are apart. step_s: time of a step."""
    found = []
    for now in hosts:
        then = before.get(now.host, now)
        moved_s = (now.clock_s - now.steady_s) - (then.clock_s - then.steady_s)
        if abs(moved_s) > MOST_MOVED_S:
            text = f"the clock of {now.host} was set by {moved_s:+.1f} s during the run"
            found.append(Alarm("clock", text, CLOCK_ADVICE, subject=now.host))
    if found or not hosts:
        return found
    by_clock = sorted(hosts, key=lambda now: now.clock_s)
    first, last = by_clock[0], by_clock[-1]
    apart_s, most_s = last.clock_s - first.clock_s, MOST_APART_S + step_s
    if apart_s <= most_s:
        return []
    text = f"the clocks of {first.host} and {last.host} are {apart_s:.1f} s apart (limit {most_s:.1f} s)"
    return [Alarm("clock", text, CLOCK_ADVICE, subject=f"{first.host} {last.host}")]


def judge_network(hosts: Sequence[HostNow], before: Mapping[str, HostNow]) -> list[Alarm]:
    """Hosts that lost packets since the reading before; a job on one host uses no network."""
    found = []
    for now in hosts if len(hosts) > 1 else ():
        then = before.get(now.host, now)
        sent, again = now.segments - then.segments, now.retransmitted - then.retransmitted
        if sent >= LEAST_SEGMENTS and again > MOST_RETRANSMITTED * sent:
            text = (
                f"{now.host} had to send {again:,.0f} of {sent:,.0f} TCP segments again ({again / sent:.1%}, "
                f"limit {MOST_RETRANSMITTED:.0%})"
            )
            advice = (
                "check that host's cable, switch port and MTU (ip -s link), and whether others fill the "
                "network"
            )
            found.append(Alarm("network", text, advice, subject=now.host))
    return found


def health_alarm(finding: Finding) -> Alarm:
    """A finding of a host's watch; each device, name and severity has a separate line."""
    reason = f"{finding.device} {finding.name} {finding.severity.word}"
    return Alarm("health", finding.matter, finding.advice, reason=reason)
