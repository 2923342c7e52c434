"""Who this process is (rank, world, device), how its device computes, and which processors it is bound to.

The switches of the device are those of the whole process: TF32, autotuning, determinism.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from alphazero.base.errors import ConfigError, LaunchError
from alphazero.machine import machine
from alphazero.machine.memory import count_processors
from alphazero.network.model.precision import choose_device
from alphazero.run.rank import OUTPUT_VARIABLE
from alphazero.settings.sections import TrainingConfig
from alphazero.training.ranks.exchange import Exchange


@dataclass(frozen=True)
class Runtime:
    """One process of a job: rank of world_size, and the device it computes on."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    device: torch.device
    backend: str
    host: str

    @property
    def is_main(self) -> bool:
        """True on rank 0, which alone writes checkpoints, logs and progress."""
        return self.rank == 0

    @property
    def device_name(self) -> str:
        """The device's name in messages."""
        if self.device.type == "cuda":
            return f"{self.device} {torch.cuda.get_device_name(self.device)}"
        return f"cpu ({torch.get_num_threads()} threads)"


def read_runtime(environment: Mapping[str, str], device: str = "auto", backend: str = "") -> Runtime:
    """The Runtime that torchrun's variables describe; a lone process where there are none.

    local_world_size is what a launcher gave: DeepSpeed's calls it LOCAL_SIZE. with_local_ranks corrects it.
    """

    def number(name: str, default: int) -> int:
        text = environment.get(name, str(default))
        if not text.isdecimal():
            raise LaunchError(f"{name}={text!r}: expected a whole number")
        return int(text)

    rank, world_size = number("RANK", 0), number("WORLD_SIZE", 1)
    if rank >= max(world_size, 1):
        raise LaunchError(f"RANK={rank}: expected less than WORLD_SIZE={world_size}")
    local_rank = number("LOCAL_RANK", 0)
    chosen = choose_device(device, local_rank, environment)
    if backend == "nccl" and chosen.type == "cpu":
        raise LaunchError("--backend nccl: this run is on the CPU; expected gloo")
    return Runtime(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        local_world_size=max(number("LOCAL_WORLD_SIZE", number("LOCAL_SIZE", 1)), local_rank + 1),
        device=chosen,
        backend=backend or ("nccl" if chosen.type == "cuda" else "gloo"),
        host=os.uname().nodename,
    )


def with_local_ranks(runtime: Runtime, exchange: Exchange) -> Runtime:
    """`runtime` with room for every local rank of its host, whatever its launcher wrote. Collective."""
    ranks = exchange.gather([_host_identity(runtime), runtime.local_rank, runtime.local_world_size])
    sizes = [max(local + 1, size) for host, local, size in ranks if host == _host_identity(runtime)]
    return replace(runtime, local_world_size=max(sizes))


def _host_identity(runtime: Runtime) -> str:
    """Equal for ranks of one host; containers with separate networks are hosts."""
    return machine.machine_identity() or runtime.host


def default_threads(local_world_size: int, environment: Mapping[str, str] = os.environ) -> int:
    """CPU threads per rank: the user's OMP_NUM_THREADS, else the processors this process may use, shared by
    the ranks of the host. Those that a launcher bound it to, as SLURM does, are its own.
    """
    is_launched = OUTPUT_VARIABLE in environment
    asked = machine.omp_threads(environment, *[machine.THREADS_VARIABLE] if is_launched else [])
    by_torchrun = not is_launched and local_world_size > 1 and "TORCHELASTIC_RUN_ID" in environment
    if asked > (1 if by_torchrun else 0):  # torchrun sets 1 where the user set nothing
        return asked
    return max(1, count_processors() // (1 if machine.is_bound_by_launcher() else local_world_size))


# The two workspaces with which cuBLAS gives the same bits every time (cuBLAS manual, "Results
# reproducibility"); the first, of 8 buffers of 4 MiB, costs the least speed.
DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")
TF32_CAPABILITY = (8, 0)  # Ampere
OLD_SWITCHES = "Please use the new API settings to control TF32 behavior"


def apply_device_settings(config: TrainingConfig, device: torch.device) -> tuple[str, ...]:
    """Set what `config` asks for, before the first use of `device`; lines for the banner say what holds.

    Raises ConfigError where CUBLAS_WORKSPACE_CONFIG contradicts --deterministic.
    """
    lines: tuple[str, ...] = ()
    if device.type == "cuda":
        # Every pass has the same shapes: trying cudnn's algorithms once pays off at once.
        torch.backends.cudnn.benchmark = not config.deterministic
        autotune = "off" if config.deterministic else "on"
        lines = (f"{_set_tf32(config, device)}, cudnn autotune {autotune}",)
    if config.deterministic:
        lines += (_set_deterministic(device),)
    return lines


def _set_tf32(config: TrainingConfig, device: torch.device) -> str:
    """Both of these calls, and no `fp32_precision`: that alone leaves torch's switches at odds.

    torch 2.13 raises "mix of the legacy and new APIs" when its compiler then asks for
    get_float32_matmul_precision, or when anything enters torch.backends.cudnn.flags. torch 2.9 to 2.11
    announce both calls as old, which is of no use to a user.
    """
    has_tf32 = torch.cuda.get_device_capability(device) >= TF32_CAPABILITY
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=OLD_SWITCHES, category=UserWarning)
        torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = config.tf32
    if config.tf32 and not has_tf32:
        return "TF32: this GPU has none"
    return f"TF32 {'on' if config.tf32 else 'off'}"


def _set_deterministic(device: torch.device) -> str:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    if device.type != "cuda":
        return "deterministic: operations that could give other bits are refused; threads must stay the same"
    # Read by cuBLAS when a process makes its first handle, and by child processes.
    workspace = os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", DETERMINISTIC_WORKSPACES[0])
    if workspace not in DETERMINISTIC_WORKSPACES:
        expected = " or ".join(DETERMINISTIC_WORKSPACES)
        raise ConfigError(
            f"CUBLAS_WORKSPACE_CONFIG={workspace}: contradicts --deterministic; expected {expected}, or unset"
        )
    return f"deterministic: operations that could give other bits are refused, cuBLAS workspace {workspace}"


def pin_ranks(runtime: Runtime, exchange: Exchange) -> list[str]:
    """Bind this rank to processors near its GPU, within what it was given; a line per host. Collective.

    Compute threads are cut to the processors that are left. Ranks on CPUs stay as they are.
    """
    own = ""
    if runtime.device.type == "cuda":
        gpu: Any = torch.cuda.get_device_properties(runtime.device)
        own = _pin(f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0")
    pinned = [row for row in exchange.gather([runtime.host, runtime.rank, own]) if row[2]]
    lines = []
    for host, ranks in groupby(pinned, key=lambda row: str(row[0])):
        by_rank = [(int(rank), str(text)) for _, rank, text in ranks]
        is_alike = len({text for _, text in by_rank}) == 1
        texts = [by_rank[0][1]] if is_alike else [f"rank {rank} {text}" for rank, text in by_rank]
        lines.append(f"processors on {host}: {'; '.join(texts)}")
    return lines


def _pin(address: str) -> str:
    """What was done with this rank, whose GPU has this PCI address."""
    if machine.is_bound_by_launcher():
        return f"{machine.processors_text(frozenset(os.sched_getaffinity(0)))}, as the launcher bound it"
    allowed = frozenset(os.sched_getaffinity(0))
    near = machine.processors_near(address) & allowed
    if near in (frozenset(), allowed):
        return "ranks are not pinned: none are known to be nearer to one GPU than to another"
    try:
        machine.bind(near)
    except OSError as error:
        return f"ranks are not pinned: {error.strerror}"
    torch.set_num_threads(min(torch.get_num_threads(), len(near)))
    return machine.processors_text(near)
