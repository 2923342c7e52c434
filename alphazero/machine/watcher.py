"""Health during training, watched by a thread: figures of the host, and each fault to the log once.

`UsageMeter` adds up how the GPUs of this host are used, by what the job was doing meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from pathlib import Path

from alphazero.machine.findings import Finding, Severity, Thresholds
from alphazero.machine.health import family_of_this_process, is_visible
from alphazero.machine.judge import judge_gpus, judge_host, judge_nvml, judge_xid
from alphazero.machine.memory import read_host
from alphazero.machine.nvml import GpuReading, Nvml, NvmlUnusable, XidEvents, expects_gpus, open_nvml

GIB = 1 << 30
MOST_READINGS = 3600  # kept per GPU until they are taken: an hour at one per second


class Doing(Enum):
    """What the readings are kept apart by. OTHER: nothing that a GPU has to be busy for."""

    TRAINING = "training"
    SELF_PLAY = "self-play"
    OTHER = "other"


@dataclass(frozen=True)
class GpuUsage:
    """One GPU over a stretch of time; a figure is nan where unknown.

    utilisation_percent and power_w are means of the readings, memory_used_gib and temperature_c the largest.
    """

    index: int
    uuid: str
    utilisation_percent: float
    memory_used_gib: float
    temperature_c: float
    power_w: float


class UsageMeter:
    """Takes readings from the thread that watches the host and gives their sums to the training thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._doing = Doing.TRAINING
        self._readings: dict[Doing, dict[int, deque[GpuReading]]] = {doing: {} for doing in Doing}

    @contextlib.contextmanager
    def doing(self, what: Doing) -> Iterator[None]:
        """Readings made within the block are those of `what`."""
        before, self._doing = self._doing, what
        try:
            yield
        finally:
            self._doing = before

    def add(self, gpus: Iterable[GpuReading]) -> None:
        """One reading of each GPU; those that do not answer count for nothing."""
        doing = self._doing
        if doing is Doing.OTHER:
            return
        with self._lock:
            for gpu in gpus:
                if not gpu.lost:
                    kept = self._readings[doing].setdefault(gpu.index, deque(maxlen=MOST_READINGS))
                    kept.append(gpu)

    def take(self, what: Doing) -> tuple[GpuUsage, ...]:
        """The GPUs read since the last call for `what`, by index; none where no reading was made."""
        with self._lock:
            readings, self._readings[what] = self._readings[what], {}
        return tuple(_usage(list(readings[index])) for index in sorted(readings))


def _usage(readings: list[GpuReading]) -> GpuUsage:
    def known(values: Iterable[float | None]) -> list[float]:
        return [float(value) for value in values if value is not None] or [math.nan]

    utilisation = known(gpu.utilisation_percent for gpu in readings)
    power = known(gpu.power_w for gpu in readings)
    return GpuUsage(
        index=readings[-1].index,
        uuid=readings[-1].uuid,
        utilisation_percent=sum(utilisation) / len(utilisation),
        memory_used_gib=max(known(gpu.memory_used_bytes for gpu in readings)) / GIB,
        temperature_c=max(known(gpu.temperature_c for gpu in readings)),
        power_w=sum(power) / len(power),
    )


TakeUsage = Callable[[Sequence[GpuReading]], None]
EVENT_WAIT_MS = 250
STOP_S = 5.0


@dataclass(eq=False)
class HealthWatcher:
    """Looks at this host every `interval_s` while a job runs; one per host, on local rank 0.

    report: gets the host's figures by name (host/load) at each look, called on the watcher's thread. say:
    gets each fault once. device: as in check_this_host. take_usage: gets how the GPUs are used at each look,
    and every `usage_interval_s` in between. Whatever goes wrong here is such a finding too and never reaches
    the job.
    """

    interval_s: float
    report: Callable[[Mapping[str, float]], None]
    say: Callable[[Finding], None]
    _: KW_ONLY
    thresholds: Thresholds
    directory: Path
    device: str = "auto"
    take_usage: TakeUsage | None = None
    usage_interval_s: float = 1.0

    def __post_init__(self) -> None:
        self._host = socket.gethostname()
        self._reported: set[tuple[str, str, Severity]] = set()
        self._known: dict[int, GpuReading] = {}  # by index, each with the UUID that it had
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, args=(self._watch,), name="health", daemon=True)

    def start(self) -> None:
        """Begin, with a first look at once."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that hangs in the driver is left behind (the thread is a daemon)."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _watch(self) -> None:
        with contextlib.ExitStack() as stack:
            nvml: Nvml | None = None
            events: XidEvents | None = None
            if self.device != "cpu":
                try:
                    nvml = stack.enter_context(open_nvml())
                    events = stack.enter_context(nvml.xid_events())
                except NvmlUnusable as error:
                    self._report_once(judge_nvml(error, self._host, expects_gpus(self.device)))
            while not self._stopping.is_set():
                self._guarded(lambda: self._look(nvml))
                self._wait(nvml, events)

    def _look(self, nvml: Nvml | None) -> None:
        gpus = self._named(nvml.gpus()) if nvml is not None else []
        host = read_host(self.directory)
        findings = judge_gpus(
            gpus,
            self.thresholds.gpu,
            self._host,
            family_of_this_process(with_siblings=True),  # our parent, the agent, started the job
            running=True,
        )
        findings += judge_host(host, self.thresholds.host, self._host, num_gpus=0, running=True)
        for finding in findings:
            self._report_once(finding)
        if self.take_usage:
            self.take_usage(gpus)
        self.report(
            {
                "host/memory_available_gib": host.memory_available / GIB,
                "host/swap_used_gib": host.swap_used / GIB,
                "host/load": host.load,
                "host/disk_free_gib": host.disk_free / GIB,
            }
        )

    def _read_usage(self, nvml: Nvml, take_usage: TakeUsage) -> None:
        visible = [index for index, gpu in self._known.items() if is_visible(gpu)]
        take_usage(self._named(map(nvml.usage, visible)))

    def _named(self, gpus: Iterable[GpuReading]) -> list[GpuReading]:
        """Those that this process may use; one that is lost with the UUID and name it had."""
        named = []
        for gpu in gpus:
            known = self._known.get(gpu.index)
            if known is None or gpu.uuid:
                self._known[gpu.index] = known = gpu
            named.append(replace(gpu, uuid=known.uuid, name=known.name))
        return list(filter(is_visible, named))

    def _wait(self, nvml: Nvml | None, events: XidEvents | None) -> None:
        """Until the next look; Xid events that arrive are reported at once, and usage is read meanwhile."""
        take_usage = self.take_usage
        until = time.monotonic() + self.interval_s
        next_usage = time.monotonic() + self.usage_interval_s
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            if take_usage and nvml and (left := min(left, next_usage - time.monotonic())) <= 0:
                self._guarded(lambda: self._read_usage(nvml, take_usage))
                next_usage = time.monotonic() + self.usage_interval_s
            elif events is None or not events.open:
                self._stopping.wait(left)
            else:
                self._guarded(lambda: self._take_event(events, left))

    def _take_event(self, events: XidEvents, left_s: float) -> None:
        event = events.next(min(EVENT_WAIT_MS, int(left_s * 1000) + 1))
        if event is not None:
            index, xid = event
            gpu = self._known.get(index, GpuReading(index))
            if is_visible(gpu):
                self._report_once(judge_xid(xid, gpu, self.thresholds.gpu, self._host))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do it; an exception becomes one finding."""
        try:
            action()
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            advice = "health is not fully watched; the job continues"
            self._report_once(Finding(Severity.UNKNOWN, self._host, "", "", "watcher", what, None, advice))
            self._stopping.wait(EVENT_WAIT_MS / 1000)  # a fault that comes at once must not spin

    def _report_once(self, finding: Finding) -> None:
        """Report faults, and what keeps the watcher from watching, once each."""
        key = (finding.device, finding.name, finding.severity)
        least = Severity.UNKNOWN if finding.name in ("watcher", "nvml") else Severity.WARN
        if finding.severity < least or key in self._reported:
            return
        self._reported.add(key)
        try:
            self.say(finding)
        except Exception:
            # Without a log the watcher ends, and the job continues.
            self._stopping.set()
