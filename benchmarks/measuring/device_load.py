"""How busy a GPU is while something is measured: utilisation, power, temperature, memory, from NVML."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from alphazero.machine.nvml import NvmlUnusable, open_nvml

# NVML renews its utilisation every sixth of a second to every second, by GPU model.
INTERVAL_S = 0.1
# So long after the start a reading may still tell of what was before.
SETTLING_S = 0.5
GIB = 2**30


class DeviceLoad:
    """Reads one device in a thread while its block runs; on the CPU it does nothing.

    utilisation is NVML's: the share of time in which any kernel ran. What could not be read is left out;
    where NVML cannot be used at all, `figures` says why.
    """

    def __init__(self, device: torch.device) -> None:
        self._uuid = uuid_of(device) if device.type == "cuda" else ""
        self._readings: dict[str, list[tuple[float, float]]] = {}
        self._fault = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="device load", daemon=True)

    def __enter__(self) -> DeviceLoad:
        """Begin to read."""
        if self._uuid:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._end.set()
        if self._uuid:
            self._thread.join()

    def figures(self, since: float = 0.0) -> dict[str, object]:
        """Means from `since` (by time.perf_counter) to the end; peaks of temperature and memory."""
        if self._fault:
            return {"device_load": self._fault}
        found: dict[str, object] = {}
        if busy := self._values("busy", since + SETTLING_S):
            found["device_idle_share"] = 1 - statistics.mean(busy)
        if power := self._values("power_w", since):
            found["power_w"] = statistics.mean(power)
        for name in ("temperature_c", "memory_used_gib"):
            if values := self._values(name, since):
                found[name] = max(values)
        return found

    def _values(self, name: str, since: float) -> list[float]:
        return [value for moment, value in self._readings.get(name, []) if moment >= since]

    def _watch(self) -> None:
        try:
            with open_nvml() as opened:
                nvml = opened.library
                try:
                    self._read_until_end(nvml)
                except nvml.NVMLError as error:
                    self._fault = f"NVML: {error}"
        except NvmlUnusable as error:
            self._fault = f"NVML: {error.reason}"

    def _read_until_end(self, nvml: Any) -> None:  # noqa: ANN401 - pynvml has no types
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        handle = next((one for one in handles if nvml.nvmlDeviceGetUUID(one) == self._uuid), None)
        if handle is None:
            self._fault = f"NVML: no device {self._uuid}"
            return
        questions: dict[str, Callable[[], float]] = {
            "busy": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "memory_used_gib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / GIB,
        }
        while not self._end.wait(INTERVAL_S):
            for name, ask in list(questions.items()):
                try:
                    self._readings.setdefault(name, []).append((time.perf_counter(), ask()))
                except nvml.NVMLError:
                    del questions[name]


def uuid_of(device: torch.device) -> str:
    """NVML's name of a CUDA device, whatever CUDA_VISIBLE_DEVICES makes of its number."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
