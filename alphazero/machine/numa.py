"""Which processors of this host are near which GPU, and which of them each rank of the host gets.

On a machine with several NUMA nodes, copies to a GPU of another node take longer. Memory needs no call of its
own: the kernel takes it near the processor that first touches it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alphazero.machine.memory import ROOT

Processors = frozenset[int]
# Words of 64 processors that NVML is asked for: the kernel's own bound is 8,192 processors.
AFFINITY_WORDS = 128


def processors_near(uuids: Sequence[str], root: Path = ROOT) -> tuple[Processors, ...]:
    """For each GPU of this host the processors near it, as NVML tells it, else sysfs; none where unknown.

    uuids: with or without the prefix. root: where /sys is found.
    """
    try:
        import pynvml
    except ImportError:
        return (frozenset(),) * len(uuids)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (frozenset(),) * len(uuids)
    try:
        handles = dict(_handles(pynvml))
        return tuple(_near(pynvml, _find(handles, uuid), root) for uuid in uuids)
    finally:
        pynvml.nvmlShutdown()


def _handles(nvml: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - the module
    """Handles of devices by UUID; a MIG device has that of the GPU it is a part of."""
    with contextlib.suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            yield nvml.nvmlDeviceGetUUID(handle), handle
            with contextlib.suppress(nvml.NVMLError):
                for instance in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                    with contextlib.suppress(nvml.NVMLError):
                        part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance)
                        yield nvml.nvmlDeviceGetUUID(part), handle


def _find(handles: dict[str, Any], uuid: str) -> Any:  # noqa: ANN401 - a handle, or None
    return next((handle for name, handle in handles.items() if name.endswith(uuid)), None)


def _near(nvml: Any, handle: Any, root: Path) -> Processors:  # noqa: ANN401
    if handle is None:
        return frozenset()
    with contextlib.suppress(nvml.NVMLError):
        words = nvml.nvmlDeviceGetCpuAffinity(handle, AFFINITY_WORDS)
        found = {64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1}
        if found:
            return frozenset(found)
    with contextlib.suppress(nvml.NVMLError):
        address = nvml.nvmlDeviceGetPciInfo(handle).busId  # eight digits of domain, where sysfs has four
        text = (address.decode() if isinstance(address, bytes) else str(address)).lower()
        return read_processors(root / "sys/bus/pci/devices" / text[-len("0000:00:00.0") :] / "local_cpulist")
    return frozenset()


def read_processors(path: Path) -> Processors:
    """A list of the kernel, as 0-3,8; none where the file is not there or holds no such list."""
    try:
        parts = [part.partition("-") for part in path.read_text(encoding="ascii").strip().split(",") if part]
        pairs = [(int(first), int(last or first)) for first, _, last in parts]
    except (OSError, ValueError):
        return frozenset()
    return frozenset(number for first, last in pairs for number in range(first, last + 1))


def share_of(
    local_rank: int, near: Sequence[Processors], allowed: Processors, root: Path = ROOT
) -> Processors | None:
    """The processors of one rank: those near its GPU, shared out among the ranks whose GPUs have the same.

    near: of the GPUs of all ranks of this host, by local rank. allowed: what this process may use at all.
    Hardware threads of a core stay together; where a rank would get no whole core, all get all of them.
    None where nothing is known of its GPU, or the processors near it are not allowed, or all are near.
    """
    usable = [processors & allowed for processors in near]
    own = usable[local_rank]
    if not own or own == allowed:
        return None
    sharing = [rank for rank, processors in enumerate(usable) if processors == own]
    cores = _cores_of(own, root)
    if len(cores) < len(sharing):
        return own
    place, count = sharing.index(local_rank), len(sharing)
    mine = cores[place * len(cores) // count : (place + 1) * len(cores) // count]
    return frozenset().union(*mine)


def _cores_of(processors: Processors, root: Path) -> list[Processors]:
    """The hardware threads of each core that are among `processors`, by their first one."""
    cores = set()
    for number in processors:
        siblings = read_processors(root / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        cores.add((siblings & processors) | {number})
    return sorted(cores, key=min)


def nodes_of(processors: Processors, root: Path = ROOT) -> tuple[int, ...]:
    """The NUMA nodes that these processors belong to."""
    paths = (root / "sys/devices/system/node").glob("node[0-9]*")
    found = [int(path.name[4:]) for path in paths if read_processors(path / "cpulist") & processors]
    return tuple(sorted(found))


def shown(processors: Processors) -> str:
    """For people, as the kernel writes it: 0-3,8."""
    numbers = sorted(processors)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def is_bound_by_launcher() -> bool:
    """True where this process may use other processors than the one that started it: somebody saw to it."""
    with contextlib.suppress(OSError):
        return os.sched_getaffinity(os.getppid()) != os.sched_getaffinity(0)
    return False


def bind(processors: Processors, root: Path = ROOT) -> None:
    """Keep every thread of this process, and those to come, to these processors. May raise OSError."""
    os.sched_setaffinity(0, processors)
    for task in (root / "proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), processors)
