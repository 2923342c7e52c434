"""Command lines of the launchers: pure functions from a plan to arguments and environment, no shell.

The programs of this package that cluster starts with `python -m`, here and on other hosts: their names.

Names and no imports: cluster does without torch, and most of them run on another host.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from alphazero.base.errors import LaunchError
from alphazero.cluster.plan.hostfile import Host
from alphazero.cluster.plan.launch_plan import LaunchPlan, LaunchRequest
from alphazero.machine.machine import HOST_WEIGHT_VARIABLE, Machine

# What an outer launcher (srun, torchrun, mpirun) left in the environment must not reach our ranks.
RANK_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "ROLE_NAME",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    # torchrun's defaults, where a job controller sets them.
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_MAX_RESTARTS",
    "PET_STANDALONE",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_LOCAL_ADDR",
)


@dataclass(frozen=True)
class Variable:
    """An environment variable the launcher sets, and why."""

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


def build_command(
    plan: LaunchPlan,
    machine: Machine,
    interface: str,
    environment: Mapping[str, str],
    python: str,
    trainer: Sequence[str],
    arguments: Sequence[str],
    slots: Sequence[int] = (),
) -> Command:
    """What to start on this node.

    interface: the one on the way to the master, "" where unknown or alone; the plan's own beats it. slots:
    processes of every node, needed for deepspeed on several.
    trainer: a script's path, or ("--module", NAME, ...); arguments follow it.
    """
    if plan.launcher == "deepspeed" and plan.num_nodes > 1:
        command = deepspeed_node_command(plan, slots, python, trainer, arguments)
    else:
        build = deepspeed_command if plan.launcher == "deepspeed" else torchrun_command
        command = build(plan, python, trainer, arguments)
    chosen = choose_environment(plan, machine, interface, environment)
    variables = (*chosen, *command.variables)
    removed = tuple(name for name in RANK_VARIABLES if name in environment)
    return replace(command, variables=variables, removed=removed)


def torchrun_command(
    plan: LaunchPlan, python: str, trainer: Sequence[str], arguments: Sequence[str]
) -> Command:
    """torchrun with static rendezvous: node ranks are the ones given, not the order of arrival."""
    options: tuple[str, ...] = (
        f"--nproc_per_node={plan.num_processes}",
        f"--nnodes={plan.num_nodes}",
        f"--node_rank={plan.node_rank}",
        f"--master_addr={plan.master_addr}",
        f"--master_port={plan.master_port}",
    )
    if plan.num_nodes > 1:
        options += (f"--start_timeout={plan.start_s:g}",)
    elif not plan.port_is_chosen:
        options += ("--any_port",)
    return Command((python, "-m", TORCHRUN, *options, *trainer, *arguments))


def deepspeed_command(
    plan: LaunchPlan, python: str, trainer: Sequence[str], arguments: Sequence[str]
) -> Command:
    """DeepSpeed's own launcher on this machine alone.

    It ignores CUDA_VISIBLE_DEVICES beside --num_gpus and turns it into --include otherwise, which takes
    indices only. /dev/null as hostfile: it reads a hostfile by ssh to its first host, even to localhost.
    """
    options = ["--hostfile=/dev/null", f"--master_port={plan.master_port}"]
    variables: tuple[Variable, ...] = ()
    if plan.device == "cuda":
        for entry in plan.visible:
            if not entry.isdecimal():
                raise LaunchError(
                    f"--launcher deepspeed: takes device indices, not {entry}; expected --launcher torchrun"
                )
        reason = "the devices of this job"
        variables = (Variable("CUDA_VISIBLE_DEVICES", ",".join(plan.visible), reason),)
    else:
        options.append(f"--num_gpus={plan.num_processes}")
    return Command((python, "-m", "deepspeed.launcher.runner", *options, *trainer, *arguments), variables)


def deepspeed_node_command(
    plan: LaunchPlan, slots: Sequence[int], python: str, trainer: Sequence[str], arguments: Sequence[str]
) -> Command:
    """DeepSpeed's launcher of one node among several, started on each host by us.

    Its runner would start them too, but ends a job with `pkill -f`, which hits others' jobs on the hosts.
    slots: processes of every node, in order of node rank.
    """
    # It writes the entries of its own node into CUDA_VISIBLE_DEVICES; of the others it counts them.
    world = {f"node{rank}": [str(slot) for slot in range(count)] for rank, count in enumerate(slots)}
    if plan.device == "cuda":
        world[f"node{plan.node_rank}"] = list(plan.visible)
    options = (
        f"--world_info={base64.urlsafe_b64encode(json.dumps(world).encode()).decode()}",
        f"--node_rank={plan.node_rank}",
        f"--master_addr={plan.master_addr}",
        f"--master_port={plan.master_port}",
        "--no_local_rank",
    )
    return Command((python, "-m", "deepspeed.launcher.launch", *options, *trainer, *arguments))


def choose_environment(
    plan: LaunchPlan, machine: Machine, interface: str, environment: Mapping[str, str]
) -> tuple[Variable, ...]:
    """Variables that ranks want and the user has not set."""
    chosen = []
    threads = max(1, machine.num_cores // plan.num_processes)
    cores = f"{machine.num_cores} cores, processes: {plan.num_processes}"
    chosen.append(Variable("OMP_NUM_THREADS", str(threads), cores))
    if plan.device == "cpu":
        chosen.append(Variable("DS_ACCELERATOR", "cpu", "no GPU in this job"))
    if plan.weight is not None:
        chosen.append(Variable(HOST_WEIGHT_VARIABLE, f"{plan.weight:g}", "weight of this host"))
    if plan.device == "cuda" and plan.launcher != "deepspeed":
        chosen += _device_variables(plan, environment)
    if plan.num_nodes == 1:
        chosen.append(Variable("GLOO_SOCKET_IFNAME", "lo", "one node"))
        if plan.device == "cuda":
            chosen.append(Variable("NCCL_SOCKET_IFNAME", "lo", "one node"))
    elif interface := plan.interface or interface:
        route = "--interface" if plan.interface else f"the route to {plan.master_addr}"
        chosen.append(Variable("GLOO_SOCKET_IFNAME", interface, route))
        if plan.device == "cuda":
            chosen.append(Variable("NCCL_SOCKET_IFNAME", interface, route))
    if plan.device == "cuda" and plan.num_nodes > 1 and not machine.has_infiniband:
        chosen.append(Variable("NCCL_IB_DISABLE", "1", "no InfiniBand device here"))
    ours = (HOST_WEIGHT_VARIABLE, "CUDA_VISIBLE_DEVICES")
    return tuple(one for one in chosen if one.name in ours or one.name not in environment)


def _device_variables(plan: LaunchPlan, environment: Mapping[str, str]) -> list[Variable]:
    """The devices of this node's processes, and only them, counted as NVML and nvidia-smi do."""
    value = ",".join(plan.visible)
    if not value or environment.get("CUDA_VISIBLE_DEVICES") == value:
        return []
    found = [Variable("CUDA_VISIBLE_DEVICES", value, "the devices of this job")]
    if "CUDA_VISIBLE_DEVICES" not in environment:
        found.append(Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "as nvidia-smi counts"))
    return found


# Of the launcher's own flags: what each node has to itself, or is told besides.
NOT_OF_OTHER_NODES = ("node_rank", "master_addr", "master_port", "interface")


def other_node_commands(
    request: LaunchRequest, num_nodes: int, master_addr: str, master_port: int, arguments: Sequence[str]
) -> tuple[str, ...]:
    """What a person types on every node but node 0: its own command, with the rank and the master's place."""
    kept: list[str] = []
    for entry in fields(request):
        value = getattr(request, entry.name)
        if entry.name not in NOT_OF_OTHER_NODES and value != entry.default:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            kept += [f"--{entry.name.replace('_', '-')}", text]
    lines = []
    for rank in range(1, num_nodes):
        place = ["--node-rank", str(rank), "--master-addr", master_addr, "--master-port", str(master_port)]
        lines.append(shlex.join(["./launch_distributed_training.sh", *kept, *place, *arguments]))
    return tuple(lines)


def hand_commands(
    hosts: Sequence[Host], master_port: int, arguments: Sequence[str]
) -> tuple[tuple[Host, str], ...]:
    """What a person types on each host; the first one's address is the master's."""
    lines = []
    for rank, host in enumerate(hosts):
        words = ["./launch_distributed_training.sh", "--gpus", str(host.slots)]
        words += ["--nodes", str(len(hosts)), "--node-rank", str(rank)]
        words += ["--master-addr", hosts[0].address, "--master-port", str(master_port)]
        lines.append((host, shlex.join([*words, *arguments])))
    return tuple(lines)


NODE_AGENT = "alphazero.cluster.agent.node_agent"  # one host's part of a job
HOST_PROBE = "alphazero.cluster.launch.probe"  # what a host says of itself
DATA_RECEIVER = "alphazero.cluster.launch.sync_data"  # the host's side of --sync-data
TORCHRUN = "alphazero.training.ranks.torchrun"  # torchrun with an account of the rank that failed first
PREFLIGHT = "alphazero.training.ranks.preflight"  # all ranks together for a moment, before the trainer

DOCTOR = "alphazero.measure.doctor"  # what a host can do, measured

PROGRAMS = (NODE_AGENT, HOST_PROBE, DATA_RECEIVER, TORCHRUN, PREFLIGHT, DOCTOR)
