"""The request for a launch and the plan made of it: frozen data, no decisions (see resolve.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from alphazero.cluster.plan.hostfile import Host

# What this process does in a job.
LOCAL = "local"  # the whole job, on this machine alone
NODE = "node"  # started by hand: this node's part only
HEAD = "head"  # hostfile: starts all hosts from here by ssh
SLURM = "slurm"  # inside an allocation: one task per node, by srun
SLURM_TASK = "slurm-task"  # this process is that task: this node's part only


@dataclass(frozen=True)
class Limits:
    """How long a rank may go without a sign of progress, in seconds.

    step_s: between steps, or step_medians median step times where that is more. start_s: until steps have
    been timed (imports, compilation, another plan). pause_s: validation, checkpoint, data made or brought
    together. games_s: between two batches of self-play or of the gate's games. shutdown_s: from a rank's last
    message to the end of its process. exit_s: from there to the end of the launcher above it, which waits for
    other hosts. silence_s: until a host or head that says nothing counts as lost.
    """

    step_s: float = 10.0
    step_medians: float = 10.0
    start_s: float = 1800.0
    pause_s: float = 600.0
    games_s: float = 300.0
    shutdown_s: float = 60.0
    exit_s: float = 20.0
    silence_s: float = 10.0


@dataclass(frozen=True)
class LaunchRequest:
    """What the command line asks for; None (or nothing) where a flag was not given.

    gpus -1 is all of them. node_rank "auto" is this machine's line of the hostfile. Timeouts are in seconds
    (Limits).
    """

    gpus: int | None = None
    device: str = "auto"
    nodes: int | None = None
    node_rank: int | str | None = None
    master_addr: str | None = None
    master_port: int | None = None
    interface: str | None = None
    hostfile: Path | None = None
    include: str | None = None
    exclude: str | None = None
    launcher: str = "auto"
    max_restarts: int | None = None
    min_nodes: int | None = None
    hang_timeout: float | None = None
    start_timeout: float | None = None
    pause_timeout: float | None = None
    games_timeout: float | None = None
    shutdown_timeout: float | None = None
    silence_timeout: float | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """One node's part of a job with everything decided; made on that node, or from what it reports of itself.

    device: cuda or cpu. visible: the CUDA_VISIBLE_DEVICES entries of this node's processes, one each,
    empty on cpu. launcher: torchrun or deepspeed. notices: what people must be told. weight: this host's
    share of the work beside others, None where all are alike. interface: of the network, "" where the user
    chose none. processes: of every node, () where all run as many as this one. port_is_chosen: by the user,
    so that another one will not do. start_s: for all nodes to come.
    """

    num_nodes: int
    node_rank: int
    num_processes: int
    device: str
    visible: tuple[str, ...]
    master_addr: str
    master_port: int
    launcher: str
    notices: tuple[str, ...] = ()
    weight: float | None = None
    interface: str = ""
    processes: tuple[int, ...] = ()
    port_is_chosen: bool = False
    start_s: float = Limits().start_s

    @property
    def processes_by_node(self) -> tuple[int, ...]:
        """Processes of every node, in order of node rank."""
        return self.processes or (self.num_processes,) * self.num_nodes


@dataclass(frozen=True)
class HostPlan:
    """A host of the job and its part.

    host: its address is "" where it is not known here (the other nodes of a job started by hand).
    num_processes: None where the host itself counts its devices (--gpus -1, or no number given).
    slots: which of the host's visible devices, by position, --include or --exclude left; empty for the first
    num_processes. weight: its share of the work per rank, 1 unless the hostfile says otherwise.
    """

    host: Host
    node_rank: int
    num_processes: int | None
    weight: float
    is_local: bool
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClusterPlan:
    """The whole job as it can be known here, before any other host has been asked.

    hosts: in order of node rank. device: auto (head and slurm only: the hosts decide), cuda or cpu.
    role: LOCAL, NODE, HEAD, SLURM or SLURM_TASK. node_rank: this machine's, None where it takes no part.
    port_is_chosen: by the user, so that another one will not do. interface: "" where each host takes the one
    on its route to the master. min_nodes: fewest hosts to go on with. chose_address: this is node 0 by hand
    and nobody named the master, so that the other nodes are still to be told where it is. node: this
    machine's part (LOCAL, NODE, SLURM_TASK).
    """

    hosts: tuple[HostPlan, ...]
    device: str
    master_addr: str
    master_port: int
    launcher: str
    role: str
    node_rank: int | None
    notices: tuple[str, ...] = ()
    port_is_chosen: bool = False
    interface: str = ""
    max_restarts: int = 0
    min_nodes: int = 0
    limits: Limits = field(default_factory=Limits)
    chose_address: bool = False
    node: LaunchPlan | None = None

    @property
    def num_nodes(self) -> int:
        """Hosts of the job."""
        return len(self.hosts)

    @property
    def has_weights(self) -> bool:
        """True where hosts share the work unequally: each rank is then told its host's weight."""
        return any(host.weight != 1.0 for host in self.hosts)
