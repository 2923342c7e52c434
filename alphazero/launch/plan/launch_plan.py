"""What is launched: one plan of hosts, from the launcher to the agents.

resolve.py makes the plan, the supervisor completes its hosts by what they report, and each host's agent gets
it as JSON (agent/protocol.py). Frozen data, no decisions.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from alphazero.machine.machine import Machine
from alphazero.run.rank_watch import Limits

# What this process does in a job.
LOCAL = "local"  # the whole job, on this machine alone
NODE = "node"  # started by hand, or as a task of srun: this node's part only
HEAD = "head"  # hostfile: starts all hosts from here by ssh
SLURM = "slurm"  # inside an allocation: one task per node, by srun


@dataclass(frozen=True)
class Remote:
    """A host as the head reaches it.

    name: in messages. target: [user@]host for ssh, SLURM's name of the node for srun, "" for this machine.
    ssh_config: a file in the place of ~/.ssh/config, "" for none.
    """

    name: str
    target: str = ""
    by_srun: bool = False
    ssh_config: str = ""


@dataclass(frozen=True)
class Variable:
    """An environment variable that the launcher sets, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Command:
    """A process to start: arguments, variables set and variables removed on top of our environment."""

    argv: tuple[str, ...]
    variables: tuple[Variable, ...] = ()
    removed: tuple[str, ...] = ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process."""
        kept = {name: value for name, value in base.items() if name not in self.removed}
        return kept | {variable.name: variable.value for variable in self.variables}

    def shown(self) -> str:
        """One line that a shell runs as this launcher would."""
        words = [f"{variable.name}={variable.value}" for variable in self.variables]
        for name in self.removed:
            words[:0] = ["-u", name]
        return shlex.join([*(["env", *words] if words else []), *self.argv])


@dataclass(frozen=True)
class HostPlan:
    """A host and its part of the job.

    address: by which the other hosts reach it, "" where it is not known here (the other nodes of a job
    started by hand). num_ranks: None until the host has counted its devices (--gpus -1, or no number given);
    0 where it only plays: it takes no part in torchrun, rendezvous and preflight. weight: its share of the
    work per rank, 1 unless the hostfile gives another. slots: which of the host's visible devices, by
    position, --include or --exclude left; empty for the first ones. num_actors: how many devices, after
    those of the ranks, play games.

    What the host reports and what follows from it: machine; devices, the CUDA_VISIBLE_DEVICES entries of its
    ranks, one each, empty on a CPU; interface, on its route to the master; command, what its agent starts;
    players, what each of its actors plays on: an entry of CUDA_VISIBLE_DEVICES, or "" for a share of the
    cores; actors, what the agent starts for these.
    """

    remote: Remote
    address: str
    num_ranks: int | None
    weight: float = 1.0
    slots: tuple[int, ...] = ()
    machine: Machine | None = None
    devices: tuple[str, ...] = ()
    interface: str = ""
    command: Command | None = None
    players: tuple[str, ...] = ()
    actors: tuple[Command, ...] = ()
    num_actors: int = 0

    @property
    def only_plays(self) -> bool:
        """True for a host without ranks: training does without it."""
        return self.num_ranks == 0


@dataclass(frozen=True)
class LaunchPlan:
    """The job: its hosts in order of node rank, then those that only play, and what all must agree on.

    device: auto (until the hosts of a head have been asked), cuda or cpu. launcher: torchrun or deepspeed.
    role: LOCAL, NODE, HEAD or SLURM. node_rank: this machine's, None where it takes no part.
    notices: what people must know. port_is_chosen: by the user, so that another one will not do. interface:
    "" where each host takes the one on its route to the master. min_nodes: fewest hosts to continue with.

    Of one start: token, in the environment of every process of the job; directory, where it runs;
    run_directory, where logs go and heartbeats and checkpoints are looked for; columns, width of the head's
    terminal, 0 where there is none; grace_s, from SIGTERM to SIGKILL.
    """

    hosts: tuple[HostPlan, ...]
    device: str
    master_addr: str
    master_port: int
    launcher: str = "torchrun"
    role: str = LOCAL
    node_rank: int | None = 0
    notices: tuple[str, ...] = ()
    port_is_chosen: bool = False
    interface: str = ""
    max_restarts: int = 0
    min_nodes: int = 0
    limits: Limits = field(default_factory=Limits)
    token: str = ""
    directory: str = ""
    run_directory: str = ""
    columns: int = 0
    grace_s: float = 5.0

    @property
    def num_nodes(self) -> int:
        """Hosts with ranks."""
        return sum(not host.only_plays for host in self.hosts)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of every host, once they are known."""
        return tuple(host.num_ranks or 0 for host in self.hosts)

    @property
    def has_weights(self) -> bool:
        """True where hosts share the work unequally: each rank then gets its host's weight."""
        return any(host.weight != 1.0 for host in self.hosts)

    @property
    def is_head(self) -> bool:
        """True where this process starts all hosts; else it starts its own machine's part alone."""
        return self.role in (HEAD, SLURM)

    @property
    def is_by_hand(self) -> bool:
        """True where every machine of several is started separately."""
        return not self.is_head and self.num_nodes > 1

    @property
    def own(self) -> HostPlan:
        """This machine's part."""
        assert self.node_rank is not None
        return self.hosts[self.node_rank]

    @property
    def started(self) -> dict[int, HostPlan]:
        """The hosts that this process starts, by node rank."""
        return {rank: host for rank, host in enumerate(self.hosts) if self.is_head or rank == self.node_rank}

    def with_started(self, hosts: Sequence[HostPlan]) -> LaunchPlan:
        """The plan with these as the hosts that this process starts; a head may leave some out."""
        if self.is_head:
            return replace(self, hosts=tuple(hosts))
        (own,) = hosts
        return replace(
            self, hosts=tuple(own if rank == self.node_rank else host for rank, host in enumerate(self.hosts))
        )
