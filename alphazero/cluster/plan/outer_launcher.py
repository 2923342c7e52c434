"""Another launcher around this one: what torchrun, a cloud's job controller or MPI left in the environment.

Such a launcher starts ours once per machine; its rank is then the node rank. Where it starts ours several
times per machine, it is an error: the ranks would start ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from alphazero.errors import LaunchError

# (size, rank, processes on this machine) of Open MPI, MVAPICH2 and the Hydra family (MPICH, Intel MPI).
MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
)
# torchrun's own defaults (Kubeflow's trainer sets them), then what it gives its ranks. PyTorchJob and other
# controllers write WORLD_SIZE and RANK in pods, one per machine, without LOCAL_WORLD_SIZE.
TORCH_VARIABLES = (("PET_NNODES", "PET_NODE_RANK", ""), ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"))
ADDRESSES, PORTS = ("PET_MASTER_ADDR", "MASTER_ADDR"), ("PET_MASTER_PORT", "MASTER_PORT")


@dataclass(frozen=True)
class OuterLauncher:
    """The job as the outer launcher numbers it; num_nodes and node_rank with the variables they are from.

    num_nodes is 1 and the variables "" where it tells nothing of other machines. by_mpi: mpirun started us.
    """

    num_nodes: int = 1
    node_rank: int | None = None
    size_variable: str = ""
    rank_variable: str = ""
    master_addr: str = ""
    addr_variable: str = ""
    master_port: int | None = None
    by_mpi: bool = False


def read_outer(environment: Mapping[str, str]) -> OuterLauncher:
    """What stands in `environment`.

    Raises LaunchError naming the variable for values that no launcher writes, and for one that started
    several launchers on this machine.
    """
    addr = next((name for name in ADDRESSES if environment.get(name)), "")
    port = next((name for name in PORTS if environment.get(name)), "")
    for size, rank, local_size in (*MPI_VARIABLES, *TORCH_VARIABLES):
        if size not in environment or rank not in environment or not environment[size].isdecimal():
            continue  # PET_NNODES may be a range, as 1:4
        num_processes = _number(environment, size)
        if num_processes < 2:
            continue
        here = _number(environment, local_size) if environment.get(local_size) else 1
        if here > 1:
            raise LaunchError(
                f"{local_size}={here}: another launcher has started this one {here} times on this machine; "
                f"expected it once per machine, or `alphazero train` (or unset {size} if it is a leftover)"
            )
        node_rank = _number(environment, rank)
        if node_rank >= num_processes:
            raise LaunchError(f"{rank}={node_rank}: expected less than {size}={num_processes}")
        return OuterLauncher(
            num_processes,
            node_rank,
            size,
            rank,
            environment.get(addr, ""),
            addr,
            _number(environment, port) if port else None,
            (size, rank, local_size) in MPI_VARIABLES,
        )
    return OuterLauncher(
        master_addr=environment.get(addr, ""),
        addr_variable=addr,
        master_port=_number(environment, port) if port else None,
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", environment[name]):
        raise LaunchError(f"{name}={environment[name]!r}: expected a whole number")
    return int(environment[name])
