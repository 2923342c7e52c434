"""`alphazero launch`: starts the ranks of a training job; flags it does not know go to the trainer."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.cli.commands.training.launch_batches import check_batches, cpu_ranks_for
from alphazero.cli.flags.launch import ELASTIC_IS_GONE, configure
from alphazero.cluster.plan.launch_plan import (
    HEAD,
    NODE,
    SLURM,
    SLURM_TASK,
    ClusterPlan,
    HostPlan,
    LaunchRequest,
)
from alphazero.config import Config
from alphazero.errors import LaunchError
from alphazero.run.log_line import JSON, TEXT, write_json_lines
from alphazero.run.next_command import COMMAND_VARIABLE, continuing, typed_command
from alphazero.run.viewers.weights_and_biases import require_package
from alphazero.training.checkpoint.files import LATEST, checkpoints_in
from alphazero.training.checkpoint.resume import find_resumed
from alphazero.training.checkpoint.weights_names import find_weights
from alphazero.training.deepspeed_json.merge import places
from alphazero.training.deepspeed_json.settings import DeepSpeedSettings

if TYPE_CHECKING:
    from alphazero.cluster.hosts.compare import JobHost
    from alphazero.cluster.hosts.transport import SshOptions
    from alphazero.cluster.launch.supervisor import ChosenRun
    from alphazero.host.machine import Machine

__all__ = ["PASSES_ON_UNKNOWN_FLAGS", "configure", "run"]  # what alphazero.cli.command_table looks for

# Flags this command does not know belong to the trainer (see alphazero.cli.command_table).
PASSES_ON_UNKNOWN_FLAGS = True

TRAIN_SCRIPT = Path(__file__).resolve().parents[4] / "train_distributed.py"
NEEDED_MODULES = ("torch", "deepspeed", "alphazero._core")


def run(args: argparse.Namespace) -> int:
    """Check, resolve, announce, start."""
    from alphazero.cluster.launch import banner as launch
    from alphazero.cluster.plan import resolve
    from alphazero.cluster.plan.cluster_section import read_cluster
    from alphazero.host.machine import (
        addresses_of,
        find_free_port,
        look_at_this_machine,
        outward_address,
        port_is_free,
    )

    if args.elastic is not None:
        raise LaunchError(ELASTIC_IS_GONE)
    ssh = _ssh_options(args)
    trainer_arguments, config, settings, source = _trainer_arguments(args)
    request = _request(args)
    machine = look_at_this_machine(device=args.device)
    if config.run.log_format == JSON:
        write_json_lines("alphazero")
    plan = resolve.resolve(
        request,
        machine,
        os.environ,
        # With --dry-run nothing would listen: see the notice below.
        (lambda port: True) if args.dry_run else port_is_free,
        find_free_port,
        read_cluster(source),
        # --dry-run asks no name server.
        (lambda name: ()) if args.dry_run else addresses_of,
        lambda num_cores: cpu_ranks_for(num_cores, config, fresh_start="--fresh-start" in trainer_arguments),
        lambda interface: outward_address(machine.addresses, interface),
    )
    if plan.device == "cuda":
        config, settings = _settings(trainer_arguments, "cuda")
    idle = check_batches(plan, config, places(settings), fresh_start="--fresh-start" in trainer_arguments)
    _check_interface(plan, machine)
    if plan.node_rank == 0:
        require_package(config.run)
    if args.dry_run:
        from alphazero.cluster.launch.dry_run import dry_run_lines

        words = (*_port_notices(plan, port_is_free), *_words_to_others(args, plan))
        for notice in (*plan.notices, *idle, *words):  # the trainer says what ranks idle itself
            launch.say(notice)
        job = (sys.executable, _trainer(), trainer_arguments)
        for line in dry_run_lines(plan, machine, os.environ, *job, ssh):
            print(line)
        return 0
    for line in _words_to_others(args, plan):
        launch.say_of_job(line)
    hosts = _job_hosts(plan, machine, ssh)
    return _start(args, machine, plan, hosts, trainer_arguments, config)


def _port_notices(plan: ClusterPlan, port_is_free: Callable[[int], bool]) -> list[str]:
    """Of a dry run, where a start would find its port in use."""
    if plan.node is None or plan.node.node_rank != 0 or port_is_free(plan.master_port):
        return []
    return [f"port {plan.master_port} is in use here now: a start would refuse it, or take another one"]


def _words_to_others(args: argparse.Namespace, plan: ClusterPlan) -> list[str]:
    """What to type on the other nodes, where only node 0 knows its address."""
    from alphazero.cli.command_table import build_parser
    from alphazero.cluster.plan.commands import other_node_commands

    if not plan.chose_address:
        return []
    trainer = build_parser("train").with_dashes(args.passed_on)
    place = (plan.num_nodes, plan.master_addr, plan.master_port)
    commands = other_node_commands(_request(args), *place, trainer)
    return [f"on node {rank}, type: {line}" for rank, line in enumerate(commands, 1)]


def _request(args: argparse.Namespace) -> LaunchRequest:
    return LaunchRequest(**{entry.name: getattr(args, entry.name) for entry in fields(LaunchRequest)})


def _check_interface(plan: ClusterPlan, machine: Machine) -> None:
    names = list(dict.fromkeys(name for name, _ in machine.addresses))
    if plan.node is not None and plan.interface and plan.interface not in names:
        raise LaunchError(f"--interface {plan.interface}: is not here; expected one of {', '.join(names)}")


def _start(
    args: argparse.Namespace,
    machine: Machine,
    plan: ClusterPlan,
    hosts: tuple[JobHost, ...],
    trainer_arguments: list[str],
    config: Config,
) -> int:
    """Start the job and see it to its end."""
    from alphazero.cluster.launch import banner as launch
    from alphazero.cluster.launch.supervisor import Supervision, Supervisor
    from alphazero.host.machine import interface_towards

    _require_modules()
    if plan.role in (NODE, SLURM_TASK) and not plan.interface:
        interface_towards(plan.master_addr, machine.addresses)  # an error where the name does not resolve
    job = Supervision(
        hosts=hosts,
        trainer=_trainer(),
        choose_run=lambda device: _choose_run(trainer_arguments, device, plan),
        directory=str(Path.cwd()),
        runs_directory=str(Path(config.run.runs_dir).absolute()),
        master_addr=plan.master_addr if plan.num_nodes > 1 else "",
        master_port=plan.master_port,
        port_is_chosen=plan.port_is_chosen,
        plan=plan.node,
        device=plan.device,
        launcher=plan.launcher,
        interface=plan.interface,
        max_restarts=plan.max_restarts,
        min_nodes=plan.min_nodes if plan.role in (HEAD, SLURM) else 0,
        unfit_hosts_stay=args.no_preflight,
        preflight=not args.no_preflight,
        compared=_config_files(trainer_arguments),
        limits=plan.limits,
        data=(*config.data.data, *config.data.validation_data),
        sync_data=args.sync_data,
        quiet=config.run.quiet,
    )
    command = typed_command(sys.argv, os.environ)
    os.environ[COMMAND_VARIABLE] = json.dumps(command)  # agents of this machine inherit it
    supervisor = Supervisor(job, sys.executable, os.environ, launch.say_of_job)
    status = supervisor.run()
    run = supervisor.run_directory
    is_saved = supervisor.has_saved or (run is not None and (run / "checkpoints" / LATEST).exists())
    if run is not None and is_saved and status not in (0, LaunchError.exit_code):
        launch.say_of_job(f"continue with: {continuing(command, run.name)}")
    return status


def _ssh_options(args: argparse.Namespace) -> SshOptions:
    from alphazero.cluster.hosts.transport import SshOptions

    if args.ssh_config is not None and not args.ssh_config.is_file():
        raise LaunchError(f"--ssh-config {args.ssh_config}: no such file")
    return SshOptions(args.ssh_port, args.ssh_config)


def _job_hosts(plan: ClusterPlan, machine: Machine, ssh: SshOptions) -> tuple[JobHost, ...]:
    """The hosts that this process starts: all of them, or this machine alone."""
    from alphazero.cluster.hosts.compare import JobHost
    from alphazero.cluster.hosts.remote import Remote
    from alphazero.cluster.plan.identity import LOOPBACK

    if plan.node is not None:
        return (JobHost(Remote(machine.host_name), LOOPBACK, plan.node.num_processes),)

    def reached(part: HostPlan) -> JobHost:
        host, by_srun = part.host, plan.role == SLURM
        target = host.name if by_srun or not part.is_local else ""
        weight = part.weight if plan.has_weights else None
        return JobHost(
            Remote(host.address, target, by_srun, ssh), host.address, part.num_processes, weight, part.slots
        )

    return tuple(map(reached, plan.hosts))


def _trainer() -> tuple[str, ...]:
    return (str(TRAIN_SCRIPT),) if TRAIN_SCRIPT.is_file() else ("--module", "alphazero", "train")


def _settings(arguments: list[str], device: str) -> tuple[Config, DeepSpeedSettings]:
    from alphazero.cli.commands.training import train

    preset = train.GPU_PRESET if device == "cuda" else train.CPU_PRESET
    return train.read_settings(_parsed(arguments), preset)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """The trainer's arguments."""
    from alphazero.cli.command_table import build_parser

    return build_parser("train").parse_args(arguments)


def _choose_run(arguments: list[str], device: str, plan: ClusterPlan) -> ChosenRun:
    """The run's directory by name, so that a restart continues what a fresh start began.

    What can be told here of a run that is in use, or of a checkpoint to resume, is told before ranks start.
    """
    from alphazero.cluster.launch.supervisor import ChosenRun
    from alphazero.run.run_directory import choose_run_directory, require_free

    fresh_start = "--fresh-start" in arguments
    settings, _ = _settings(arguments, device)
    # Nodes that are started by hand choose alike, as long as none of them makes the directory.
    reserve = fresh_start and (plan.node is None or plan.num_nodes == 1)
    run = choose_run_directory(settings.run, settings.preset, fresh_start=fresh_start, reserve=reserve)
    require_free(run)
    resume, is_alone = _parsed(arguments).resume, plan.node is not None and plan.num_nodes == 1
    has_rank_0 = plan.node is not None and plan.node.node_rank == 0
    if has_rank_0 and settings.training.init_weights and not checkpoints_in(run.checkpoints):
        find_weights(settings.training.init_weights, "--init-weights")
    if resume and is_alone:
        find_resumed(run.checkpoints, resume, lambda text: None, hash_files=False)
    named = [argument for argument in arguments if argument != "--fresh-start"]
    if fresh_start:
        named += ["--run-name", run.path.name]
    return ChosenRun(str(run.path.absolute()), tuple(named))


def _trainer_arguments(args: argparse.Namespace) -> tuple[list[str], Config, DeepSpeedSettings, str]:
    """What goes to the trainer, its settings, and its --config, checked here."""
    from alphazero.cli.command_table import build_parser
    from alphazero.cli.commands.training import train

    parser = build_parser("train")
    arguments = parser.with_dashes(args.passed_on)
    if args.device != "auto":
        arguments += ["--device", args.device]
    if args.no_preflight:
        arguments.append("--no-preflight")
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise parser.unknown_error(unknown, list(build_parser("launch").flags()))
    if getattr(parsed, "log_format", TEXT) == JSON:
        write_json_lines("alphazero")
    config, settings = train.read_settings(parsed, train.CPU_PRESET)
    return arguments, config, settings, str(parsed.config)


def _config_files(arguments: list[str]) -> tuple[str, ...]:
    """Files of settings that the trainer reads on every host; shipped ones are the checkout's."""
    from alphazero.cli.commands.training.train import deepspeed_config_file

    parsed = _parsed(arguments)
    return tuple(
        name for name in (parsed.config, deepspeed_config_file(parsed)) if name and Path(name).is_file()
    )


def _require_modules() -> None:
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise LaunchError(f"{sys.executable}: has no {', '.join(missing)}; expected `make setup` once")
