"""Command lines of the launchers: pure functions from a plan to arguments and environment, no shell."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from alphazero.launch.plan.launch_plan import Command, HostPlan, LaunchPlan, Variable
from alphazero.launch.plan.programs import DEEPSPEED, TORCHRUN, words_of
from alphazero.machine.environment import START
from alphazero.machine.machine import HOST_WEIGHT_VARIABLE, THREADS_VARIABLE, omp_threads

# What an outer launcher (srun, torchrun, mpirun) left in the environment must not reach our ranks.
RANK_VARIABLES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR"),
    *("MASTER_PORT", "ROLE_NAME", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    # torchrun's defaults, where a job controller sets them.
    *("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    *("PET_MAX_RESTARTS", "PET_STANDALONE", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"),
    *("PET_RDZV_CONF", "PET_LOCAL_ADDR"),
)


def build_command(
    plan: LaunchPlan, node_rank: int, environment: Mapping[str, str], python: str, program: Sequence[str]
) -> Command:
    """What to start on this node.

    program: the trainer and its arguments: a script's path, and what follows it.
    """
    command = bare_command(plan, node_rank, python, program)
    variables = choose_environment(plan, node_rank, environment)
    removed = tuple(name for name in RANK_VARIABLES if name in environment)
    return replace(command, variables=variables, removed=removed)


def bare_command(plan: LaunchPlan, node_rank: int, python: str, program: Sequence[str]) -> Command:
    """The launcher's command without the environment that the host chooses."""
    build = _deepspeed_command if plan.launcher == "deepspeed" else _torchrun_command
    return build(plan, node_rank, python, program)


def actor_commands(
    host: HostPlan, environment: Mapping[str, str], python: str, program: Sequence[str]
) -> tuple[Command, ...]:
    """What plays on a host, beside its ranks if it has any. program: `selfplay` and its arguments."""
    removed = tuple(name for name in RANK_VARIABLES if name in environment)
    share: tuple[Variable, ...] = ()
    if host.machine and not omp_threads(environment):
        share = (Variable("OMP_NUM_THREADS", _threads(host), "its share of the cores"),)
    return tuple(
        Command(
            (python, START, *program, "--device", "cuda" if device else "cpu"),
            (*share, *_device_variables((device,), environment)),
            removed,
        )
        for device in host.players
    )


def _threads(host: HostPlan) -> str:
    """Of each process of a host."""
    assert host.machine is not None and host.num_ranks is not None
    return str(max(1, host.machine.num_cores // (host.num_ranks + len(host.players))))


def _torchrun_command(plan: LaunchPlan, node_rank: int, python: str, program: Sequence[str]) -> Command:
    """torchrun with static rendezvous: node ranks are the ones given, not the order of arrival."""
    count_there = "gpu" if plan.device == "cuda" else 1  # torchrun's own word
    options: tuple[str, ...] = (
        f"--nproc_per_node={plan.hosts[node_rank].num_ranks or count_there}",
        f"--nnodes={plan.num_nodes}",
        f"--node_rank={node_rank}",
        f"--master_addr={plan.master_addr}",
        f"--master_port={plan.master_port}",
    )
    if plan.num_nodes > 1:
        options += (f"--start_timeout={plan.limits.start_s:g}",)
        options += (f"--silence_timeout={plan.limits.silence_s:g}",) if plan.is_by_hand else ()
    return Command((python, *words_of(TORCHRUN), *options, *program))


def _deepspeed_command(plan: LaunchPlan, node_rank: int, python: str, program: Sequence[str]) -> Command:
    """DeepSpeed's launcher of one node, started on each host by us.

    Its runner only forwards to this one on one machine; on several it ends a job with `pkill -f`, which hits
    others' jobs on the hosts.
    """
    # It writes the entries of this node into CUDA_VISIBLE_DEVICES and counts those of the others.
    counts = [host.num_ranks or 1 for host in plan.hosts if not host.only_plays]
    world = {f"node{rank}": [str(slot) for slot in range(count)] for rank, count in enumerate(counts)}
    if plan.device == "cuda":
        world[f"node{node_rank}"] = list(plan.hosts[node_rank].devices)
    options = (
        f"--world_info={base64.urlsafe_b64encode(json.dumps(world).encode()).decode()}",
        f"--node_rank={node_rank}",
        f"--master_addr={plan.master_addr}",
        f"--master_port={plan.master_port}",
        "--no_local_rank",
    )
    return Command((python, *words_of(DEEPSPEED), *options, *program))


def choose_environment(
    plan: LaunchPlan, node_rank: int, environment: Mapping[str, str]
) -> tuple[Variable, ...]:
    """Variables that the ranks of a node need and the user has not set."""
    host = plan.hosts[node_rank]
    assert host.machine is not None
    assert host.num_ranks is not None
    cores, processes = host.machine.num_cores, host.num_ranks + len(host.players)
    chosen = [Variable("OMP_NUM_THREADS", _threads(host), f"{cores} cores, processes: {processes}")]
    if omp_threads(environment):
        chosen.append(Variable(THREADS_VARIABLE, environment["OMP_NUM_THREADS"], "OMP_NUM_THREADS is set"))
    if plan.device == "cpu":
        chosen.append(Variable("DS_ACCELERATOR", "cpu", "no GPU in this job"))
    if plan.has_weights:
        chosen.append(weight_variable(host))
    if plan.device == "cuda" and plan.launcher != "deepspeed":
        chosen += _device_variables(host.devices, environment)
    if plan.num_nodes == 1:
        chosen += interface_variables(plan.device, "lo", "one node")
    elif interface := plan.interface or host.interface:
        route = "--interface" if plan.interface else f"the route to {plan.master_addr}"
        chosen += interface_variables(plan.device, interface, route)
    if plan.device == "cuda" and plan.num_nodes > 1 and not host.machine.has_infiniband:
        chosen.append(Variable("NCCL_IB_DISABLE", "1", "no InfiniBand device here"))
    ours = (HOST_WEIGHT_VARIABLE, THREADS_VARIABLE, "CUDA_VISIBLE_DEVICES")
    return tuple(variable for variable in chosen if variable.name in ours or variable.name not in environment)


def weight_variable(host: HostPlan) -> Variable:
    """What gives the ranks of a host its weight."""
    return Variable(HOST_WEIGHT_VARIABLE, f"{host.weight:g}", "weight of this host")


def interface_variables(device: str, interface: str, reason: str) -> list[Variable]:
    """The interface of gloo, and of NCCL on GPUs."""
    names = ("GLOO_SOCKET_IFNAME", *(("NCCL_SOCKET_IFNAME",) if device == "cuda" else ()))
    return [Variable(name, interface, reason) for name in names]


def _device_variables(devices: Sequence[str], environment: Mapping[str, str]) -> list[Variable]:
    """These devices and no others, counted as NVML and nvidia-smi do."""
    value = ",".join(devices)
    if not value or environment.get("CUDA_VISIBLE_DEVICES") == value:
        return []
    variables = [Variable("CUDA_VISIBLE_DEVICES", value, "the devices of this job")]
    if "CUDA_VISIBLE_DEVICES" not in environment:
        variables.append(Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "as nvidia-smi counts"))
    return variables
