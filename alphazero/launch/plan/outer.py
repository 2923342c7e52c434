"""Launchers around this one, by their environment: SLURM, torchrun, a cloud's job controller, MPI.

Names and forms are those of sbatch(1) and srun(1). Inside an allocation only (a batch script, salloc) the
launcher starts one agent per node by srun; inside a step with one task per node each task starts its
node's part.

Another launcher starts ours once per machine; its rank is then the node rank. Where it starts ours several
times per machine, it is an error: the ranks would start ranks.

Where srun or mpirun starts the trainer itself, each task is a rank.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from alphazero.base.errors import LaunchError
from alphazero.machine.machine import LOOPBACK
from alphazero.run.rank import ONE_HEAD_VARIABLE

T = TypeVar("T")
# Step numbers from here on are SLURM's own (batch script, interactive shell), no step of srun.
FIRST_SPECIAL_STEP = 0xFFFFFFF0
COUNTS = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,5})\))?")
# Of a list of hosts: a name in which each bracket is a set of numbers, as rack[1-2]-gpu[01-08].
PART = r"(?!-)(?:[A-Za-z0-9_.-]|\[[0-9,-]+\])+"
# Jobs of one node may run side by side: each meets at a separate port, below the ephemeral range.
FIRST_PORT, NUM_PORTS = 15000, 15000


@dataclass(frozen=True)
class SettingClaim(Generic[T]):
    """A value and its source as people should read it: `--nodes 3`, `SLURM_NNODES=2`; "" for a default."""

    value: T
    text: str


@dataclass(frozen=True)
class SlurmJob:
    """An allocation, or the step that this process belongs to.

    hosts: in the order of SLURM's node ids. tasks_per_node: as requested, () if not. node_rank: this task's
    node among `hosts`, None outside a step. node_name: what SLURM calls this machine, "" where it is none of
    its nodes. source: the variable that names the hosts, for messages.
    """

    job_id: int
    hosts: tuple[str, ...]
    tasks_per_node: tuple[int, ...]
    node_rank: int | None
    node_name: str
    source: str

    @property
    def in_step(self) -> bool:
        """True where srun has started this process."""
        return self.node_rank is not None

    @property
    def port(self) -> int:
        """The master port that all nodes of this job work out alike."""
        return FIRST_PORT + self.job_id % NUM_PORTS


def read_slurm(environment: Mapping[str, str], *, tasks_are_ranks: bool = False) -> SlurmJob | None:
    """The SLURM job this process runs in, None where there is none.

    Raises LaunchError naming the variable for values that SLURM does not write, that contradict each other,
    or a step with several tasks per node, unless its tasks are ranks.
    """
    if "SLURM_JOB_ID" not in environment:
        return None
    in_step = _is_task(environment)
    source = "SLURM_STEP_NODELIST" if in_step else "SLURM_JOB_NODELIST"
    if source not in environment:
        job_id = environment["SLURM_JOB_ID"]
        raise LaunchError(f"SLURM_JOB_ID={job_id}, but no {source}: expected both, or neither")
    hosts = expand_hosts(environment[source], source)
    job = SlurmJob(
        job_id=_number(environment, "SLURM_JOB_ID"),
        hosts=hosts,
        tasks_per_node=_tasks_per_node(environment, len(hosts), in_step),
        node_rank=_number(environment, "SLURM_NODEID") if in_step else None,
        node_name=environment.get("SLURMD_NODENAME", ""),
        source=f"{source}={environment[source]}",
    )
    if job.node_rank is not None and job.node_rank >= len(hosts):
        raise LaunchError(f"SLURM_NODEID={job.node_rank}: expected less than {len(hosts)} ({job.source})")
    if in_step and max(job.tasks_per_node) > 1 and not tasks_are_ranks:
        raise LaunchError(
            f"SLURM_STEP_TASKS_PER_NODE={environment['SLURM_STEP_TASKS_PER_NODE']}: the launcher starts the "
            "processes of a node itself; expected one task per node (srun --ntasks-per-node=1), or no srun"
        )
    return job


def _is_task(environment: Mapping[str, str]) -> bool:
    """True in a task of srun; a batch script and a shell under `srun --pty` stand for the allocation."""
    if "SLURM_STEP_ID" not in environment or "SLURM_PTY_PORT" in environment:
        return False
    if "SLURM_STEP_NUM_TASKS" not in environment or "SLURM_NODEID" not in environment:
        return False
    return _number(environment, "SLURM_STEP_ID") < FIRST_SPECIAL_STEP


def _tasks_per_node(environment: Mapping[str, str], num_nodes: int, in_step: bool) -> tuple[int, ...]:
    if in_step:
        name = "SLURM_STEP_TASKS_PER_NODE"
        if name not in environment:
            return (1,) * num_nodes
    elif "SLURM_NTASKS_PER_NODE" in environment:
        return (_number(environment, "SLURM_NTASKS_PER_NODE"),) * num_nodes
    elif "SLURM_NTASKS" in environment and "SLURM_TASKS_PER_NODE" in environment:
        # Without a request for tasks SLURM_TASKS_PER_NODE counts one task per core.
        name = "SLURM_TASKS_PER_NODE"
    else:
        return ()
    counts = expand_counts(environment[name], name)
    if "SLURM_PTY_PORT" not in environment and len(counts) != num_nodes:
        raise LaunchError(f"{name}={environment[name]}: is for {len(counts)} nodes; expected {num_nodes}")
    return counts if len(counts) == num_nodes else ()


def expand_counts(text: str, name: str) -> tuple[int, ...]:
    """`8(x2),4` as (8, 8, 4). Raises LaunchError calling it `name`."""
    counts: list[int] = []
    for part in text.split(","):
        match = COUNTS.fullmatch(part)
        if match is None:
            raise LaunchError(f"{name}={text!r}: expected counts as 8(x2),4")
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def expand_hosts(text: str, name: str) -> tuple[str, ...]:
    """`gpu[01-04,7],login1` as its host names, in order. Raises LaunchError calling it `name`."""
    if not re.fullmatch(f"{PART}(,{PART})*", text):
        raise _bad_list(text, name)
    hosts: list[str] = []
    for part in re.findall(PART, text):
        pieces = re.split(r"[][]", part)  # plain text and insides of brackets by turns
        choices = [
            list(_expand_ranges(piece, text, name)) if index % 2 else [piece]
            for index, piece in enumerate(pieces)
        ]
        hosts += map("".join, itertools.product(*choices))
    return tuple(hosts)


def _bad_list(text: str, name: str) -> LaunchError:
    return LaunchError(f"{name}={text!r}: expected a node list as gpu[01-04,7],login1")


def _expand_ranges(inside: str, text: str, name: str) -> Iterator[str]:
    for span in inside.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", span)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise _bad_list(text, name)
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{len(match[1])}d}"


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise LaunchError(f"{name}={text!r}: expected a whole number")
    return int(text)


# Size, rank, processes on this machine and the number among those, of Open MPI and the Hydra family
# (MPICH, MVAPICH, Intel MPI).
MPI_VARIABLES = (
    (
        *("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        *("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
)
# torchrun's own defaults (Kubeflow's trainer sets them), then what it gives its ranks. PyTorchJob and other
# controllers write WORLD_SIZE and RANK in pods, one per machine, without LOCAL_WORLD_SIZE.
TORCH_VARIABLES = (("PET_NNODES", "PET_NODE_RANK", ""), ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"))
ADDRESSES, PORTS = ("PET_MASTER_ADDR", "MASTER_ADDR"), ("PET_MASTER_PORT", "MASTER_PORT")


@dataclass(frozen=True)
class OuterLauncher:
    """The job as the outer launcher numbers it; None for what it does not say, or where it knows one machine.

    mpi_variable: of the number of processes, where mpirun started us.
    """

    nodes: SettingClaim[int] | None = None
    node_rank: SettingClaim[int] | None = None
    master_addr: SettingClaim[str] | None = None
    master_port: SettingClaim[int] | None = None
    mpi_variable: str = ""


def read_outer(environment: Mapping[str, str]) -> OuterLauncher:
    """What stands in `environment`.

    Raises LaunchError naming the variable for values that no launcher writes, and for one that started
    several launchers on this machine.
    """
    addr = next((name for name in ADDRESSES if environment.get(name)), "")
    port = next((name for name in PORTS if environment.get(name)), "")
    launcher = OuterLauncher(
        master_addr=SettingClaim(environment[addr], f"{addr}={environment[addr]}") if addr else None,
        master_port=_number_claim(environment, port) if port else None,
    )
    for size, rank, local_size, *is_mpi in (*MPI_VARIABLES, *TORCH_VARIABLES):
        if size not in environment or rank not in environment or not environment[size].isdecimal():
            continue  # PET_NNODES may be a range, as 1:4
        nodes = _number_claim(environment, size)
        if nodes.value < 2:
            continue
        here = _number(environment, local_size) if environment.get(local_size) else 1
        if here > 1:
            raise LaunchError(
                f"{local_size}={here}: another launcher has started this one {here} times on this machine; "
                f"expected it once per machine, or `alphazero train` (or unset {size} if it is a leftover)"
            )
        node_rank = _number_claim(environment, rank)
        return replace(launcher, nodes=nodes, node_rank=node_rank, mpi_variable=size if is_mpi else "")
    return launcher


def _number_claim(environment: Mapping[str, str], name: str) -> SettingClaim[int]:
    number = _number(environment, name)
    return SettingClaim(number, f"{name}={number}")


# Steps of one allocation that run side by side meet at ports that lie apart.
PORTS_BETWEEN_STEPS = 1009


def read_task(environment: Mapping[str, str]) -> dict[str, str]:
    """torchrun's variables for this process as one rank of a job that srun or mpirun started; {} alone.

    MASTER_ADDR and MASTER_PORT are missing where they are not known here. Raises LaunchError naming the
    variable for values that srun and mpirun do not write.
    """
    by_mpi = [
        names for names in MPI_VARIABLES if environment.get(names[0]) and _number(environment, names[0]) > 1
    ]
    for names in by_mpi:
        # srun --mpi=pmi2 writes PMI_SIZE and PMI_RANK as well, and not the others.
        if all(environment.get(name) for name in names):
            numbers = [_number(environment, name) for name in names]
            return _of_task(numbers, {"MASTER_ADDR": LOOPBACK} if numbers[0] == numbers[2] else {})
    if not _is_task(environment) or (size := _number(environment, "SLURM_STEP_NUM_TASKS")) < 2:
        for size_name, *_, local_name in by_mpi:
            raise LaunchError(
                f"{size_name}={environment[size_name]}, but no {local_name}: expected both, or "
                f"the launcher once per machine (or unset {size_name} if it is a leftover)"
            )
        return {}
    job = read_slurm(environment, tasks_are_ranks=True)
    if job is None or job.node_rank is None:
        return {}
    rank, local_rank = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_LOCALID")
    port = FIRST_PORT + (job.job_id + PORTS_BETWEEN_STEPS * _number(environment, "SLURM_STEP_ID")) % NUM_PORTS
    master = {"MASTER_ADDR": job.hosts[0] if len(job.hosts) > 1 else LOOPBACK, "MASTER_PORT": str(port)}
    return _of_task([size, rank, job.tasks_per_node[job.node_rank], local_rank], master)


def _of_task(numbers: list[int], master: Mapping[str, str]) -> dict[str, str]:
    names = ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK")
    return {**dict(zip(names, map(str, numbers), strict=True)), **master, ONE_HEAD_VARIABLE: "1"}
