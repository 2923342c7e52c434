"""What readings of GPUs and of the host mean: their limits, each fault with its advice, the exit status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum

from alphazero.machine.memory import HostReading
from alphazero.machine.nvml import GpuReading, NvmlUnusable


class Severity(IntEnum):
    """From good to bad; `unknown` is what could not be read, which is neither good nor a fault."""

    OK = 0
    UNKNOWN = 1
    WARN = 2
    FAIL = 3

    @property
    def word(self) -> str:
        """ok, unknown, warn or fail, as in JSON."""
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    """One check of one device, or of the host itself (`device` and `uuid` empty).

    name: what was checked, with its unit (temperature_c). value: what was read, None where unknown.
    threshold: the limit that decided, None where there is none.
    advice: what to do, or why the value is unknown; one line, empty where all is well.
    """

    severity: Severity
    host: str
    device: str
    uuid: str
    name: str
    value: float | str | None
    threshold: float | str | None
    advice: str

    @property
    def matter(self) -> str:
        """How bad, where, and what was found."""
        device = f" {self.device}" if self.device else ""
        uuid = f" ({self.uuid})" if self.uuid else ""
        return f"{self.severity.word}: {self.host}{device}{uuid}: {self.name} = {self.value_text}"

    @property
    def value_text(self) -> str:
        """The value and its limit, for people."""
        value = "?" if self.value is None else shown(self.value)
        return value if self.threshold is None else f"{value} (limit {shown(self.threshold)})"

    def line(self) -> str:
        """For a log: host, device and UUID, what was found and what to do."""
        return f"health {self.matter}: {self.advice}"

    def to_json(self) -> dict[str, object]:
        """The keys of docs/health.md."""
        named = {"severity": self.severity.word, "device": self.device or None, "uuid": self.uuid or None}
        return asdict(self) | named


def shown(value: float | str) -> str:
    """Numbers with at most three digits after the point, without trailing zeros."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity; OK without findings."""
    return max((finding.severity for finding in findings), default=Severity.OK)


def exit_status(findings: Iterable[Finding], *, strict: bool = True) -> int:
    """0 healthy (unknowns included), 1 with warnings if they are to count (strict), 2 with failures."""
    return {Severity.WARN: int(strict), Severity.FAIL: 2}.get(worst(findings), 0)


MIB = 1 << 20

# NVML error codes (nvml.h); pynvml may be missing where they are judged.
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 9, 12
RESET = "nvidia-smi --gpu-reset -i N on the idle device, or reboot"


@dataclass(frozen=True)
class Threshold:
    """From which value on a reading is a fault, with `least` below which one; and what to do then."""

    advice: str
    warn: float | None = None
    fail: float | None = None
    least: bool = False


# "gcm" is Meta's GPU cluster monitoring (facebookresearch/gcm, health_checks); "DCGM" is NVIDIA's Data Center
# GPU Manager (dcgm_gpu_hardware_limits.h). What names neither is our own choice.
GPU_LIMITS = {
    # Uncorrectable ECC errors since the driver was loaded. gcm: > 0 is critical.
    "ecc_uncorrected_volatile": Threshold(
        f"data on the device was wrong: {RESET}; run diagnostics if it comes again", fail=1
    ),
    "remap_pending": Threshold(f"rows wait to be remapped: {RESET}", fail=1),
    "remap_failed": Threshold("no spare rows: replace the device", fail=1),
    # Both causes (devices before Ampere). gcm: > 10; DCGM: 15 soft, 63 hard.
    "retired_pages": Threshold("its memory wears out: replace the device", fail=11),
    "retired_pages_pending": Threshold(f"pages wait to be retired: {RESET}", fail=1),
    # gcm: > 84 C.
    "temperature_c": Threshold("check fans, air flow and room temperature", warn=85),
}
# gcm: 850 MiB.
OTHERS_MEMORY = Threshold(
    "in use by {by}: wait for it, or choose other devices with CUDA_VISIBLE_DEVICES", warn=850
)
# An idle device, and the power limit that every full load meets.
HARMLESS_CLOCK_REASONS = ("gpu_idle", "software_power_cap")
# Xid errors that mean a broken device or driver (gcm; numbers as in NVIDIA's Xid documentation). All others
# warn: most are faults of a program.
BROKEN_XIDS = (48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120)
# Of what is free or allowed on the host.
LEFT_LIMITS = {
    # A rank on the CPU needs about 1 GiB, a rank on a GPU with its pinned buffers 3 GiB.
    "memory_available_mib": Threshold(
        "end other programs, or run fewer processes here", 4096, 1024, least=True
    ),
    # A checkpoint of 20x256 with its optimizer is under 400 MiB.
    "disk_free_mib": Threshold(
        "make room in {directory}, or choose another with --runs-dir", 20480, 2048, least=True
    ),
    # Docker gives 64 MiB without --shm-size; NCCL's documentation asks for 1 GiB.
    "shm_free_mib": Threshold("NCCL needs it: docker run --shm-size=1g or --ipc=host", 1000, 32, least=True),
    # A rank opens a few hundred with its sockets.
    "open_files": Threshold(
        "ulimit -n 65536 (or LimitNOFILE, or /etc/security/limits.conf)", 1024, 256, least=True
    ),
}
# A host that swaps is a straggler.
SWAP_USED_PERCENT = Threshold("memory is being swapped to disk, which is slow: end other programs", warn=50)
# One-minute load average; above it others slow this host.
LOAD_PER_CORE = Threshold("other programs use the cores, and training will be slower (see top)", warn=2)
# One core drives the GPU, the others encode positions.
CORES_PER_GPU = Threshold(
    "too few cores to feed the GPUs: give the container or the job more", warn=2, least=True
)
# Little of these is a warning before a start; during a job only a failure.
JUDGED_BY_ALARMS = ("disk_free_mib", "memory_available_mib")


@dataclass(frozen=True)
class Judge:
    """Makes the findings of a host, or of one of its GPUs."""

    host: str
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
        self.add(Severity.UNKNOWN, name, None, advice="not reported by the driver or the system")

    def compare(self, name: str, value: float | None, limit: Threshold, **words: str) -> None:
        """A reading with its limit. words: of the advice."""
        if value is None:
            self.unknown(name)
            return
        advice, severity, threshold = limit.advice.format(**words), Severity.OK, limit.warn or limit.fail
        for fault, bound in ((Severity.FAIL, limit.fail), (Severity.WARN, limit.warn)):
            if bound is not None and (value < bound if limit.least else value >= bound):
                severity, threshold = fault, bound
                break
        if isinstance(value, bool):
            self.add(severity, name, "yes" if value else "no", None, advice)
        else:
            self.add(severity, name, value, threshold, advice)


def judge_nvml(error: NvmlUnusable, host: str, device_present: bool) -> Finding:
    """NVML that cannot be used: a failure where a device exists, else no fault of a CPU host.

    A library without a driver (an image made for GPUs) is unknown where no device shows itself.
    """
    if not device_present and error.code in (None, LIBRARY_NOT_FOUND):
        return Finding(Severity.OK, host, "", "", "nvml", "no NVIDIA device", None, "")
    is_unknown = not device_present and error.code == DRIVER_NOT_LOADED
    severity = Severity.UNKNOWN if is_unknown else Severity.FAIL
    advice = "install the driver, load it (modprobe nvidia) or start the container with GPUs; see dmesg"
    return Finding(severity, host, "", "", "nvml", str(error), None, advice)


def judge_gpus(readings: Sequence[GpuReading], host: str, *, running: bool = False) -> list[Finding]:
    """Findings of all `readings`. running: a job trains on them."""
    any_link = any(is_active for reading in readings for is_active in (reading.nvlinks or {}).values())
    findings: list[Finding] = []
    for reading in readings:
        judge = Judge(host, reading)
        if reading.lost:
            advice = "power-cycle the host (a reset is seldom enough); see dmesg | grep Xid"
            judge.add(Severity.FAIL, "answers", reading.lost, None, advice)
        else:
            judge.add(Severity.OK, "answers", "yes")
            for name, limit in GPU_LIMITS.items():
                judge.compare(name, getattr(reading, name), limit)
            _judge_clocks(judge, reading)
            _judge_nvlinks(judge, reading, any_link)
            if not running:
                _judge_others(judge, reading)
        findings += judge.findings
    return findings


def _judge_clocks(judge: Judge, reading: GpuReading) -> None:
    if reading.clock_reasons is None:
        judge.unknown("clock_reasons")
        return
    faults = [name for name in reading.clock_reasons if name not in HARMLESS_CLOCK_REASONS]
    value = ", ".join(faults or reading.clock_reasons) or "none"
    advice = "the device is slowed down: check its cooling and power supply (nvidia-smi -q -d PERFORMANCE)"
    judge.add(Severity.WARN if faults else Severity.OK, "clock_reasons", value, None, advice)


def _judge_nvlinks(judge: Judge, reading: GpuReading, any_link: bool) -> None:
    """An inactive link (gcm: any) is a failure where another one of the host is active."""
    if reading.nvlinks is None:
        judge.unknown("nvlinks")
        return
    inactive = [str(number) for number, is_active in reading.nvlinks.items() if not is_active]
    if not inactive:
        judge.add(Severity.OK, "nvlinks", f"{len(reading.nvlinks)} active")
        return
    advice = "no NVLink of this host is active: right without a bridge, GPUs then talk over PCIe"
    if any_link:
        advice = "check nvidia-fabricmanager and the bridge or switch, then reset the device"
    severity = Severity.FAIL if any_link else Severity.WARN
    judge.add(severity, "nvlinks", f"inactive: {', '.join(inactive)}", None, advice)


def _judge_others(judge: Judge, reading: GpuReading) -> None:
    """Memory in use before a job, by a process that NVML lists or not (one in another container)."""
    used, processes = reading.memory_used_bytes, reading.processes or ()
    by = ", ".join(f"pid {process.pid} ({process.name or 'outside this container'})" for process in processes)
    value = None if used is None else used // MIB
    judge.compare("others_memory_mib", value, OTHERS_MEMORY, by=by or "no process that NVML lists")


def judge_xid(xid: int, reading: GpuReading, host: str) -> Finding:
    """An Xid event that arrived during training."""
    severity = Severity.FAIL if xid in BROKEN_XIDS else Severity.WARN
    advice = "see dmesg | grep Xid and NVIDIA's Xid documentation"
    return Finding(severity, host, reading.device, reading.uuid, f"xid_{xid}", xid, None, advice)


def judge_host(reading: HostReading, host: str, num_gpus: int, *, running: bool = False) -> list[Finding]:
    """Findings of the host itself.

    running: a job loads its cores, and how its memory and disk develop is judged by the alarms of all hosts.
    """
    judge = Judge(host)
    for name, limit in LEFT_LIMITS.items():
        if name == "shm_free_mib" and not num_gpus:
            continue  # gloo needs none
        value = getattr(reading, name.removesuffix("_mib"))
        if value is not None and name.endswith("_mib"):
            value //= MIB
        judge.compare(name, value, limit, directory=reading.directory)
    swap_percent = 100 * reading.swap_used / reading.swap_total if reading.swap_total else 0.0
    judge.compare("swap_used_percent", round(swap_percent, 1), SWAP_USED_PERCENT)
    if running:
        return [
            finding
            for finding in judge.findings
            if finding.name not in JUDGED_BY_ALARMS or finding.severity is Severity.FAIL
        ]
    judge.compare("load_per_core", round(reading.load / reading.cores, 2), LOAD_PER_CORE)
    if num_gpus:
        judge.compare("cores_per_gpu", round(reading.cores / num_gpus, 2), CORES_PER_GPU)
    return judge.findings
