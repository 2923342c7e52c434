"""Health during training, watched by a thread: figures for metrics, faults to the log once each."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from alphazero.machine.findings import Finding, Severity, Thresholds
from alphazero.machine.health import family_of_this_process, is_visible
from alphazero.machine.judge import (
    MIB,
    PCIE_ADVICE,
    Judge,
    describe,
    judge_host,
    judge_nvml,
    judge_state,
    judge_xid,
)
from alphazero.machine.memory import HostReading, read_host
from alphazero.machine.nvml import (
    GpuReading,
    Nvml,
    NvmlUnusable,
    XidEvents,
    expects_gpus,
    open_nvml,
)

GIB = 1 << 30


# By name as TensorBoard shows it: gpu0/temperature_c, host/memory_available_gib.
Figures = Mapping[str, float]
TakeUsage = Callable[[Sequence[GpuReading]], None]

EVENT_WAIT_MS = 250
STOP_S = 5.0
# Findings of a host that a running job makes itself: it is what loads the cores and takes the memory.
OWN_DOING = ("load_per_core", "cores_per_gpu", "clock")
# Little of these is a warning before a start. During one the alarms of all hosts judge how it develops
# (show/alarms.py), and what is left here are failures.
JUDGED_BY_ALARMS = ("disk_free_mib", "memory_available_mib")


@dataclass(eq=False)
class HealthWatcher:
    """Looks at this host every `interval_s` while a job runs; one per host, on local rank 0.

    report: gets the figures of each look, called on the watcher's thread. say: gets each fault
    once. device: as in check_this_host. take_usage: gets how the GPUs are used at each look,
    and every `usage_interval_s` in between. Whatever goes wrong here is such a line too and never reaches
    the job.
    """

    interval_s: float
    report: Callable[[Figures], None]
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
        self._known: dict[int, GpuReading] = {}
        self._replays: dict[int, tuple[float, int]] = {}
        self._stopping = threading.Event()
        target = functools.partial(self._guarded, self._watch)
        self._thread = threading.Thread(target=target, name="health", daemon=True)

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
            nvml = self._open(stack)
            events = stack.enter_context(nvml.xid_events()) if nvml is not None else None
            while not self._stopping.is_set():
                self._guarded(lambda: self._look(nvml))
                self._wait(nvml, events)

    def _open(self, stack: contextlib.ExitStack) -> Nvml | None:
        """NVML, or None on a host without a GPU."""
        if self.device == "cpu":
            return None
        try:
            return stack.enter_context(open_nvml())
        except NvmlUnusable as error:
            self._report_once(judge_nvml(error, self._host, expects_gpus(self.device)))
            return None

    def _look(self, nvml: Nvml | None) -> None:
        gpus = tuple(map(self._with_identity, nvml.gpus())) if nvml is not None else ()
        gpus = tuple(filter(is_visible, gpus))
        machine = read_host(self.directory)
        for finding in self._judge(gpus, machine):
            self._report_once(finding)
        if self.take_usage:
            self.take_usage(gpus)
        self.report(figures_of(gpus, machine))

    def _read_usage(self, nvml: Nvml, take_usage: TakeUsage) -> None:
        known = filter(is_visible, self._known.values())
        take_usage([replace(nvml.usage(gpu.index), uuid=gpu.uuid, name=gpu.name) for gpu in known])

    def _with_identity(self, gpu: GpuReading) -> GpuReading:
        """A lost device with the UUID and name it had."""
        known = self._known.get(gpu.index)
        if known is None or gpu.uuid:
            self._known[gpu.index] = known = gpu
        return replace(gpu, uuid=gpu.uuid or known.uuid, name=gpu.name or known.name)

    def _judge(self, gpus: tuple[GpuReading, ...], machine: HostReading) -> list[Finding]:
        findings = [
            finding
            for finding in judge_host(machine, self.thresholds.host, self._host, num_gpus=0)
            if finding.name not in OWN_DOING
            and (finding.name not in JUDGED_BY_ALARMS or finding.severity >= Severity.FAIL)
        ]
        any_link = any(link.active for gpu in gpus for link in gpu.nvlinks or ())
        family = family_of_this_process(with_siblings=True)  # our parent, the agent, started the job
        for gpu in gpus:
            judge = Judge(self._host, self.thresholds.gpu, gpu)
            if judge_state(judge, gpu, self.thresholds.gpu, any_link):
                self._judge_replays(judge, gpu)
                self._judge_foreign(judge, gpu, family)
            findings += judge.findings
        return findings

    def _judge_replays(self, judge: Judge, gpu: GpuReading) -> None:
        if gpu.pcie_replays is None:
            return
        now = time.monotonic()
        since, before = self._replays.setdefault(gpu.index, (now, gpu.pcie_replays))
        if now - since < 60:
            return
        self._replays[gpu.index] = (now, gpu.pcie_replays)
        judge.at_most(
            "pcie_replays_per_minute",
            round((gpu.pcie_replays - before) * 60 / (now - since), 1),
            PCIE_ADVICE,
        )

    def _judge_foreign(self, judge: Judge, gpu: GpuReading, family: frozenset[int]) -> None:
        """Processes beside the job. One we cannot see may be a rank itself: PIDs of another namespace."""
        foreign = [process for process in gpu.processes or () if process.name and process.pid not in family]
        judge.at_most(
            "others_memory_mib",
            sum(process.memory_bytes or 0 for process in foreign) // MIB,
            f"in use by {', '.join(map(describe, foreign))} beside this job: it will be slow",
        )

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


def figures_of(gpus: tuple[GpuReading, ...], machine: HostReading) -> Figures:
    """The figures of a look: gpuN/... for each GPU, host/...; what was not read is left out."""
    figures: dict[str, float] = {
        "host/memory_available_gib": machine.memory_available / GIB,
        "host/swap_used_gib": machine.swap_used / GIB,
        "host/load": machine.load,
        "host/disk_free_gib": machine.disk_free / GIB,
    }
    for gpu in gpus:
        used = gpu.memory_used_bytes
        values = {
            "utilisation_percent": gpu.utilisation_percent,
            "memory_used_gib": None if used is None else used / GIB,
            "temperature_c": gpu.temperature_c,
            "power_w": gpu.power_w,
        }
        figures |= {
            f"{gpu.device}/{name}": float(value) for name, value in values.items() if value is not None
        }
    return figures
