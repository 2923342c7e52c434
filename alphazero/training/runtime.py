"""Who this process is: rank, world, device. Read once from the environment the launcher made."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from alphazero.errors import LaunchError
from alphazero.host.machine import count_processors
from alphazero.network.device import choose_device


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
        """What people call the device."""
        if self.device.type == "cuda":
            return f"{self.device} {torch.cuda.get_device_name(self.device)}"
        return f"cpu ({torch.get_num_threads()} threads)"


def read_runtime(environment: Mapping[str, str], device: str = "auto", backend: str = "") -> Runtime:
    """The Runtime that torchrun's variables describe; a lone process where there are none."""

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
        local_world_size=number("LOCAL_WORLD_SIZE", world_size),
        device=chosen,
        backend=backend or ("nccl" if chosen.type == "cuda" else "gloo"),
        host=socket.gethostname(),
    )


def lone_process_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Rendezvous variables for one process that no launcher started, which talks to nobody outside."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    own = {name: environment.get(name, "lo") for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return {**lone, **own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def default_threads(local_world_size: int) -> int:
    """CPU threads per rank: the processors this process may use, shared by the ranks of the host."""
    return max(1, count_processors() // local_world_size)
