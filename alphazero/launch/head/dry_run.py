"""Every command of a job, as `--dry-run` prints it: asks no other machine and no name server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from alphazero.base.text import counted
from alphazero.launch.head.remote import remote_argv
from alphazero.launch.plan import programs
from alphazero.launch.plan.commands import (
    actor_commands,
    bare_command,
    build_command,
    interface_variables,
    weight_variable,
)
from alphazero.launch.plan.launch_plan import Command, LaunchPlan
from alphazero.launch.plan.sources import is_ip
from alphazero.machine.machine import interface_towards


def dry_run_lines(plan: LaunchPlan, program: Sequence[str], actor: Sequence[str]) -> Iterator[str]:
    """Lines that a shell runs; those that begin with # are comments. actor: `selfplay` and its arguments."""
    if plan.is_head:
        for rank in range(len(plan.hosts)):
            yield from _of_host(plan, rank, program, actor)
        return
    own = plan.own
    assert own.machine is not None
    if plan.num_nodes > 1 and not plan.interface:
        if is_ip(plan.master_addr):  # by the kernel's own table
            interface = interface_towards(plan.master_addr, own.machine.addresses)
            plan = plan.with_started([replace(own, interface=interface)])
        else:
            yield f"# interface: the one towards {plan.master_addr}, looked up at the start"
    rank = plan.node_rank or 0
    yield build_command(plan, rank, os.environ, sys.executable, program).shown()
    for command in actor_commands(plan.own, os.environ, sys.executable, actor):
        yield command.shown()


def _of_host(plan: LaunchPlan, rank: int, program: Sequence[str], actor: Sequence[str]) -> Iterator[str]:
    """One host's transport, and what its agent starts there as far as it is known here."""
    host, device = plan.hosts[rank], "cpu" if plan.device == "cpu" else "cuda"
    count = "as many processes as GPUs" if host.num_ranks is None else f"{host.num_ranks} processes"
    count += f", {counted(host.num_actors, 'actor')}" if host.num_actors else ""
    what = "only plays" if host.only_plays else f"node {rank} of {plan.num_nodes}"
    yield f"# {what}: {host.remote.target or host.address}, {count}"
    if host.remote.target:
        agent = programs.words_of(programs.NODE_AGENT)
        yield Command(tuple(remote_argv(host.remote, sys.executable, agent))).shown()
        yield "# which starts there, with devices, threads and interface as that host has them:"
    players = ("" if device == "cpu" else "0",) * host.num_actors
    for command in actor_commands(replace(host, players=players), {}, sys.executable, actor):
        yield Command(command.argv).shown()
    if host.only_plays:
        return
    hosts = list(plan.hosts)
    hosts[rank] = replace(host, devices=tuple(map(str, host.slots or range(host.num_ranks or 1))))
    command = bare_command(replace(plan, hosts=tuple(hosts), device=device), rank, sys.executable, program)
    variables = [weight_variable(host)] if plan.has_weights else []
    if plan.interface:
        variables += interface_variables(device, plan.interface, "--interface")
    yield replace(command, variables=tuple(variables)).shown()
