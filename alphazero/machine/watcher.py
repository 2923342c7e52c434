"""Health during training, watched by a thread: figures of the host, and each fault to the log once."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from alphazero.machine.health import is_visible
from alphazero.machine.judge import Finding, Severity, judge_gpus, judge_host, judge_nvml, judge_xid
from alphazero.machine.memory import read_host
from alphazero.machine.nvml import GpuReading, Nvml, NvmlUnusable, XidEvents, expects_gpus, open_nvml

GIB = 1 << 30
TakeUsage = Callable[[Sequence[GpuReading]], None]
STOP_S = 5.0


@dataclass(eq=False)
class HealthWatcher:
    """Looks at this host every `interval_s` while a job runs; one per host, on local rank 0.

    report: gets the host's figures by name (host/load) at each look, called on the watcher's thread. say:
    gets each fault once. device: as in check_this_host. tick_s: how often `take_usage` gets how the GPUs are
    used, and Xid events are taken. Whatever goes wrong here is such a finding too and never reaches the job.
    """

    interval_s: float
    report: Callable[[Mapping[str, float]], None]
    say: Callable[[Finding], None]
    _: KW_ONLY
    directory: Path
    device: str = "auto"
    take_usage: TakeUsage | None = None
    tick_s: float = 1.0

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
            next_look = time.monotonic()
            while not self._stopping.is_set():
                if (now := time.monotonic()) >= next_look:
                    next_look = now + self.interval_s
                    self._guarded(lambda: self._look(nvml))
                elif nvml is not None:
                    self._guarded(lambda: self._read_usage(nvml))
                if events is not None:
                    self._guarded(lambda: self._take_events(events))
                self._stopping.wait(min(self.tick_s, self.interval_s))

    def _look(self, nvml: Nvml | None) -> None:
        gpus = self._named(nvml.gpus()) if nvml is not None else []
        host = read_host(self.directory)
        findings = judge_gpus(gpus, self._host, running=True)
        findings += judge_host(host, self._host, num_gpus=0, running=True)
        for finding in findings:
            self._report_once(finding)
        if self.take_usage:
            self.take_usage(gpus)
        figures = {
            "host/memory_available_gib": host.memory_available / GIB,
            "host/swap_used_gib": host.swap_used / GIB,
            "host/load": host.load,
        }
        if host.disk_free is not None:
            figures["host/disk_free_gib"] = host.disk_free / GIB
        self.report(figures)

    def _read_usage(self, nvml: Nvml) -> None:
        if self.take_usage:
            visible = [index for index, gpu in self._known.items() if is_visible(gpu)]
            self.take_usage(self._named(map(nvml.usage, visible)))

    def _take_events(self, events: XidEvents) -> None:
        while event := events.next():
            index, xid = event
            gpu = self._known.get(index, GpuReading(index))
            if is_visible(gpu):
                self._report_once(judge_xid(xid, gpu, self._host))

    def _named(self, gpus: Iterable[GpuReading]) -> list[GpuReading]:
        """Those that this process may use; a lost GPU keeps the UUID and name it had."""
        named = []
        for gpu in gpus:
            known = self._known.get(gpu.index)
            if known is None or gpu.uuid:
                self._known[gpu.index] = known = gpu
            named.append(replace(gpu, uuid=known.uuid, name=known.name))
        return list(filter(is_visible, named))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do it; an exception becomes one finding."""
        try:
            action()
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            advice = "health is not fully watched; the job continues"
            self._report_once(Finding(Severity.UNKNOWN, self._host, "", "", "watcher", what, None, advice))

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
