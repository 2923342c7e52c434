"""Every command of a job, as `--dry-run` prints it: asks no other machine and no name server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

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
