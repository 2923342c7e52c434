"""How the GPUs of this host are used, added up from readings by what the job was doing meanwhile."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from alphazero.health.gpu_reading import GpuReading

GIB = 1 << 30
MOST_READINGS = 3600  # kept per GPU until they are taken: an hour at one per second


class Doing(Enum):
    """What the readings are kept apart by. OTHER: nothing that a GPU has to be busy for."""

    TRAINING = "training"
    SELF_PLAY = "self-play"
    OTHER = "other"


@dataclass(frozen=True)
class GpuUsage:
    """One GPU over a stretch of time; a figure is nan where the driver did not tell it.

    utilisation_percent and power_w are means of the readings, memory_used_gib and temperature_c the largest.
    """

    index: int
    uuid: str
    utilisation_percent: float
    memory_used_gib: float
    temperature_c: float
    power_w: float


class UsageMeter:
    """Takes readings from the thread that watches the host and gives their sums to the one that trains."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._doing = Doing.TRAINING
        self._readings: dict[Doing, dict[int, deque[GpuReading]]] = {doing: {} for doing in Doing}

    @contextlib.contextmanager
    def doing(self, what: Doing) -> Iterator[None]:
        """Readings made within the block are those of `what`."""
        before, self._doing = self._doing, what
        try:
            yield
        finally:
            self._doing = before

    def add(self, gpus: Iterable[GpuReading]) -> None:
        """One reading of each GPU; those that do not answer count for nothing."""
        doing = self._doing
        if doing is Doing.OTHER:
            return
        with self._lock:
            for gpu in gpus:
                if not gpu.lost:
                    kept = self._readings[doing].setdefault(gpu.index, deque(maxlen=MOST_READINGS))
                    kept.append(gpu)

    def take(self, what: Doing) -> tuple[GpuUsage, ...]:
        """The GPUs read since the last call for `what`, by index; none where no reading was made."""
        with self._lock:
            readings, self._readings[what] = self._readings[what], {}
        return tuple(_usage(list(readings[index])) for index in sorted(readings))


def _usage(readings: list[GpuReading]) -> GpuUsage:
    def told(values: Iterable[float | None]) -> list[float]:
        return [float(value) for value in values if value is not None] or [math.nan]

    utilisation = told(gpu.utilisation_percent for gpu in readings)
    power = told(gpu.power_w for gpu in readings)
    return GpuUsage(
        index=readings[-1].index,
        uuid=readings[-1].uuid,
        utilisation_percent=sum(utilisation) / len(utilisation),
        memory_used_gib=max(told(gpu.memory_used_bytes for gpu in readings)) / GIB,
        temperature_c=max(told(gpu.temperature_c for gpu in readings)),
        power_w=sum(power) / len(power),
    )
