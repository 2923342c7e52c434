"""Launch requests resolved on made-up machines."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.launch.plan.resolve import resolve
from alphazero.launch.plan.sources import LaunchRequest
from alphazero.machine.machine import Machine
from alphazero.machine.nvml import Device
from alphazero.settings.cluster import read_cluster

ADDRESSES = (("lo", "127.0.0.1"), ("eth0", "10.0.0.5"))
CPU = Machine("box", (), 4, ADDRESSES, has_infiniband=False)
GPUS = replace(CPU, devices=tuple(Device(index, f"GPU-{index}", "NVIDIA Test") for index in range(4)))
TWO = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "gpu[1-2]", "SLURM_NNODES": "2", "SLURMD_NODENAME": "gpu1"}


def cluster(
    request: LaunchRequest,
    machine: Machine = CPU,
    config: Path | None = None,
    names: dict[str, tuple[str, ...]] | None = None,
    cpu_ranks: Callable[[int], int] | None = None,
    **environment: str,
) -> LaunchPlan:
    """resolve() where `names` resolve."""
    known = names or {}
    return resolve(
        request,
        machine,
        environment,
        read_cluster(str(config or "")),
        lambda name: known.get(name, ()),
        cpu_ranks,
    )


def plan(request: LaunchRequest, machine: Machine = CPU, **rest) -> LaunchPlan:
    """Of a job in which this machine has a part."""
    found = cluster(request, machine, **rest)
    assert not found.is_head
    return found
