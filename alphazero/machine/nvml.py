"""NVML, NVIDIA's management library: the only module that initialises and reads it.

`open_nvml` gives an `Nvml`, which lists devices and reads them. Nothing is judged here (see judge.py).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from alphazero.base.errors import AlphaZeroError

PCI_DEVICES = Path("/sys/bus/pci/devices")

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
    """NVML cannot be used: `code` is its error (None: the Python binding is missing)."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Device:
    """A GPU that NVML lists. `uuid` begins with GPU-; `mig_uuids` are its MIG devices, if it is split."""

    index: int
    uuid: str
    name: str
    in_mig_mode: bool = False
    mig_uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU. memory_bytes: None where unknown.

    name: "" where no such process is in our PID namespace (it is in another container).
    """

    pid: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True)
class GpuReading:
    """One GPU. A field that could not be read is None.

    lost: NVML's words where the device does not answer; all else is then as far as it was read. nvlinks:
    by number whether it is active.
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
    nvlinks: Mapping[int, bool] | None = None
    pcie_replays: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    processes: tuple[Process, ...] | None = None

    @property
    def device(self) -> str:
        """gpu0, ..."""
        return f"gpu{self.index}"


def device_files_present() -> bool:
    """True where the kernel shows an NVIDIA device, whatever NVML thinks of it."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or any(Path("/proc/driver/nvidia/gpus").glob("*"))


def expects_gpus(device: str) -> bool:
    """Whether NVML should find a GPU on this host: `device` is cuda, or the kernel or the PCI bus shows one.

    A display or 3D controller of NVIDIA counts whether or not a driver is loaded.
    """
    if device == "cuda" or device_files_present():
        return True
    for entry in PCI_DEVICES.glob("*"):
        with contextlib.suppress(OSError):  # removed since it was listed
            vendor, kind = ((entry / name).read_text(encoding="ascii") for name in ("vendor", "class"))
            if vendor.strip() == "0x10de" and kind.startswith("0x03"):
                return True
    return False


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """NVML, initialised until the end of the block. Raises NvmlUnusable."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnusable(None, "Python package nvidia-ml-py is missing") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlUnusable(error.value, str(error)) from error
    try:
        yield Nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()


class Nvml:
    """The devices and the driver of this host. `library` is pynvml, which has no types."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401
        self.library = library
        # What a device answers that cannot be used any more, whichever figure was asked for.
        self._lost = (library.NVMLError_GpuIsLost, library.NVMLError_ResetRequired)

    def driver(self) -> str | None:
        """The version of the driver, None where unknown."""
        version: str | None = self._value(self.library.nvmlSystemGetDriverVersion)
        return version

    def _value(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """None where NVML answers with an error."""
        try:
            return call(*arguments)
        except self.library.NVMLError:
            return None

    def _count(self) -> int:
        try:
            return int(self.library.nvmlDeviceGetCount())
        except self.library.NVMLError as error:
            raise NvmlUnusable(error.value, str(error)) from error

    def devices(self) -> tuple[Device, ...]:
        """All devices, with their MIG devices. Raises NvmlUnusable where one does not answer."""
        try:
            return tuple(self._device(index) for index in range(self._count()))
        except self.library.NVMLError as error:
            raise NvmlUnusable(error.value, str(error)) from error

    def _device(self, index: int) -> Device:
        nvml = self.library
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        # Devices that cannot be split answer "not supported", old drivers "no such function".
        mode = self._value(nvml.nvmlDeviceGetMigMode, handle)
        in_mig_mode = mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE
        most = self._value(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) if in_mig_mode else 0
        parts = (self._value(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, at) for at in range(most or 0))
        uuids = tuple(nvml.nvmlDeviceGetUUID(part) for part in parts if part is not None)
        return Device(
            index, nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle), in_mig_mode, uuids
        )

    def gpus(self) -> tuple[GpuReading, ...]:
        """All GPUs; one that does not answer is `lost`. Raises NvmlUnusable if NVML cannot list them."""
        return tuple(self._read(index, self._all_fields()) for index in range(self._count()))

    def usage(self, index: int) -> GpuReading:
        """One GPU's utilisation, memory, temperature and power: little enough to be read every second."""
        return self._read(index, self._usage_fields())

    def _read(self, index: int, ways: Mapping[str, Callable[[Any], Any]]) -> GpuReading:
        """ways: how fields of GpuReading are read from a handle."""
        values: dict[str, Any] = {}
        try:
            handle = self.library.nvmlDeviceGetHandleByIndex(index)
            for name, way in ways.items():
                try:
                    values[name] = way(handle)
                except self._lost:
                    raise
                except self.library.NVMLError:
                    continue
        except self.library.NVMLError as error:  # whatever the reason: without a handle it cannot be used
            values["lost"] = str(error)
        return GpuReading(index=index, **values)

    def _usage_fields(self) -> dict[str, Callable[[Any], Any]]:
        nvml = self.library
        return {
            "memory_used_bytes": lambda device: int(self._memory(device).used),
            "utilisation_percent": lambda device: int(nvml.nvmlDeviceGetUtilizationRates(device).gpu),
            "temperature_c": lambda device: int(
                nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
            ),
            "power_w": lambda device: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
        }

    def _all_fields(self) -> dict[str, Callable[[Any], Any]]:
        nvml = self.library
        slowdown = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        causes = range(nvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)

        def ecc_errors(counter: int) -> Callable[[Any], int]:
            return lambda device: int(nvml.nvmlDeviceGetTotalEccErrors(device, uncorrected, counter))

        return {
            "uuid": nvml.nvmlDeviceGetUUID,
            "name": nvml.nvmlDeviceGetName,
            "mig_enabled": lambda device: bool(nvml.nvmlDeviceGetMigMode(device)[0]),
            "memory_total_bytes": lambda device: int(self._memory(device).total),
            **self._usage_fields(),
            "slowdown_temperature_c": lambda device: nvml.nvmlDeviceGetTemperatureThreshold(device, slowdown),
            "power_limit_w": lambda device: nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000,
            "clock_reasons": self._clock_reasons,
            "pcie_replays": nvml.nvmlDeviceGetPcieReplayCounter,
            "pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth,
            "pcie_width_max": nvml.nvmlDeviceGetMaxPcieLinkWidth,
            "ecc_enabled": lambda device: bool(nvml.nvmlDeviceGetEccMode(device)[0]),
            "ecc_uncorrected_volatile": ecc_errors(nvml.NVML_VOLATILE_ECC),
            "ecc_uncorrected_aggregate": ecc_errors(nvml.NVML_AGGREGATE_ECC),
            "remap_pending": lambda device: bool(nvml.nvmlDeviceGetRemappedRows(device)[2]),
            "remap_failed": lambda device: bool(nvml.nvmlDeviceGetRemappedRows(device)[3]),
            "retired_pages": lambda device: sum(
                len(nvml.nvmlDeviceGetRetiredPages(device, cause)) for cause in causes
            ),
            "retired_pages_pending": lambda device: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(device)),
            "nvlinks": self._nvlinks,
            "processes": self._processes,
        }

    def _memory(self, device: Any) -> Any:  # noqa: ANN401
        """Total and used bytes; used without what the driver reserves for itself."""
        return self.library.nvmlDeviceGetMemoryInfo(device, self.library.nvmlMemory_v2)

    def _clock_reasons(self, device: Any) -> tuple[str, ...]:  # noqa: ANN401
        bits = int(self.library.nvmlDeviceGetCurrentClocksEventReasons(device))
        named = tuple(name for bit, name in CLOCK_REASONS.items() if bits & bit)
        others = bits & ~sum(CLOCK_REASONS)
        return (*named, hex(others)) if others else named

    def _nvlinks(self, device: Any) -> dict[int, bool] | None:  # noqa: ANN401
        """None where the device has no link."""
        nvml = self.library
        links: dict[int, bool] = {}
        for number in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                links[number] = bool(nvml.nvmlDeviceGetNvLinkState(device, number))
            except self._lost:
                raise
            except nvml.NVMLError:  # "not supported" or "invalid argument": no such link
                continue
        return links or None

    def _processes(self, device: Any) -> tuple[Process, ...]:  # noqa: ANN401
        return tuple(
            Process(int(entry.pid), _process_name(entry.pid), entry.usedGpuMemory)
            for entry in self.library.nvmlDeviceGetComputeRunningProcesses(device)
        )

    @contextmanager
    def xid_events(self) -> Iterator[XidEvents]:
        """Events of all devices, until the end of the block."""
        events = None
        with contextlib.suppress(self.library.NVMLError):  # without events the figures are still watched
            events = self.library.nvmlEventSetCreate()
        try:
            num_gpus = self._value(self.library.nvmlDeviceGetCount) if events is not None else 0
            yield XidEvents(self.library, events, num_gpus or 0)
        finally:
            if events is not None:
                self.library.nvmlEventSetFree(events)


class XidEvents:
    """Xid events of those GPUs for which the driver offers them."""

    def __init__(self, nvml: Any, events: Any, num_gpus: int) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._events = events
        self._index_of: dict[int | None, int] = {}
        xid = nvml.nvmlEventTypeXidCriticalError
        for index in range(num_gpus):
            # One that offers none (MIG, old devices) is left out; one that is lost is found by its readings.
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                if nvml.nvmlDeviceGetSupportedEventTypes(handle) & xid:
                    nvml.nvmlDeviceRegisterEvents(handle, xid, events)
                    self._index_of[_address(handle)] = index

    def next(self) -> tuple[int, int] | None:
        """(GPU index, Xid) of an event that has come, else None."""
        nvml = self._nvml
        if not self._index_of:
            return None
        try:
            data = nvml.nvmlEventSetWait(self._events, 0)
        except nvml.NVMLError_Timeout:
            return None
        except nvml.NVMLError:
            self._index_of.clear()
            raise
        return self._index_of.get(_address(data.device), -1), int(data.eventData)


def _address(handle: Any) -> int | None:  # noqa: ANN401
    """Where a handle points; handles of one device are equal pointers."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""
    except psutil.Error:
        return "?"
