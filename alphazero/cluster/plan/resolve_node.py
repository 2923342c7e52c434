"""This machine's part of a job: its devices, how many processes, the port; CUDA_VISIBLE_DEVICES respected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from alphazero.cluster.plan.cpu_ranks import CpuRanks
from alphazero.errors import LaunchError
from alphazero.host.machine import Machine, visible_devices
from alphazero.text import counted

DEFAULT_PORT = 12355

# From a number of cores.
ChooseCpuRanks = Callable[[int], CpuRanks]


@dataclass(frozen=True)
class Share:
    """What this machine is to run.

    num_processes: None for as many as there are devices (on a CPU see resolve_devices). source: who said so,
    "" for nobody. slots: positions among the visible devices that --include or --exclude left, () for no
    filter.
    """

    num_processes: int | None
    source: str = ""
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeDevices:
    """The outcome: cuda or cpu, and one CUDA_VISIBLE_DEVICES entry per process on cuda."""

    device: str
    num_processes: int
    visible: tuple[str, ...]
    notices: tuple[str, ...]


def resolve_devices(
    device: str,
    share: Share,
    machine: Machine,
    environment: Mapping[str, str],
    cpu_ranks: ChooseCpuRanks | None = None,
) -> NodeDevices:
    """The devices and processes of this machine; `device` is auto, cuda or cpu.

    cpu_ranks: chooses the number of CPU ranks where the share has none; None for 1.
    Raises LaunchError where the machine has fewer devices than asked for.
    """
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    notices: list[str] = []
    visible: tuple[str, ...] = ()
    if device != "cpu" and machine.devices:
        visible = visible_devices(machine.devices, setting)
        if not visible and device == "auto":
            notices.append(f"CUDA_VISIBLE_DEVICES={setting or ''} hides all NVIDIA devices")
    if device == "cuda" and not visible:
        reason = f"CUDA_VISIBLE_DEVICES={setting} hides all" if machine.devices else "there is none"
        raise LaunchError(f"--device cuda: expected an NVIDIA device, {reason} on {machine.host_name}")
    if not visible:
        num_processes, source = len(share.slots) or share.num_processes or 1, share.source
        if cpu_ranks is not None and not share.slots and share.num_processes is None:
            choice = cpu_ranks(machine.num_cores)
            num_processes, source = choice.num_ranks, f"{choice.bound}; --gpus N changes it"
        notices.append(_cpu_notice(device, machine, num_processes, source))
        return NodeDevices("cpu", num_processes, (), tuple(notices))
    needed = max(share.slots) + 1 if share.slots else share.num_processes
    if needed is not None and needed > len(visible):
        limit = f" (CUDA_VISIBLE_DEVICES={setting})" if setting is not None else ""
        raise LaunchError(
            f"{share.source}: this machine has {len(visible)} NVIDIA devices{limit}; "
            "expected at most as many, or --device cpu"
        )
    chosen = tuple(visible[slot] for slot in share.slots) if share.slots else visible[:needed]
    return NodeDevices("cuda", len(chosen), chosen, tuple(notices))


def _cpu_notice(device: str, machine: Machine, num_processes: int, source: str) -> str:
    if device == "cpu":
        reason = "--device cpu"
    elif machine.devices:
        reason = "NO VISIBLE NVIDIA DEVICE"
    else:
        reason = "NO NVIDIA DEVICE ON THIS MACHINE"
    ranks = counted(num_processes, "rank")
    source = source or "more with --gpus N"
    return f"{reason}: training on the CPU with {ranks} ({source}; {counted(machine.num_cores, 'core')} here)"


def resolve_port(
    port: int,
    chosen_by: str,
    others_know: bool,
    port_is_free: Callable[[int], bool],
    find_free_port: Callable[[], int],
) -> tuple[int, tuple[str, ...]]:
    """The port that node 0 listens on, and what to say of it; asked on node 0 alone.

    chosen_by: who said which port, "" for nobody: then another one is taken where it is in use, unless other
    nodes have been started with it (others_know). Raises LaunchError with a free one elsewhere.
    """
    if port_is_free(port):
        return port, ()
    other = find_free_port()
    if chosen_by:
        raise LaunchError(f"{chosen_by}: is in use here (or not allowed); {other} is free")
    if others_know:
        raise LaunchError(
            f"port {port} is in use here; {other} is free: give --master-port {other} on every node"
        )
    return other, (f"port {port} is in use here: taking {other}",)
