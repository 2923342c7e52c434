"""What this host has left: memory, swap, disk, /dev/shm, files, load, cores, clock; and what that means."""

from __future__ import annotations

import ctypes
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

from alphazero.health.findings import Finding, Severity
from alphazero.health.thresholds import HostThresholds
from alphazero.host.machine import count_cores
from alphazero.host.memory import HostMemory

MIB = 1 << 20
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
