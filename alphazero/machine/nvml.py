"""What NVML tells of the GPUs of this host, read once; nothing is judged here (see gpu_health.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

from alphazero.base.errors import AlphaZeroError

T = TypeVar("T")

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h; the last two are pynvml's ThrottleReason names).
CLOCK_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "software_power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal_slowdown",
    0x040: "hardware_thermal_slowdown",
    0x080: "hardware_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}


class NvmlUnusable(AlphaZeroError):  # noqa: N818 - a state, caught and turned into a finding
    """NVML cannot be used: `code` is its error (None: the Python binding is missing), `reason` its text."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class DeviceGone(AlphaZeroError):  # noqa: N818
    """A device that does not answer any more, with NVML's words."""


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU. memory_bytes: None where the driver does not tell.

    name: "" where no such process is in our PID namespace (it is in another container).
    """

    pid: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class NvLink:
    """One NVLink of a GPU. errors: replays + recoveries + CRC errors, None where the driver does not tell."""

    number: int
    active: bool
    errors: int | None


@dataclass(frozen=True)
class GpuReading:
    """One GPU. A field is None where the driver did not tell it, and `unread` says why, by field name.

    lost: NVML's words where the device does not answer; all else is then as far as it was read.
    """

    index: int
    uuid: str = ""
    name: str = ""
    lost: str = ""
    mig_enabled: bool | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilisation_percent: int | None = None
    temperature_c: int | None = None
    slowdown_temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    ecc_enabled: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pages: int | None = None
    retired_pages_pending: bool | None = None
    clock_reasons: tuple[str, ...] | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    pcie_replays: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    processes: tuple[Process, ...] | None = None
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def device(self) -> str:
        """gpu0, ..."""
        return f"gpu{self.index}"


@dataclass(frozen=True)
class Driver:
    """Versions, None where not told; cuda is the newest CUDA the driver can serve, as "12.8"."""

    version: str | None
    cuda: str | None


@contextmanager
def open_nvml() -> Iterator[Any]:
    """The pynvml module, initialised. Raises NvmlUnusable."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnusable(None, "Python package nvidia-ml-py is missing") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlUnusable(error.value, str(error)) from error
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def read_driver(nvml: Any) -> Driver:  # noqa: ANN401 - pynvml has no types
    """Versions of driver and CUDA."""

    def told(call: Callable[[], Any]) -> Any:  # noqa: ANN401
        try:
            return call()
        except nvml.NVMLError:
            return None

    cuda = told(nvml.nvmlSystemGetCudaDriverVersion_v2)
    return Driver(
        told(nvml.nvmlSystemGetDriverVersion),
        None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def read_gpus(nvml: Any) -> tuple[GpuReading, ...]:  # noqa: ANN401
    """All GPUs NVML lists; one that does not answer is `lost`. Raises NvmlUnusable if it cannot list them."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise NvmlUnusable(error.value, str(error)) from error
    return tuple(read_gpu(nvml, index) for index in range(count))


def read_gpu(nvml: Any, index: int) -> GpuReading:  # noqa: ANN401
    """One GPU, field by field; a field the driver does not serve is None."""
    reader = _Reader(nvml, index)
    try:
        reader.read()
    except DeviceGone as error:
        reader.values["lost"] = str(error)
    return GpuReading(index=index, unread=tuple(reader.unread.items()), **reader.values)


def read_usage(nvml: Any, index: int) -> GpuReading:  # noqa: ANN401
    """One GPU's utilisation, memory, temperature and power: little enough to be read every second."""
    reader = _Reader(nvml, index)
    try:
        reader.read_usage()
    except DeviceGone as error:
        reader.values["lost"] = str(error)
    return GpuReading(index=index, unread=tuple(reader.unread.items()), **reader.values)


class _Reader:
    """Fills `values` and `unread`, keyed by the field names of GpuReading."""

    def __init__(self, nvml: Any, index: int) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._index = index
        self._handle: Any = None
        self.values: dict[str, Any] = {}
        self.unread: dict[str, str] = {}

    def read(self) -> None:
        """Ask for everything. Raises DeviceGone."""
        nvml = self._nvml
        self._open()
        self._field("uuid", nvml.nvmlDeviceGetUUID)
        self._field("name", nvml.nvmlDeviceGetName)
        self._field("mig_enabled", lambda device: bool(nvml.nvmlDeviceGetMigMode(device)[0]))
        self._field("memory_total_bytes", lambda device: int(self._memory(device).total))
        self._read_usage()
        self._field(
            "slowdown_temperature_c",
            lambda device: nvml.nvmlDeviceGetTemperatureThreshold(
                device, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
        )
        self._field("power_limit_w", lambda device: nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000)
        self._field("clock_reasons", self._clock_reasons)
        self._field("pcie_replays", nvml.nvmlDeviceGetPcieReplayCounter)
        self._field("pcie_width", nvml.nvmlDeviceGetCurrPcieLinkWidth)
        self._field("pcie_width_max", nvml.nvmlDeviceGetMaxPcieLinkWidth)
        self._read_memory_faults()
        self._field("nvlinks", self._nvlinks)
        self._field("processes", self._processes)

    def read_usage(self) -> None:
        """Ask how the device is used. Raises DeviceGone."""
        self._open()
        self._read_usage()

    def _open(self) -> None:
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByIndex(self._index)
        except self._nvml.NVMLError as error:  # whatever the reason: without a handle it cannot be used
            raise DeviceGone(str(error)) from error

    def _read_usage(self) -> None:
        nvml = self._nvml
        self._field("memory_used_bytes", lambda device: int(self._memory(device).used))
        self._field("utilisation_percent", lambda device: int(nvml.nvmlDeviceGetUtilizationRates(device).gpu))
        self._field("temperature_c", self._temperature)
        self._field("power_w", lambda device: nvml.nvmlDeviceGetPowerUsage(device) / 1000)

    def _read_memory_faults(self) -> None:
        nvml = self._nvml

        def uncorrected(counter: int) -> Callable[[Any], int]:
            kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
            return lambda device: int(nvml.nvmlDeviceGetTotalEccErrors(device, kind, counter))

        self._field("ecc_enabled", lambda device: bool(nvml.nvmlDeviceGetEccMode(device)[0]))
        self._field("ecc_uncorrected_volatile", uncorrected(nvml.NVML_VOLATILE_ECC))
        self._field("ecc_uncorrected_aggregate", uncorrected(nvml.NVML_AGGREGATE_ECC))
        self._field("remap_pending", lambda device: bool(nvml.nvmlDeviceGetRemappedRows(device)[2]))
        self._field("remap_failed", lambda device: bool(nvml.nvmlDeviceGetRemappedRows(device)[3]))
        causes = range(nvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)
        self._field(
            "retired_pages",
            lambda device: sum(len(nvml.nvmlDeviceGetRetiredPages(device, cause)) for cause in causes),
        )
        self._field(
            "retired_pages_pending", lambda device: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(device))
        )

    def _field(self, name: str, call: Callable[[Any], Any]) -> None:
        try:
            self.values[name] = call(self._handle)
        except self._nvml.NVMLError as error:
            self._check_alive(error)
            self.unread[name] = str(error)

    def _check_alive(self, error: Exception) -> None:
        """Raise DeviceGone where `error` is about the device and not about one figure of it."""
        if isinstance(error, (self._nvml.NVMLError_GpuIsLost, self._nvml.NVMLError_ResetRequired)):
            raise DeviceGone(str(error)) from error

    def _memory(self, device: Any) -> Any:  # noqa: ANN401
        """Total and used bytes; used without what the driver itself reserves, where it tells that apart."""
        nvml = self._nvml
        try:
            return nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
        except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):  # drivers before 510
            return nvml.nvmlDeviceGetMemoryInfo(device)

    def _temperature(self, device: Any) -> int:  # noqa: ANN401
        nvml = self._nvml
        try:
            return int(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
        except nvml.NVMLError_FunctionNotFound:  # to be removed with CUDA 14, says pynvml
            return int(nvml.nvmlDeviceGetTemperatureV(device, nvml.NVML_TEMPERATURE_GPU))

    def _clock_reasons(self, device: Any) -> tuple[str, ...]:  # noqa: ANN401
        nvml = self._nvml
        try:
            bits = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
        except nvml.NVMLError_FunctionNotFound:  # drivers before 535 know the older name only
            bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))
        named = tuple(name for bit, name in CLOCK_REASONS.items() if bits & bit)
        others = bits & ~sum(CLOCK_REASONS)
        return (*named, hex(others)) if others else named

    def _nvlinks(self, device: Any) -> tuple[NvLink, ...]:  # noqa: ANN401
        """The links the device has. Raises NVMLError where it has none."""
        nvml = self._nvml
        links: list[NvLink] = []
        missing: Exception | None = None
        for number in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                active = bool(nvml.nvmlDeviceGetNvLinkState(device, number))
            except nvml.NVMLError as error:  # "not supported" or "invalid argument": no such link
                self._check_alive(error)
                missing = missing or error
                continue
            links.append(NvLink(number, active, self._nvlink_errors(device, number)))
        if not links and missing is not None:
            raise missing
        return tuple(links)

    def _nvlink_errors(self, device: Any, number: int) -> int | None:  # noqa: ANN401
        nvml = self._nvml
        counters = (
            nvml.NVML_NVLINK_ERROR_DL_REPLAY,
            nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
            nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
            nvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
        )
        told = []
        for counter in counters:
            try:
                told.append(int(nvml.nvmlDeviceGetNvLinkErrorCounter(device, number, counter)))
            except nvml.NVMLError as error:
                self._check_alive(error)
        return sum(told) if told else None

    def _processes(self, device: Any) -> tuple[Process, ...]:  # noqa: ANN401
        return tuple(
            Process(int(entry.pid), _process_name(entry.pid), entry.usedGpuMemory)
            for entry in self._nvml.nvmlDeviceGetComputeRunningProcesses(device)
        )


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""
    except psutil.Error:
        return "?"
