"""What a job's time goes into and what its GPUs and hosts have left, looked at once an interval; alarms.

Every rank has an Observer; local rank 0 of each host reads the host and its GPUs. Training calls `look` and
knows nothing else of it.
"""

from __future__ import annotations

import statistics
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from alphazero.machine.judge import Finding
from alphazero.machine.memory import read_host
from alphazero.machine.nvml import GpuReading
from alphazero.show.alarms import (
    Alarm,
    Alarms,
    RateHistory,
    judge_disk,
    judge_gpus,
    judge_memory,
    judge_ranks,
)

TRAINING, SELF_PLAY = "training", "self-play"
UNITS = {TRAINING: "positions/s", SELF_PLAY: "evaluations/s"}
# Intervals are judged together until they last this long, so that a busy moment raises no alarm.
SHORTEST_INTERVAL_S = 10.0
HOST_FIGURES = ("memory_available", "memory_total", "disk_free")
MOST_READINGS = 3600  # kept of a GPU until they are taken: an hour at one per second
GIB = 1 << 30

# The parts of a rank's time (training/loop/part_clock.py) that are training, in the order of columns.
PARTS = ("host", "compute", "data", "messages", "gradients", "checkpoint")
HOST, COMPUTE, DATA, MESSAGES, GRADIENTS, CHECKPOINT = range(len(PARTS))
# What a rank does by itself: in the others it may wait for another rank.
OWN_WORK = [HOST, COMPUTE, DATA]
# Shares of the time in which a device does not compute, in the words of log lines and alarms.
WAITS = {
    "data_wait": "data",
    "communication": "communication",
    "host_overhead": "host launches",
    "checkpoint": "checkpoints",
}
Seconds = npt.NDArray[np.float64]  # [R, P], of every rank by part
Shares = Mapping[str, float]  # of the training time, which add up to 1 (docs/runs.md defines each)


@dataclass(frozen=True)
class JobShares:
    """The mean over ranks; and the shares of the rank that communicates least, for which the others wait.

    gradients: of the mean, what NCCL's kernels do, which a driver takes for work.
    """

    mean: Shares
    slowest_rank: int
    slowest: Shares
    gradients: float


def job_shares(seconds_RP: Seconds, idle: float | None = None) -> JobShares | None:
    """None where a rank has not trained yet.

    idle: the share of the time in which the GPUs did not compute, where it is known. What of it no other part
    explains is time in which kernels were not launched fast enough: it moves from compute to host_overhead.
    """
    if not (seconds_RP.sum(1) > 0).all():
        return None
    shares_RP = seconds_RP / seconds_RP.sum(1, keepdims=True)
    mean_P = shares_RP.mean(0)
    gaps = 0.0
    if idle is not None:
        explained = 1.0 - mean_P[COMPUTE]
        gaps = min(1.0, max(0.0, idle - explained) / max(mean_P[COMPUTE], 1e-9))
    slowest = int((shares_RP[:, MESSAGES] + shares_RP[:, GRADIENTS]).argmin())

    def named(parts_P: Seconds) -> Shares:
        share = parts_P.tolist()
        launching = share[COMPUTE] * gaps
        return {
            "compute": share[COMPUTE] - launching,
            "data_wait": share[DATA],
            "communication": share[MESSAGES] + share[GRADIENTS],
            "checkpoint": share[CHECKPOINT],
            "host_overhead": share[HOST] + launching,
        }

    return JobShares(named(mean_P), slowest, named(shares_RP[slowest]), float(mean_P[GRADIENTS]))


class GpuMeter:
    """Takes readings of this host's GPUs from the thread that watches them, and gives the figures of each.

    doing: the kind of work that the job does now; readings of other times ("") are left out.
    """

    def __init__(self, doing: Callable[[], str]) -> None:
        self._doing = doing
        self._lock = threading.Lock()
        self._readings: dict[str, dict[int, deque[GpuReading]]] = defaultdict(dict)

    def add(self, gpus: Iterable[GpuReading]) -> None:
        """One reading of each GPU; those that do not answer count for nothing."""
        if not (work := self._doing()):
            return
        with self._lock:
            for gpu in gpus:
                if not gpu.lost:
                    self._readings[work].setdefault(gpu.index, deque(maxlen=MOST_READINGS)).append(gpu)

    def take(self, work: str) -> list[dict[str, Any]]:
        """Index, UUID and figures of the GPUs read since the last call for `work`."""
        with self._lock:
            readings = self._readings.pop(work, {})
        return [_gpu_record(list(readings[index])) for index in sorted(readings)]


UTILISATION = "utilisation_percent"
# By name: what it is of a reading, how readings become one figure, and its unit.
GPU_FIGURES: Mapping[str, tuple[str, Callable[[Sequence[float]], float], int]] = {
    UTILISATION: (UTILISATION, statistics.fmean, 1),
    "memory_used_gib": ("memory_used_bytes", max, GIB),
    "temperature_c": ("temperature_c", max, 1),
    "power_w": ("power_w", statistics.fmean, 1),
}


def _gpu_record(readings: Sequence[GpuReading]) -> dict[str, Any]:
    """Index, UUID and the figures that are known of one GPU."""
    figures = {}
    for name, (source, combine, unit) in GPU_FIGURES.items():
        values = [float(value) for reading in readings if (value := getattr(reading, source)) is not None]
        if values:
            figures[name] = combine(values) / unit
    return {"index": readings[-1].index, "uuid": readings[-1].uuid, "figures": figures}


@dataclass(frozen=True)
class _Interval:
    """An interval as all ranks saw it. watched_s: in which GPUs were read; busy_s: and computed."""

    seconds: float
    amount: float
    watched_s: float
    busy_s: float
    seconds_RP: Seconds
    passes_R: npt.NDArray[np.int64]

    @property
    def busy(self) -> float | None:
        """The share of the time in which GPUs computed, None where it is not known."""
        return self.busy_s / self.watched_s if self.watched_s else None

    @property
    def shares(self) -> JobShares | None:
        """What the time went into."""
        return job_shares(self.seconds_RP, None if self.busy is None else 1.0 - self.busy)

    def then(self, later: _Interval) -> _Interval:
        """Both as one."""
        return _Interval(*(getattr(self, field.name) + getattr(later, field.name) for field in fields(self)))


class Observer:
    """Looks at a job, on each of its ranks. `look` is collective."""

    def __init__(
        self,
        gather: Callable[[Any], list[Any]],
        rank: int,
        host: str,
        local_rank: int,
        directory: Path,
        alarms: Alarms,
        *,
        gpu: str = "",
        meter: GpuMeter | None = None,
        gradients_look_busy: bool = False,
    ) -> None:
        """Collective. gather: gives the value of every rank, by rank, as JSON gives it back.

        directory: of the run. alarms: reported by rank 0. gpu: the UUID of this rank's, as NVML writes it.
        meter: on local rank 0 where GPUs are watched. gradients_look_busy: NCCL's kernels wait for the other
        ranks, and the driver counts that as use.
        """
        self._gather = gather
        self._is_main, self._reads = rank == 0, local_rank == 0
        self._directory = directory
        self._alarms = alarms
        self._meter = meter
        self._gradients_look_busy = gradients_look_busy
        ranks = gather([host, local_rank, gpu])
        # Ranks stand host by host, each from its local rank 0 on; two hosts may have the same name.
        self._first_ranks = [at for at, (_, local, _) in enumerate(ranks) if local == 0]
        names = [ranks[first][0] for first in self._first_ranks]
        self._hosts = [name if names.count(name) == 1 else f"{name}-{at}" for at, name in enumerate(names)]
        ends = [*self._first_ranks[1:], len(ranks)]
        spans = [range(*span) for span in zip(self._first_ranks, ends, strict=True)]
        self._host_of_rank = [name for name, span in zip(self._hosts, spans, strict=True) for _ in span]
        self._gpus_of_ranks = [[ranks[at][2] for at in span] for span in spans]
        self._unjudged: dict[str, _Interval] = {}
        self._rates = {work: RateHistory(work, unit) for work, unit in UNITS.items()}

    def look(
        self,
        work: str,
        seconds: float,
        amount: float,
        parts: Mapping[str, float] | None = None,
        passes: int = 0,
    ) -> tuple[str, dict[str, dict[str, float]]]:
        """Look at an interval of `work` that has ended: words for its line and figures by kind, on rank 0.

        amount: positions that were trained on or evaluated, over all ranks. parts: this rank's seconds by
        part of training. passes: its micro-batches.
        """
        own: dict[str, Any] = {"parts": [(parts or {}).get(name, 0.0) for name in PARTS], "passes": passes}
        if self._reads:
            own["gpus"] = self._meter.take(work) if self._meter else []
            host = read_host(self._directory)
            own["host"] = {name: getattr(host, name) for name in HOST_FIGURES}
        ranks = self._gather(own)
        if not self._is_main:
            return "", {}
        of_gpus, busy = self._gpu_figures([ranks[first]["gpus"] for first in self._first_ranks])
        seconds_RP = np.array([rank["parts"] for rank in ranks])
        if busy is not None and self._gradients_look_busy and (shares := job_shares(seconds_RP)):
            busy = max(0.0, busy - shares.gradients)
        watched_s, passes_R = 0.0 if busy is None else seconds, np.array([rank["passes"] for rank in ranks])
        interval = _Interval(seconds, amount, watched_s, watched_s * (busy or 0.0), seconds_RP, passes_R)
        self._judge(work, interval, [ranks[first]["host"] for first in self._first_ranks])
        figures, words = {"gpu": of_gpus}, [] if busy is None else [f"GPUs busy {busy:.0%}"]
        if shares := interval.shares:
            figures["time_share"] = {**shares.mean, "slowest_rank": float(shares.slowest_rank)}
            named = [(text, shares.mean[name]) for name, text in WAITS.items() if shares.mean[name] >= 0.01]
            if named:
                words.append(f"waits: {', '.join(f'{text} {share:.0%}' for text, share in named)}")
        return " | ".join(words), figures

    def report(self, finding: Finding) -> None:
        """An alarm for what the watch of rank 0's host found, at once; any thread may call."""
        reason = f"{finding.device} {finding.name} {finding.severity.word}"
        self._alarms.report(Alarm("health", finding.matter, finding.advice, reason=reason))

    def _gpu_figures(self, gpus_H: Sequence[Any]) -> tuple[dict[str, float], float | None]:
        """Figures by HOST/gpuN/NAME; the mean share of the time in which those that ranks use were busy."""
        figures: dict[str, float] = {}
        percents: list[float] = []
        for host, own, gpus in zip(self._hosts, self._gpus_of_ranks, gpus_H, strict=True):
            # By position where UUIDs are not known.
            used = [gpu for gpu in gpus if gpu["uuid"] in own] or gpus[: len(own)]
            percents += [gpu["figures"][UTILISATION] for gpu in used if UTILISATION in gpu["figures"]]
            for gpu in gpus:
                named = gpu["figures"].items()
                figures |= {f"{host}/gpu{gpu['index']}/{name}": value for name, value in named}
        return figures, statistics.fmean(percents) / 100 if percents else None

    def _judge(self, work: str, interval: _Interval, hosts: Sequence[Any]) -> None:
        """Judge what has not been judged yet if it lasted long enough. hosts: as they are now."""
        if work in self._unjudged:
            interval = self._unjudged.pop(work).then(interval)
        if interval.seconds < SHORTEST_INTERVAL_S:
            self._unjudged[work] = interval
            return
        alarms = self._rates[work].judge(interval.amount / interval.seconds)
        shares = interval.shares
        if interval.busy is not None and work == SELF_PLAY:
            alarms += judge_gpus(interval.busy, {work: 1.0})
        elif interval.busy is not None and shares:
            where = f" on rank {shares.slowest_rank}" if len(self._host_of_rank) > 1 else ""
            waits = {text: shares.slowest[name] for name, text in WAITS.items()}
            alarms += judge_gpus(interval.busy, waits, where)
        work_s_R = interval.seconds_RP[:, OWN_WORK].sum(1).tolist()
        alarms += judge_ranks(work_s_R, interval.passes_R.tolist(), self._host_of_rank)
        for name, host in zip(self._hosts, hosts, strict=True):
            alarms += judge_memory(name, host["memory_available"], host["memory_total"])
            if host["disk_free"] is not None:
                alarms += judge_disk(name, host["disk_free"])
        self._alarms.take(work, alarms)
