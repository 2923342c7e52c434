"""What the launcher prints: lines on stderr, the banner of a start, and every command with `--dry-run`.

A dry run asks no other machine and no name server.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from alphazero.base.log import program_line
from alphazero.base.text import counted
from alphazero.launch.head.remote import remote_argv
from alphazero.launch.plan import programs
from alphazero.launch.plan.commands import (
    bare_command,
    build_command,
    hand_commands,
    interface_variables,
    weight_variable,
)
from alphazero.launch.plan.launch_plan import SLURM, Command, LaunchPlan
from alphazero.launch.plan.role import is_ip
from alphazero.machine.machine import interface_towards


def dry_run_lines(plan: LaunchPlan, trainer: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """Lines that a shell runs; those that begin with # are comments."""
    program = (*trainer, *arguments)
    if not plan.is_head:
        yield from _lines_of_this_node(plan, program)
        return
    for rank in range(plan.num_nodes):
        yield from _lines_of_host(plan, rank, program)
    # Weights and chosen slots need the hostfile on each of them: --hostfile FILE --node-rank auto.
    plain = all(host.num_ranks is not None and not host.slots for host in plan.hosts)
    if plain and not plan.has_weights and plan.role != SLURM:
        yield "# by hand, on each of them:"
        for host, line in hand_commands(plan, arguments):
            yield f"#   {line}   # on {host.remote.target or host.address}"


def _lines_of_this_node(plan: LaunchPlan, program: Sequence[str]) -> Iterator[str]:
    own = plan.own
    assert own.machine is not None
    if plan.num_nodes > 1 and not plan.interface:
        if is_ip(plan.master_addr):  # by the kernel's own table
            interface = interface_towards(plan.master_addr, own.machine.addresses)
            plan = plan.with_started([replace(own, interface=interface)])
        else:
            yield f"# interface: the one towards {plan.master_addr}, looked up at the start"
    yield build_command(plan, plan.node_rank or 0, os.environ, sys.executable, program).shown()


def _lines_of_host(plan: LaunchPlan, rank: int, program: Sequence[str]) -> Iterator[str]:
    """One host's transport, and what its agent starts there as far as it is known here."""
    host = plan.hosts[rank]
    count = "as many processes as GPUs" if host.num_ranks is None else f"{host.num_ranks} processes"
    yield f"# node {rank} of {plan.num_nodes}: {host.remote.target or host.address}, {count}"
    if host.remote.target:
        agent = programs.words_of(programs.NODE_AGENT)
        yield Command(tuple(remote_argv(host.remote, sys.executable, agent))).shown()
        yield "# which starts there, with devices, threads and interface as that host has them:"
    yield _command_there(plan, rank, program).shown()


def _command_there(plan: LaunchPlan, rank: int, program: Sequence[str]) -> Command:
    own, device = plan.hosts[rank], "cpu" if plan.device == "cpu" else "cuda"
    hosts = list(plan.hosts)
    hosts[rank] = replace(own, devices=tuple(map(str, own.slots or range(own.num_ranks or 1))))
    plan = replace(plan, hosts=tuple(hosts), device=device)
    command = bare_command(plan, rank, sys.executable, program)
    variables = [weight_variable(own)] if plan.has_weights else []
    if plan.interface:
        variables += interface_variables(device, plan.interface, "--interface")
    return replace(command, variables=tuple(variables))


def say(text: str) -> None:
    """A line of the launcher, on stderr: stdout belongs to the job and to --dry-run."""
    show(program_line(text, has_time=False) + "\n")


def say_of_job(text: str) -> None:
    """A line of the job that the launcher has started, or is about to: with its time where it is kept."""
    show(program_line(text) + "\n")


def show(text: str) -> None:
    """Text on stderr; where it is closed (a terminal or pipe that is gone), the job continues without."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def banner(plan: LaunchPlan, command: Command) -> list[str]:
    """Lines about what is to start on this machine."""
    own = plan.own
    assert own.machine is not None
    processes = counted(own.num_ranks or 0, "process", "processes")
    what = "CPU" if plan.device == "cpu" else "NVIDIA"
    node = f"node {plan.node_rank} of {plan.num_nodes} ({own.machine.host_name})"
    lines = [
        *plan.notices,
        f"{node}: {processes}, {what}, {plan.launcher}",
        f"master {plan.master_addr}:{plan.master_port}",
    ]
    names = {device.uuid: device.name for device in own.machine.devices}
    names |= {str(device.index): device.name for device in own.machine.devices}
    lines += [
        f"local rank {rank}: device {entry} {names.get(entry, '')}" for rank, entry in enumerate(own.devices)
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
