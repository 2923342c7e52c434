"""What readings of GPUs and of the host mean: findings by the thresholds, each fault with its advice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from alphazero.machine.findings import Finding, GpuThresholds, HostThresholds, Severity
from alphazero.machine.memory import HostReading
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


@dataclass(frozen=True)
class Judge:
    """Makes the findings of a host, or of one of its GPUs, by a section of the thresholds."""

    host: str
    thresholds: GpuThresholds | HostThresholds
    gpu: GpuReading | None = None
    findings: list[Finding] = field(default_factory=list)

    def add(
        self,
        severity: Severity,
        name: str,
        value: float | str | None,
        threshold: float | str | None,
        advice: str,
    ) -> None:
        """One finding."""
        advice = advice if severity is not Severity.OK else ""
        device, uuid = (self.gpu.device, self.gpu.uuid) if self.gpu else ("", "")
        self.findings.append(Finding(severity, self.host, device, uuid, name, value, threshold, advice))

    def unknown(self, name: str) -> None:
        """A value that the driver or the system does not report: never a pass."""
        why = "this system does not report it"
        if self.gpu is not None:
            why = f"NVML: {dict(self.gpu.unread).get(name, 'not reported')}"
        self.add(Severity.UNKNOWN, name, None, None, why)

    def at_least(self, name: str, value: float | None, advice: str) -> None:
        """A warning where `value` is below the threshold NAME_warn, a failure below NAME_fail."""
        warn = getattr(self.thresholds, f"{name}_warn")
        fail = getattr(self.thresholds, f"{name}_fail", 0)
        if value is None:
            self.unknown(name)
        elif value < fail:
            self.add(Severity.FAIL, name, value, fail, advice)
        else:
            self.add(Severity.WARN if value < warn else Severity.OK, name, value, warn, advice)

    def at_most(self, name: str, value: float | None, advice: str) -> None:
        """A fault where `value` is at or over NAME_warn or NAME_fail, whichever threshold there is."""
        severity = Severity.FAIL if hasattr(self.thresholds, f"{name}_fail") else Severity.WARN
        threshold = getattr(self.thresholds, f"{name}_{severity.word}")
        if value is None:
            self.unknown(name)
        else:
            self.add(severity if value >= threshold else Severity.OK, name, value, threshold, advice)

    def is_as_wanted(
        self,
        name: str,
        value: bool | None,
        wanted: bool | None,
        severity: Severity,
        advice: str,
        words: tuple[str, str] = ("no", "yes"),
    ) -> None:
        """`severity` where `value` is not as wanted; None for wanted: either will do."""
        if value is None:
            self.unknown(name)
            return
        is_fault = wanted is not None and value is not wanted
        threshold = None if wanted is None else words[wanted]
        self.add(severity if is_fault else Severity.OK, name, words[value], threshold, advice)


def judge_nvml(error: NvmlUnusable, host: str, device_present: bool) -> Finding:
    """NVML that cannot be used: a failure where a device exists, else no fault of a CPU host.

    A library without a driver (an image made for GPUs) is unknown where no device shows itself.
    """
    if not device_present and error.code in (None, LIBRARY_NOT_FOUND):
        return Finding(Severity.OK, host, "", "", "nvml", "no NVIDIA device", None, "")
    is_unknown = not device_present and error.code == DRIVER_NOT_LOADED
    severity = Severity.UNKNOWN if is_unknown else Severity.FAIL
    known = INIT_ADVICE.get(error.code, "see dmesg | grep -i nvidia, then reboot the host")
    return Finding(severity, host, "", "", "nvml", error.reason, None, known)


def judge_gpus(
    readings: Sequence[GpuReading], thresholds: GpuThresholds, host: str, own_pids: Collection[int]
) -> list[Finding]:
    """Findings of all `readings`, of idle devices that a job is to start on; `own_pids` may use them."""
    any_link = any(link.active for reading in readings for link in reading.nvlinks or ())
    findings: list[Finding] = []
    for reading in readings:
        judge = Judge(host, thresholds, reading)
        if judge_state(judge, reading, thresholds, any_link):
            _judge_counters(judge, reading, thresholds)
            _judge_others(judge, reading, own_pids)
        findings += judge.findings
    return findings


PCIE_ADVICE = "the PCIe link is noisy: reseat the device, check risers"


def judge_state(judge: Judge, reading: GpuReading, thresholds: GpuThresholds, any_link: bool) -> bool:
    """What can turn bad at any time, training included; False where the device is lost."""
    if reading.lost:
        advice = "power-cycle the host (a reset is seldom enough); see dmesg | grep Xid"
        judge.add(Severity.FAIL, "answers", reading.lost, None, advice)
        return False
    judge.add(Severity.OK, "answers", "yes", None, "")
    for name, advice in MEMORY_FAULTS.items():
        if hasattr(thresholds, f"{name}_fail"):
            judge.at_most(name, getattr(reading, name), advice)
        else:
            judge.is_as_wanted(name, getattr(reading, name), False, Severity.FAIL, advice)
    temperature_c, limit_c = reading.temperature_c, reading.slowdown_temperature_c
    judge.at_most("temperature_c", temperature_c, "check fans, air flow and room temperature")
    if temperature_c is not None and limit_c:  # some devices report 0
        severity = Severity.FAIL if temperature_c >= limit_c else Severity.OK
        advice = "the device slows itself down: stop the load, check its cooling"
        judge.add(severity, "slowdown_temperature_c", temperature_c, limit_c, advice)
    _judge_clocks(judge, reading, thresholds)
    _judge_nvlinks(judge, reading, thresholds, any_link)
    _judge_pcie_width(judge, reading)
    return True


RESET = "nvidia-smi --gpu-reset -i N on the idle device, or reboot"
# What to do, by the reading that reaches its threshold or, where there is none, is true.
MEMORY_FAULTS = {
    "ecc_uncorrected_volatile": f"data on the device was wrong: {RESET}; run diagnostics if it comes again",
    "remap_pending": f"rows wait to be remapped: {RESET}",
    "remap_failed": "no spare rows: replace the device",
    "retired_pages": "its memory wears out: replace the device",
    "retired_pages_pending": f"pages wait to be retired: {RESET}",
}


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
    ecc_advice = "memory errors go unseen: nvidia-smi -e 1, then reboot"
    wanted = thresholds.wants_ecc or None
    judge.is_as_wanted("ecc_enabled", reading.ecc_enabled, wanted, Severity.WARN, ecc_advice)
    judge.at_most(
        "ecc_uncorrected_aggregate",
        reading.ecc_uncorrected_aggregate,
        "many uncorrectable errors in the device's life: run diagnostics",
    )
    if reading.nvlinks is not None:
        errors = [link.errors for link in reading.nvlinks if link.errors is not None]
        judge.at_most(
            "nvlink_errors",
            sum(errors) if errors else None,
            "replays, recoveries or CRC errors: check the bridge or switch (nvidia-smi nvlink -e)",
        )
    judge.at_most("pcie_replays", reading.pcie_replays, PCIE_ADVICE)


def _judge_others(judge: Judge, reading: GpuReading, own_pids: Collection[int]) -> None:
    """Memory that is not ours, by a process that NVML lists or not (one in another container)."""
    if reading.processes is None and reading.memory_used_bytes is None:
        judge.unknown("processes")
        return
    processes = reading.processes or ()
    own = sum(process.memory_bytes or 0 for process in processes if process.pid in own_pids)
    foreign = [process for process in processes if process.pid not in own_pids]
    listed = sum(process.memory_bytes or 0 for process in foreign)
    others = max((reading.memory_used_bytes or 0) - own, listed)
    by = ", ".join(map(describe, foreign)) or "no process that NVML lists"
    judge.at_most(
        "others_memory_mib",
        others // MIB,
        f"in use by {by}: wait for it, or choose other devices with CUDA_VISIBLE_DEVICES",
    )


def describe(process: Process) -> str:
    """pid, name and memory of a process."""
    name = process.name or "outside this container"
    memory = "memory unknown" if process.memory_bytes is None else f"{process.memory_bytes // MIB} MiB"
    return f"pid {process.pid} ({name}, {memory})"


def judge_xid(xid: int, reading: GpuReading, thresholds: GpuThresholds, host: str) -> Finding:
    """An Xid event that arrived during training."""
    severity = Severity.FAIL if xid in thresholds.xids_fail else Severity.WARN
    advice = XIDS.get(xid, "see NVIDIA's Xid documentation and dmesg | grep Xid")
    return Finding(severity, host, reading.device, reading.uuid, f"xid_{xid}", xid, None, advice)


# What must be left: by reading in MiB or as a number, its advice.
LEFT = {
    "memory_available_mib": "end other programs, or run fewer processes here",
    "disk_free_mib": "make room in {directory}, or choose another with --runs-dir",
    "inodes_free": "too many files on the disk of {directory}: remove some (df -i)",
    "shm_free_mib": "NCCL needs it: docker run --shm-size=1g or --ipc=host, or "
    "mount -o remount,size=1G /dev/shm",
    "open_files": "ulimit -n 65536 (or LimitNOFILE, or /etc/security/limits.conf)",
}


def judge_host(reading: HostReading, thresholds: HostThresholds, host: str, num_gpus: int) -> list[Finding]:
    """Findings of the host itself."""
    judge = Judge(host, thresholds)
    for name, advice in LEFT.items():
        if name == "shm_free_mib" and not num_gpus:
            continue  # gloo needs none
        value = getattr(reading, name.removesuffix("_mib"))
        if value is not None and name.endswith("_mib"):
            value //= MIB
        judge.at_least(name, value, advice.format(directory=reading.directory))
    swap_percent = 100 * reading.swap_used / reading.swap_total if reading.swap_total else 0.0
    advice = "memory is being swapped to disk, which is slow: end other programs"
    judge.at_most("swap_used_percent", round(swap_percent, 1), advice)
    advice = "other programs use the cores, and training will be slower (see top)"
    judge.at_most("load_per_core", round(reading.load / reading.cores, 2), advice)
    judge.is_as_wanted(
        "clock",
        reading.clock_synchronised,
        thresholds.wants_synchronised_clock or None,
        Severity.WARN,
        "nothing keeps the clock right, so that logs of several hosts do not fit together: start chrony, "
        "ntpd or systemd-timesyncd",
        ("on its own", "synchronised"),
    )
    if num_gpus:
        per_gpu = round(reading.cores / num_gpus, 2)
        advice = "too few cores to feed the GPUs: give the container or the job more"
        judge.at_least("cores_per_gpu", per_gpu, advice)
    return judge.findings
