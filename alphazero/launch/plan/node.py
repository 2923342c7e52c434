"""This machine's part of a job: its devices within CUDA_VISIBLE_DEVICES, how many ranks, the port.

Without GPUs and without a number it is one rank per core: beside other work, threads of one rank wait for the
slowest of them in every layer, ranks of one thread once per step (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from alphazero.base.errors import LaunchError
from alphazero.base.text import counted
from alphazero.launch.plan.launch_plan import HostPlan
from alphazero.machine.machine import Machine, visible_devices
from alphazero.settings.sections import LARGEST_MICRO_BATCH, NetworkConfig

# Resident memory of a rank beside activations and weights: Python, torch, DeepSpeed, the loader. A rank of
# chess_cpu held 692 MiB at its most with a micro-batch of 256 and 617 with 128 (VmHWM of 60 steps with
# validation and checkpoints, torch 2.13); activations and weights as computed below are 300 and 160 of them.
BASE_BYTES = 512 << 20
# Tensors of the tower's size kept for backward per convolution: 3.5 to 7.0 were measured
# for 20x256, 10x128, 6x64 and 2x32.
KEPT_TENSORS = 8
# Weights, gradients, two moments, the reduction's bucket, a temporary, a copy for a checkpoint.
WEIGHT_COPIES = 7
FLOAT_BYTES = 4
# The largest board, and planes in and out of the tower, of all games.
SQUARES, PLANES = 64, 112 + 80
# Of the available memory, what ranks may take together.
MEMORY_SHARE = 0.8


def choose_cpu_ranks(
    num_cores: int,
    batch_size: int,
    least_share: int,
    network: NetworkConfig,
    available_bytes: int,
    ranks_at_work: Callable[[int], float],
) -> int:
    """One rank per core, fewer where batch or memory do not suffice for so many; at least 1.

    least_share: positions that each rank must get per step. ranks_at_work: of so many ranks, how many are at
    work on the mean of a step; a number of ranks must gain something over each smaller one.
    """
    most = min(num_cores, max(1, batch_size // least_share))

    def fits(num_ranks: int) -> bool:
        micro_batch_size = min(LARGEST_MICRO_BATCH["cpu"], batch_size // num_ranks)
        return num_ranks * rank_bytes(network, micro_batch_size) <= MEMORY_SHARE * available_bytes

    fitting = list(filter(fits, range(1, most + 1))) or [1]
    # Of equals the fewest: what they leave becomes threads.
    return max(fitting, key=lambda n: (round(ranks_at_work(n), 6), -n))


def rank_bytes(network: NetworkConfig, micro_batch_size: int) -> int:
    """A bound of the memory that a CPU rank holds while it trains, counted as a residual tower."""
    per_square = KEPT_TENSORS * (2 * network.blocks + 1) * network.filters
    weights = 9 * network.filters * (2 * network.blocks * network.filters + PLANES + network.filters)
    per_position = per_square * SQUARES * FLOAT_BYTES
    return BASE_BYTES + per_position * micro_batch_size + WEIGHT_COPIES * weights * FLOAT_BYTES


# From a number of cores.
ChooseCpuRanks = Callable[[int], int]


def resolve_devices(
    device: str,
    own: HostPlan,
    source: str,
    machine: Machine,
    environment: Mapping[str, str],
    cpu_ranks: ChooseCpuRanks | None = None,
) -> tuple[str, HostPlan, tuple[str, ...]]:
    """cuda or cpu, this machine's part with its ranks and their devices, and notices.

    device: auto, cuda or cpu. source: what set the number of ranks of `own`, "" for nothing. cpu_ranks:
    chooses the number of CPU ranks where `own` has none; None for 1. Raises LaunchError where the machine has
    fewer devices than ranks, at least one, and actors need.
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
    own = replace(own, machine=machine)
    if not visible:
        num_ranks = own.num_ranks or 1
        if cpu_ranks is not None and own.num_ranks is None:
            num_ranks = cpu_ranks(machine.num_cores)
            source = "as many as cores, batch and memory allow; --gpus N changes it"
        notices.append(_cpu_notice(device, machine, num_ranks, source))
        return "cpu", with_devices(replace(own, num_ranks=num_ranks), ()), tuple(notices)
    needed = max(own.slots) + 1 if own.slots else (own.num_ranks or 1) + own.num_actors
    if needed > len(visible):
        limit = f" (CUDA_VISIBLE_DEVICES={setting})" if setting is not None else ""
        if own.num_actors:
            both = f"{counted(own.num_ranks or 1, 'rank')}, {counted(own.num_actors, 'actor')}"
            source = f"{source}: {both}" if source else both
        raise LaunchError(
            f"{source}: this machine has {len(visible)} NVIDIA devices{limit}; "
            "expected at most as many, or --device cpu"
        )
    return "cuda", with_devices(own, visible), tuple(notices)


def with_devices(host: HostPlan, visible: tuple[str, ...]) -> HostPlan:
    """A host with the devices of its ranks, and of its actors after these, of those `visible` there.

    All are used where it counts them itself. Without any, actors get a share of the cores.
    """
    if not visible:
        return replace(host, devices=(), players=("",) * host.num_actors)
    used = tuple(visible[slot] for slot in host.slots) if host.slots else visible
    num_ranks = len(used) - host.num_actors if host.num_ranks is None else host.num_ranks
    players = used[num_ranks : num_ranks + host.num_actors]
    return replace(host, num_ranks=num_ranks, devices=used[:num_ranks], players=players)


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
