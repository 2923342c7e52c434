"""What readings of GPUs and of the host mean: findings by the thresholds, each fault with its advice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from alphazero.machine.findings import Finding, GpuThresholds, HostThresholds, Severity
from alphazero.machine.memory import HostReading
from alphazero.machine.nvml import GpuReading, NvmlUnusable, Process

MIB = 1 << 20
FAULTS = (Severity.FAIL, Severity.WARN)

# NVML error codes (nvml.h); pynvml may be missing where they are judged.
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH = 9, 12, 18
INIT_ADVICE = {
    None: "install the project's dependencies (make setup)",
    DRIVER_NOT_LOADED: "the driver is not loaded: modprobe nvidia, then dmesg | grep -i nvidia",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not there: install the driver, or start the container with GPUs",
    VERSION_MISMATCH: "driver and library are of different versions, as after an update: reboot the host",
}
RESET = "nvidia-smi --gpu-reset -i N on the idle device, or reboot"
# What to do where a reading of a GPU reaches its limit, or is true.
GPU_ADVICE = {
    "ecc_uncorrected_volatile": f"data on the device was wrong: {RESET}; run diagnostics if it comes again",
    "remap_pending": f"rows wait to be remapped: {RESET}",
    "remap_failed": "no spare rows: replace the device",
    "retired_pages": "its memory wears out: replace the device",
    "retired_pages_pending": f"pages wait to be retired: {RESET}",
    "temperature_c": "check fans, air flow and room temperature",
}
# What to do where too little is left on the host, by reading in MiB or as a number.
LEFT_ADVICE = {
    "memory_available_mib": "end other programs, or run fewer processes here",
    "disk_free_mib": "make room in {directory}, or choose another with --runs-dir",
    "inodes_free": "too many files on the disk of {directory}: remove some (df -i)",
    "shm_free_mib": "NCCL needs it: docker run --shm-size=1g or --ipc=host",
    "open_files": "ulimit -n 65536 (or LimitNOFILE, or /etc/security/limits.conf)",
}
# Little of these is a warning before a start; during a job only a failure.
JUDGED_BY_ALARMS = ("disk_free_mib", "memory_available_mib")


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
        threshold: float | str | None = None,
        advice: str = "",
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
        self.add(Severity.UNKNOWN, name, None, advice=why)

    def limit(self, name: str, value: float | None, advice: str, *, least: bool = False) -> None:
        """A fault where `value` is at or over the threshold NAME_fail or NAME_warn; with `least` below it.

        A truth value has no threshold: it is a failure where it is true.
        """
        if value is None:
            self.unknown(name)
            return
        if isinstance(value, bool):
            self.add(Severity.FAIL if value else Severity.OK, name, "yes" if value else "no", None, advice)
            return
        named = {kind: getattr(self.thresholds, f"{name}_{kind.word}", None) for kind in FAULTS}
        limits = {severity: limit for severity, limit in named.items() if limit is not None}
        for severity, limit in limits.items():
            if value < limit if least else value >= limit:
                self.add(severity, name, value, limit, advice)
                return
        self.add(Severity.OK, name, value, list(limits.values())[-1])


def judge_nvml(error: NvmlUnusable, host: str, device_present: bool) -> Finding:
    """NVML that cannot be used: a failure where a device exists, else no fault of a CPU host.

    A library without a driver (an image made for GPUs) is unknown where no device shows itself.
    """
    if not device_present and error.code in (None, LIBRARY_NOT_FOUND):
        return Finding(Severity.OK, host, "", "", "nvml", "no NVIDIA device", None, "")
    is_unknown = not device_present and error.code == DRIVER_NOT_LOADED
    severity = Severity.UNKNOWN if is_unknown else Severity.FAIL
    known = INIT_ADVICE.get(error.code, "see dmesg | grep -i nvidia, then reboot the host")
    return Finding(severity, host, "", "", "nvml", str(error), None, known)


def judge_gpus(
    readings: Sequence[GpuReading],
    thresholds: GpuThresholds,
    host: str,
    own_pids: Collection[int],
    *,
    running: bool = False,
) -> list[Finding]:
    """Findings of all `readings`; `own_pids` may use the devices. running: a job trains on them."""
    any_link = any(link.active for reading in readings for link in reading.nvlinks or ())
    findings: list[Finding] = []
    for reading in readings:
        judge = Judge(host, thresholds, reading)
        if reading.lost:
            advice = "power-cycle the host (a reset is seldom enough); see dmesg | grep Xid"
            judge.add(Severity.FAIL, "answers", reading.lost, None, advice)
        else:
            judge.add(Severity.OK, "answers", "yes")
            for name, advice in GPU_ADVICE.items():
                judge.limit(name, getattr(reading, name), advice)
            _judge_clocks(judge, reading, thresholds)
            _judge_nvlinks(judge, reading, thresholds, any_link)
            _judge_others(judge, reading, own_pids, running)
        findings += judge.findings
    return findings


def _judge_clocks(judge: Judge, reading: GpuReading, thresholds: GpuThresholds) -> None:
    if reading.clock_reasons is None:
        judge.unknown("clock_reasons")
        return
    faults = [name for name in reading.clock_reasons if name not in thresholds.harmless_clock_reasons]
    value = ", ".join(faults or reading.clock_reasons) or "none"
    advice = "the device is slowed down: check its cooling and power supply (nvidia-smi -q -d PERFORMANCE)"
    judge.add(Severity.WARN if faults else Severity.OK, "clock_reasons", value, None, advice)


def _judge_nvlinks(judge: Judge, reading: GpuReading, thresholds: GpuThresholds, any_link: bool) -> None:
    if reading.nvlinks is None:
        judge.unknown("nvlinks")
        return
    inactive = [str(link.number) for link in reading.nvlinks if not link.active]
    severity = Severity.FAIL if any_link else Severity.WARN
    advice = "no NVLink of this host is active: right without a bridge, GPUs then talk over PCIe"
    if any_link:
        advice = "check nvidia-fabricmanager and the bridge or switch, then reset the device"
    judge.add(
        severity if len(inactive) >= thresholds.inactive_nvlinks_fail else Severity.OK,
        "nvlinks",
        f"inactive: {', '.join(inactive)}" if inactive else f"{len(reading.nvlinks)} active",
        f"{thresholds.inactive_nvlinks_fail} inactive",
        advice,
    )


def _judge_others(judge: Judge, reading: GpuReading, own_pids: Collection[int], running: bool) -> None:
    """Memory that is not ours, by a process that NVML lists or not (one in another container).

    During a job a process without a name may be a rank itself, its PID that of another namespace.
    """
    if reading.processes is None and reading.memory_used_bytes is None:
        judge.unknown("processes")
        return
    processes = reading.processes or ()
    foreign = [
        process for process in processes if process.pid not in own_pids and (process.name or not running)
    ]
    others = sum(process.memory_bytes or 0 for process in foreign)
    if not running:
        own = sum(process.memory_bytes or 0 for process in processes if process.pid in own_pids)
        others = max((reading.memory_used_bytes or 0) - own, others)
    by = ", ".join(map(_described, foreign)) or "no process that NVML lists"
    advice = f"in use by {by}: wait for it, or choose other devices with CUDA_VISIBLE_DEVICES"
    judge.limit("others_memory_mib", others // MIB, advice)


def _described(process: Process) -> str:
    name = process.name or "outside this container"
    memory = "memory unknown" if process.memory_bytes is None else f"{process.memory_bytes // MIB} MiB"
    return f"pid {process.pid} ({name}, {memory})"


def judge_xid(xid: int, reading: GpuReading, thresholds: GpuThresholds, host: str) -> Finding:
    """An Xid event that arrived during training."""
    severity = Severity.FAIL if xid in thresholds.xids_fail else Severity.WARN
    advice = "see dmesg | grep Xid and NVIDIA's Xid documentation"
    return Finding(severity, host, reading.device, reading.uuid, f"xid_{xid}", xid, None, advice)


def judge_host(
    reading: HostReading, thresholds: HostThresholds, host: str, num_gpus: int, *, running: bool = False
) -> list[Finding]:
    """Findings of the host itself.

    running: a job loads its cores, and how its memory and disk develop is judged by the alarms of all hosts.
    """
    judge = Judge(host, thresholds)
    for name, advice in LEFT_ADVICE.items():
        if name == "shm_free_mib" and not num_gpus:
            continue  # gloo needs none
        value = getattr(reading, name.removesuffix("_mib"))
        if value is not None and name.endswith("_mib"):
            value //= MIB
        judge.limit(name, value, advice.format(directory=reading.directory), least=True)
    swap_percent = 100 * reading.swap_used / reading.swap_total if reading.swap_total else 0.0
    advice = "memory is being swapped to disk, which is slow: end other programs"
    judge.limit("swap_used_percent", round(swap_percent, 1), advice)
    if running:
        return [
            one for one in judge.findings if one.name not in JUDGED_BY_ALARMS or one.severity is Severity.FAIL
        ]
    advice = "other programs use the cores, and training will be slower (see top)"
    judge.limit("load_per_core", round(reading.load / reading.cores, 2), advice)
    if reading.clock_synchronised is None:
        judge.unknown("clock")
    else:
        is_fault = thresholds.wants_synchronised_clock and not reading.clock_synchronised
        value = "synchronised" if reading.clock_synchronised else "on its own"
        advice = "logs of several hosts do not fit together: start chrony, ntpd or systemd-timesyncd"
        judge.add(Severity.WARN if is_fault else Severity.OK, "clock", value, None, advice)
    if num_gpus:
        advice = "too few cores to feed the GPUs: give the container or the job more"
        judge.limit("cores_per_gpu", round(reading.cores / num_gpus, 2), advice, least=True)
    return judge.findings
