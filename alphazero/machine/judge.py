"""What readings of GPUs mean: findings by the thresholds, each fault with one line of advice.

What this host has left: memory, swap, disk, /dev/shm, files, load, cores, clock; and what that means.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from alphazero.machine.findings import Finding, GpuThresholds, HostThresholds, Severity
from alphazero.machine.machine import count_cores
from alphazero.machine.memory import HostMemory
from alphazero.machine.nvml import GpuReading, NvmlUnusable, Process

MIB = 1 << 20

# NVML error codes (nvml.h); pynvml may be missing where they are judged.
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
VERSION_MISMATCH = 18

INIT_ADVICE = {
    None: "install the project's dependencies (make setup)",
    DRIVER_NOT_LOADED: "the driver is not loaded: modprobe nvidia, then dmesg | grep -i nvidia",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not there: install the driver, or start the container with GPUs",
    VERSION_MISMATCH: "driver and library are of different versions, as after an update: reboot the host",
}

# From NVIDIA's Xid documentation, in a few words each.
XIDS = {
    13: "fault of a program: graphics engine exception",
    31: "fault of a program: memory page fault",
    43: "fault of a program: a channel was reset",
    45: "a program was ended on the device",
    48: "double bit ECC error: reset the device",
    62: "internal micro-controller halt: reset the device",
    63: "rows are to be remapped: reset the device when idle",
    64: "rows could not be remapped: replace the device if it comes again",
    74: "NVLink error: check the bridge or switch, reset the device",
    79: "the device has fallen off the bus: power-cycle the host, check seat, power and cooling",
    92: "many single bit ECC errors: run diagnostics",
    94: "contained ECC error: the program on it was ended, reset the device when idle",
    95: "uncontained ECC error: reset the device now",
    119: "the GPU's system processor does not answer: reset the device or reboot",
    120: "the GPU's system processor failed: reset the device or reboot",
}


class Judge:
    """Makes the findings of one GPU; `host` is put into each."""

    def __init__(self, reading: GpuReading, host: str) -> None:
        self._reading = reading
        self._host = host
        self._unread = dict(reading.unread)
        self.findings: list[Finding] = []

    def add(
        self,
        severity: Severity,
        name: str,
        value: float | str | None,
        threshold: float | str | None,
        advice: str,
    ) -> None:
        """One finding."""
        reading = self._reading
        self.findings.append(
            Finding(
                severity,
                self._host,
                reading.device,
                reading.uuid,
                name,
                value,
                threshold,
                advice if severity is not Severity.OK else "",
            )
        )

    def unknown(self, name: str) -> None:
        """What the driver did not tell: never a pass."""
        self.add(Severity.UNKNOWN, name, None, None, f"NVML: {self._unread.get(name, 'not told')}")

    def at_most(
        self, name: str, value: float | None, threshold: float, severity: Severity, advice: str
    ) -> None:
        """`severity` where `value` is at or over `threshold`."""
        if value is None:
            self.unknown(name)
        else:
            self.add(severity if value >= threshold else Severity.OK, name, value, threshold, advice)

    def must_not(self, name: str, value: bool | None, severity: Severity, advice: str) -> None:
        """`severity` where `value` is true."""
        if value is None:
            self.unknown(name)
        else:
            self.add(severity if value else Severity.OK, name, "yes" if value else "no", "no", advice)


def judge_nvml(error: NvmlUnusable, host: str, device_present: bool) -> Finding:
    """NVML that cannot be used: a failure where a device is there, else no fault of a CPU host.

    A library without a driver (an image made for GPUs) is unknown where no device shows itself.
    """
    known = INIT_ADVICE.get(error.code, "see dmesg | grep -i nvidia, then reboot the host")
    if device_present:
        severity = Severity.FAIL
    elif error.code in (None, LIBRARY_NOT_FOUND):
        return Finding(Severity.OK, host, "", "", "nvml", "no NVIDIA device", None, "")
    elif error.code == DRIVER_NOT_LOADED:
        severity = Severity.UNKNOWN
    else:
        severity = Severity.FAIL
    return Finding(severity, host, "", "", "nvml", error.reason, None, known)


def judge_gpus(
    readings: Sequence[GpuReading], thresholds: GpuThresholds, host: str, own_pids: Collection[int]
) -> list[Finding]:
    """Findings of all `readings`, of idle devices that a job is to start on; `own_pids` may use them."""
    any_link = any(link.active for reading in readings for link in reading.nvlinks or ())
    findings: list[Finding] = []
    for reading in readings:
        judge = Judge(reading, host)
        if judge_state(judge, reading, thresholds, any_link):
            _judge_counters(judge, reading, thresholds)
            _judge_others(judge, reading, thresholds, own_pids)
        findings += judge.findings
    return findings


def judge_state(judge: Judge, reading: GpuReading, thresholds: GpuThresholds, any_link: bool) -> bool:
    """What can turn bad at any time, training included; False where the device is lost."""
    if reading.lost:
        judge.add(
            Severity.FAIL,
            "answers",
            reading.lost,
            None,
            "power-cycle the host (a reset is seldom enough); see dmesg | grep Xid",
        )
        return False
    judge.add(Severity.OK, "answers", "yes", None, "")
    _judge_memory_faults(judge, reading, thresholds)
    judge.at_most(
        "temperature_c",
        reading.temperature_c,
        thresholds.temperature_c_warn,
        Severity.WARN,
        "check fans, air flow and room temperature",
    )
    if reading.temperature_c is not None and reading.slowdown_temperature_c:  # some devices tell 0
        judge.at_most(
            "slowdown_temperature_c",
            reading.temperature_c,
            reading.slowdown_temperature_c,
            Severity.FAIL,
            "the device slows itself down: stop the load, check its cooling",
        )
    _judge_clocks(judge, reading, thresholds)
    _judge_nvlinks(judge, reading, thresholds, any_link)
    _judge_pcie_width(judge, reading)
    return True


def _judge_memory_faults(judge: Judge, reading: GpuReading, thresholds: GpuThresholds) -> None:
    reset = "nvidia-smi --gpu-reset -i N on the idle device, or reboot"
    judge.at_most(
        "ecc_uncorrected_volatile",
        reading.ecc_uncorrected_volatile,
        thresholds.ecc_uncorrected_volatile_fail,
        Severity.FAIL,
        f"data on the device was wrong: {reset}; run diagnostics if it comes again",
    )
    judge.must_not(
        "remap_pending", reading.remap_pending, Severity.FAIL, f"rows wait to be remapped: {reset}"
    )
    judge.must_not("remap_failed", reading.remap_failed, Severity.FAIL, "no spare rows: replace the device")
    judge.at_most(
        "retired_pages",
        reading.retired_pages,
        thresholds.retired_pages_fail,
        Severity.FAIL,
        "its memory wears out: replace the device",
    )
    judge.must_not(
        "retired_pages_pending",
        reading.retired_pages_pending,
        Severity.FAIL,
        f"pages wait to be retired: {reset}",
    )


def _judge_clocks(judge: Judge, reading: GpuReading, thresholds: GpuThresholds) -> None:
    if reading.clock_reasons is None:
        judge.unknown("clock_reasons")
        return
    faults = [name for name in reading.clock_reasons if name not in thresholds.harmless_clock_reasons]
    judge.add(
        Severity.WARN if faults else Severity.OK,
        "clock_reasons",
        ", ".join(faults or reading.clock_reasons) or "none",
        None,
        "the device is slowed down: check its cooling and power supply (nvidia-smi -q -d PERFORMANCE)",
    )


def _judge_nvlinks(judge: Judge, reading: GpuReading, thresholds: GpuThresholds, any_link: bool) -> None:
    if reading.nvlinks is None:
        judge.unknown("nvlinks")
        return
    inactive = [str(link.number) for link in reading.nvlinks if not link.active]
    severity = Severity.FAIL if any_link else Severity.WARN
    judge.add(
        severity if len(inactive) >= thresholds.inactive_nvlinks_fail else Severity.OK,
        "nvlinks",
        f"inactive: {', '.join(inactive)}" if inactive else f"{len(reading.nvlinks)} active",
        f"{thresholds.inactive_nvlinks_fail} inactive",
        "check nvidia-fabricmanager and the bridge or switch, then reset the device"
        if any_link
        else "no NVLink of this host is active: right without a bridge, GPUs then talk over PCIe",
    )


def _judge_pcie_width(judge: Judge, reading: GpuReading) -> None:
    width, most = reading.pcie_width, reading.pcie_width_max
    if width is None or most is None:
        judge.unknown("pcie_width" if width is None else "pcie_width_max")
        return
    judge.add(
        Severity.WARN if width < most else Severity.OK,
        "pcie_width",
        width,
        most,
        "fewer PCIe lanes than device and slot have: reseat the device",
    )


def _judge_counters(judge: Judge, reading: GpuReading, thresholds: GpuThresholds) -> None:
    """Counters over the device's life or since its reset, and settings: news before a job, not within it."""
    if reading.ecc_enabled is None:
        judge.unknown("ecc_enabled")
    else:
        off = not reading.ecc_enabled and thresholds.wants_ecc
        judge.add(
            Severity.WARN if off else Severity.OK,
            "ecc_enabled",
            "yes" if reading.ecc_enabled else "no",
            "yes" if thresholds.wants_ecc else None,
            "memory errors go unseen: nvidia-smi -e 1, then reboot",
        )
    judge.at_most(
        "ecc_uncorrected_aggregate",
        reading.ecc_uncorrected_aggregate,
        thresholds.ecc_uncorrected_aggregate_warn,
        Severity.WARN,
        "many uncorrectable errors in the device's life: run diagnostics",
    )
    if reading.nvlinks is not None:
        told = [link.errors for link in reading.nvlinks if link.errors is not None]
        judge.at_most(
            "nvlink_errors",
            sum(told) if told else None,
            thresholds.nvlink_errors_warn,
            Severity.WARN,
            "replays, recoveries or CRC errors: check the bridge or switch (nvidia-smi nvlink -e)",
        )
    judge.at_most(
        "pcie_replays",
        reading.pcie_replays,
        thresholds.pcie_replays_warn,
        Severity.WARN,
        "the PCIe link is noisy: reseat the device, check risers",
    )


def _judge_others(
    judge: Judge, reading: GpuReading, thresholds: GpuThresholds, own_pids: Collection[int]
) -> None:
    """Memory that is not ours, by a process that NVML lists or not (one in another container)."""
    if reading.processes is None and reading.memory_used_bytes is None:
        judge.unknown("processes")
        return
    processes = reading.processes or ()
    own = sum(process.memory_bytes or 0 for process in processes if process.pid in own_pids)
    foreign = [process for process in processes if process.pid not in own_pids]
    listed = sum(process.memory_bytes or 0 for process in foreign)
    others = max((reading.memory_used_bytes or 0) - own, listed)
    by = ", ".join(map(describe, foreign)) or "nobody NVML lists"
    judge.at_most(
        "others_memory_mib",
        others // MIB,
        thresholds.others_memory_mib_warn,
        Severity.WARN,
        f"in use by {by}: wait for it, or choose other devices with CUDA_VISIBLE_DEVICES",
    )


def describe(process: Process) -> str:
    """pid, name and memory of a process."""
    name = process.name or "outside this container"
    memory = "memory not told" if process.memory_bytes is None else f"{process.memory_bytes // MIB} MiB"
    return f"pid {process.pid} ({name}, {memory})"


def judge_xid(xid: int, reading: GpuReading, thresholds: GpuThresholds, host: str) -> Finding:
    """An Xid event that arrived during training."""
    judge = Judge(reading, host)
    judge.add(
        Severity.FAIL if xid in thresholds.xids_fail else Severity.WARN,
        f"xid_{xid}",
        xid,
        None,
        XIDS.get(xid, "see NVIDIA's Xid documentation and dmesg | grep Xid"),
    )
    return judge.findings[0]


SHARED_MEMORY = Path("/dev/shm")
STA_UNSYNC = 0x0040  # linux/timex.h


@dataclass(frozen=True)
class HostReading:
    """This host now; None is what it does not tell. Sizes in bytes.

    memory_available: what this process can still get, a container's limit counted.
    directory: the nearest existing directory above where the run will be written.
    clock_synchronised: whether something (NTP, PTP) keeps the kernel's clock.
    """

    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    directory: str
    disk_free: int
    inodes_free: int | None
    shm_free: int | None
    open_files: int
    load: float
    cores: int
    clock_synchronised: bool | None


def read_host(directory: Path) -> HostReading:
    """Look at this host; `directory` is where the run will be written, it need not exist yet."""
    memory = HostMemory().check()
    swap = psutil.swap_memory()
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    disk = os.statvfs(existing)
    return HostReading(
        memory_total=memory.total_bytes,
        memory_available=memory.available_bytes,
        swap_total=swap.total,
        swap_used=swap.used,
        directory=str(existing),
        disk_free=disk.f_bavail * disk.f_frsize,
        # File systems without a table of inodes (btrfs) tell 0 of 0.
        inodes_free=disk.f_favail if disk.f_files else None,
        shm_free=psutil.disk_usage(str(SHARED_MEMORY)).free if SHARED_MEMORY.is_dir() else None,
        open_files=_open_files(),
        load=os.getloadavg()[0],
        cores=count_cores(),
        clock_synchronised=_clock_synchronised(),
    )


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


class _Timex(ctypes.Structure):
    """The beginning of struct timex (adjtimex(2)), with room for what follows."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("max_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def _clock_synchronised() -> bool | None:
    """Whether the kernel's clock is kept by NTP or the like; None where it does not tell."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = _Timex()  # modes 0: only read, needs no privilege
    if adjtimex(ctypes.byref(state)) < 0:
        return None
    return not state.status & STA_UNSYNC


def judge_host(reading: HostReading, thresholds: HostThresholds, host: str, num_gpus: int) -> list[Finding]:
    """Findings of the host itself."""
    t = thresholds
    findings = [
        _left(
            host,
            "memory_available_mib",
            reading.memory_available // MIB,
            (t.memory_available_mib_warn, t.memory_available_mib_fail),
            "end other programs, or run fewer processes here",
        ),
        _left(
            host,
            "disk_free_mib",
            reading.disk_free // MIB,
            (t.disk_free_mib_warn, t.disk_free_mib_fail),
            f"make room in {reading.directory}, or choose another with --runs-dir",
        ),
        _left(
            host,
            "inodes_free",
            reading.inodes_free,
            (t.inodes_free_warn, t.inodes_free_fail),
            f"too many files on the disk of {reading.directory}: remove some (df -i)",
        ),
        _left(
            host,
            "shm_free_mib",
            None if reading.shm_free is None else reading.shm_free // MIB,
            (t.shm_free_mib_warn, t.shm_free_mib_fail),
            "NCCL needs it: docker run --shm-size=1g or --ipc=host, or mount -o remount,size=1G /dev/shm",
        ),
        _left(
            host,
            "open_files",
            reading.open_files,
            (t.open_files_warn, t.open_files_fail),
            "ulimit -n 65536 (or LimitNOFILE, or /etc/security/limits.conf)",
        ),
    ]
    swap_percent = 100 * reading.swap_used / reading.swap_total if reading.swap_total else 0.0
    findings += [
        _over(
            host,
            "swap_used_percent",
            round(swap_percent, 1),
            t.swap_used_percent_warn,
            "memory is being swapped to disk, which is slow: end other programs",
        ),
        _over(
            host,
            "load_per_core",
            round(reading.load / reading.cores, 2),
            t.load_per_core_warn,
            "other programs use the cores, and training will be slower (see top)",
        ),
        _clock(host, reading.clock_synchronised, t.wants_synchronised_clock),
    ]
    if num_gpus:
        findings.append(
            _left(
                host,
                "cores_per_gpu",
                round(reading.cores / num_gpus, 2),
                (t.cores_per_gpu_warn, 0),
                "too few cores to feed the GPUs: give the container or the job more",
            )
        )
    return findings


def _left(host: str, name: str, value: float | None, limits: tuple[float, float], advice: str) -> Finding:
    """A finding on something of which less than limits (warn, fail) is too little."""
    warn, fail = limits
    if value is None:
        return Finding(Severity.UNKNOWN, host, "", "", name, None, None, "this system does not tell")
    if value < fail:
        return Finding(Severity.FAIL, host, "", "", name, value, fail, advice)
    severity = Severity.WARN if value < warn else Severity.OK
    return Finding(severity, host, "", "", name, value, warn, advice if value < warn else "")


def _over(host: str, name: str, value: float, warn: float, advice: str) -> Finding:
    severity = Severity.WARN if value >= warn else Severity.OK
    return Finding(severity, host, "", "", name, value, warn, advice if value >= warn else "")


def _clock(host: str, synchronised: bool | None, wanted: bool) -> Finding:
    if synchronised is None:
        advice = "the kernel does not tell whether its clock is kept"
        return Finding(Severity.UNKNOWN, host, "", "", "clock", None, None, advice)
    bad = wanted and not synchronised
    return Finding(
        Severity.WARN if bad else Severity.OK,
        host,
        "",
        "",
        "clock",
        "synchronised" if synchronised else "on its own",
        "synchronised" if wanted else None,
        "nothing keeps the clock right, so that logs of several hosts do not fit together: start chrony, "
        "ntpd or systemd-timesyncd"
        if bad
        else "",
    )
