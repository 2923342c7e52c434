"""What `--dry-run` prints: every command of every host. Asks no other machine and no name server.

What a launcher tells people before it starts: lines on stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from alphazero.base.log import program_line
from alphazero.cluster.launch.remote import Remote, SshOptions, remote_argv
from alphazero.cluster.plan import commands as programs
from alphazero.cluster.plan.commands import (
    Command,
    Variable,
    build_command,
    hand_commands,
    torchrun_command,
)
from alphazero.cluster.plan.commands import deepspeed_node_command as deepspeed_command
from alphazero.cluster.plan.launch_plan import SLURM, ClusterPlan, HostPlan, LaunchPlan
from alphazero.cluster.plan.role import is_ip
from alphazero.machine.machine import HOST_WEIGHT_VARIABLE, Machine, interface_towards


def dry_run_lines(
    plan: ClusterPlan,
    machine: Machine,
    environment: Mapping[str, str],
    python: str,
    trainer: Sequence[str],
    arguments: Sequence[str],
    ssh: SshOptions,
) -> Iterator[str]:
    """Lines that a shell runs; those that begin with # are for people."""
    if plan.node is not None:
        yield from _lines_of_this_node(plan, plan.node, machine, environment, python, trainer, arguments)
        return
    for part in plan.hosts:
        yield from _lines_of_host(plan, part, python, trainer, arguments, ssh)
    # Weights and chosen slots need the hostfile on each of them: --hostfile FILE --node-rank auto.
    plain = all(part.num_processes is not None and not part.slots for part in plan.hosts)
    if plain and not plan.has_weights and plan.role != SLURM:
        yield "# by hand, on each of them:"
        for host, line in hand_commands([part.host for part in plan.hosts], plan.master_port, arguments):
            yield f"#   {line}   # on {host.name}"


def _lines_of_this_node(
    plan: ClusterPlan,
    node: LaunchPlan,
    machine: Machine,
    environment: Mapping[str, str],
    python: str,
    trainer: Sequence[str],
    arguments: Sequence[str],
) -> Iterator[str]:
    interface = plan.interface
    if node.num_nodes > 1 and not interface:
        if is_ip(node.master_addr):  # the kernel's own table says
            interface = interface_towards(node.master_addr, machine.addresses)
        else:
            yield f"# interface: the one towards {node.master_addr}, looked up at the start"
    slots = node.processes_by_node
    command = build_command(node, machine, interface, environment, python, trainer, arguments, slots)
    yield command.shown()


def _lines_of_host(
    plan: ClusterPlan,
    part: HostPlan,
    python: str,
    trainer: Sequence[str],
    arguments: Sequence[str],
    ssh: SshOptions,
) -> Iterator[str]:
    """One host's transport, and what its agent starts there as far as it is known here."""
    count = "as many processes as GPUs" if part.num_processes is None else f"{part.num_processes} processes"
    yield f"# node {part.node_rank} of {plan.num_nodes}: {part.host.name}, {count}"
    by_srun = plan.role == SLURM
    target = part.host.name if by_srun or not part.is_local else ""
    remote = Remote(part.host.address, target, by_srun, ssh)
    yield Command(tuple(remote_argv(remote, python, ["-m", programs.NODE_AGENT]))).shown()
    yield "# which starts there, with devices, threads and interface as that host has them:"
    yield _command_there(plan, part, python, trainer, arguments).shown()


def _command_there(
    plan: ClusterPlan, part: HostPlan, python: str, trainer: Sequence[str], arguments: Sequence[str]
) -> Command:
    device = "cpu" if plan.device == "cpu" else "cuda"
    node = LaunchPlan(
        num_nodes=plan.num_nodes,
        node_rank=part.node_rank,
        num_processes=part.num_processes or 1,
        device=device,
        visible=tuple(map(str, part.slots or range(part.num_processes or 1))),
        master_addr=plan.master_addr,
        master_port=plan.master_port,
        launcher=plan.launcher,
        port_is_chosen=plan.port_is_chosen,
        start_s=plan.limits.start_s,
    )
    if plan.launcher == "deepspeed":
        slots = [one.num_processes or 1 for one in plan.hosts]
        command = deepspeed_command(node, slots, python, trainer, arguments)
    else:
        command = torchrun_command(node, python, trainer, arguments)
    if part.num_processes is None:  # torchrun's own word for it
        words = (f"--nproc_per_node={'gpu' if device == 'cuda' else 1}", *command.argv[4:])
        command = replace(command, argv=(*command.argv[:3], *words))
    variables = []
    if plan.has_weights:
        variables.append(Variable(HOST_WEIGHT_VARIABLE, f"{part.weight:g}", "weight of this host"))
    if plan.interface:
        names = ("GLOO_SOCKET_IFNAME", *(("NCCL_SOCKET_IFNAME",) if device == "cuda" else ()))
        variables += [Variable(name, plan.interface, "--interface") for name in names]
    return replace(command, variables=tuple(variables))


Say = Callable[[str], None]


def say(text: str) -> None:
    """A line of the launcher, on stderr: stdout belongs to the job and to --dry-run."""
    show(program_line(text, has_time=False) + "\n")


def say_of_job(text: str) -> None:
    """A line of the job that the launcher has started, or is about to: with its time where it is kept."""
    show(program_line(text) + "\n")


def show(text: str) -> None:
    """Text on stderr; where nobody reads it any more (a closed terminal or pipe), the job goes on without."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def banner(plan: LaunchPlan, machine: Machine, command: Command) -> list[str]:
    """What is about to start, for people."""
    processes = "1 process" if plan.num_processes == 1 else f"{plan.num_processes} processes"
    what = "CPU" if plan.device == "cpu" else "NVIDIA"
    node = f"node {plan.node_rank} of {plan.num_nodes} ({machine.host_name})"
    lines = [
        *plan.notices,
        f"{node}: {processes}, {what}, {plan.launcher}",
        f"master {plan.master_addr}:{plan.master_port}",
    ]
    names = {device.uuid: device.name for device in machine.devices}
    names |= {str(device.index): device.name for device in machine.devices}
    lines += [
        f"local rank {rank}: device {entry} {names.get(entry, '')}" for rank, entry in enumerate(plan.visible)
    ]
    lines += [f"{variable.name}={variable.value} ({variable.reason})" for variable in command.variables]
    if plan.device == "cuda":
        lines += _nccl_lines(command)
    lines.append(f"command: {command.shown()}")
    return [*lines, "starting: ranks take some seconds to load PyTorch and DeepSpeed"]


def _nccl_lines(command: Command) -> Iterator[str]:
    chosen = {variable.name for variable in command.variables}
    for name, unset in (
        ("NCCL_SOCKET_IFNAME", "NCCL chooses the interface"),
        ("NCCL_IB_DISABLE", "InfiniBand where there is some"),
        ("NCCL_P2P_DISABLE", "peer to peer where the devices can"),
    ):
        if name not in chosen:
            value = os.environ.get(name)
            yield f"{name} unset ({unset})" if value is None else f"{name}={value} (from the environment)"
