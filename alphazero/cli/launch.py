"""`alphazero launch`: starts the ranks of a training job; flags it does not know go to the trainer."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.cli import numbers
from alphazero.cluster.plan.cluster_section import (
    MOST_NODES,
    MOST_PROCESSES,
    MOST_RESTARTS,
    PORT_MAX,
)
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
from alphazero.errors import CheckpointError, ConfigError, LaunchError
from alphazero.run.next_command import COMMAND_VARIABLE, continuing, typed_command
from alphazero.training.checkpoint.files import LATEST
from alphazero.training.checkpoint.resume import find_resumed

if TYPE_CHECKING:
    from alphazero.cluster.hosts.compare import JobHost
    from alphazero.cluster.hosts.transport import SshOptions
    from alphazero.cluster.launch.supervisor import ChosenRun
    from alphazero.cluster.plan.cpu_ranks import CpuRanks
    from alphazero.host.machine import Machine

# Flags this command does not know belong to the trainer (see alphazero.cli.main).
PASSES_ON_UNKNOWN_FLAGS = True

TRAIN_SCRIPT = Path(__file__).resolve().parents[2] / "train_distributed.py"
ELASTIC_IS_GONE = (
    "--elastic: torchrun's c10d rendezvous runs what anyone on the network sends; expected --hostfile with "
    "--min-nodes and --max-restarts, which go on without lost hosts and take them back at a restart"
)
NEEDED_MODULES = ("torch", "deepspeed", "alphazero._core")


def configure(parser: argparse.ArgumentParser) -> None:
    """The launcher's own flags."""
    parser.epilog = (
        "All other flags go to the trainer: see `alphazero train --help`. docs/cluster.md tells of several "
        "machines, SLURM, and which setting beats which."
    )
    _add_process_flags(parser.add_argument_group("processes"))
    _add_machine_flags(parser.add_argument_group("several machines"))
    _add_supervision_flags(parser.add_argument_group("supervision"))


def _add_process_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpus",
        "--num-gpus",
        type=numbers.whole(-1, MOST_PROCESSES),
        metavar="N",
        help="processes on each machine: N, or -1 for one per GPU (default); without a GPU N CPU ranks "
        "(default: one per core, as far as batch and memory go)",
    )
    group.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="auto: GPUs where there are some (default)",
    )
    group.add_argument(
        "--launcher",
        choices=("auto", "torchrun", "deepspeed", "slurm"),
        default="auto",
        help="what starts the ranks of a machine; slurm: torchrun, started on the nodes by srun",
    )


def _add_machine_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--nodes", type=numbers.whole(1, MOST_NODES), metavar="N", help="machines of the job (default: 1)"
    )
    group.add_argument(
        "--node-rank",
        type=_node_rank,
        metavar="R",
        help="start only this machine's part: its number, from 0 to N-1 (auto: its place in the hostfile)",
    )
    group.add_argument("--master-addr", metavar="ADDRESS", help="address of node 0")
    group.add_argument(
        "--master-port",
        type=numbers.whole(1, PORT_MAX),
        metavar="PORT",
        help="port of node 0 (default: 12355, or a free one)",
    )
    group.add_argument(
        "--interface", metavar="NAME", help="network interface to use (default: the one that leads to node 0)"
    )
    group.add_argument(
        "--hostfile",
        type=Path,
        metavar="FILE",
        help="file of hosts, each line '<host> slots=<processes> [weight=<share>]'; all start from here",
    )
    group.add_argument("--include", metavar="HOSTS", help="hosts and slots to use, as gpu1@gpu2:0,2")
    group.add_argument("--exclude", metavar="HOSTS", help="hosts and slots to leave out")
    group.add_argument(
        "--ssh-port", type=numbers.whole(1, PORT_MAX), metavar="PORT", help="port of sshd on all hosts"
    )
    group.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="ssh configuration to use instead of ~/.ssh/config"
    )
    group.add_argument(
        "--sync-data", action="store_true", help="copy --data to the hosts of the hostfile that lack it"
    )


def _add_supervision_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-restarts",
        type=numbers.whole(0, MOST_RESTARTS),
        metavar="N",
        help="times to start again after a failure (default: 0)",
    )
    group.add_argument(
        "--min-nodes",
        type=numbers.whole(1, MOST_NODES),
        metavar="N",
        help="fewest hosts to go on with after a failure (default: all of them)",
    )
    for flag, least, help_text in (
        ("--hang-timeout", 1, "a step may stand still, or 10 median steps if that is more (default: 10)"),
        ("--start-timeout", 1, "until the first steps are timed: data import, compilation (default: 1800)"),
        ("--pause-timeout", 1, "a validation, checkpoint or collection of games may take (default: 600)"),
        ("--games-timeout", 1, "self-play or the games of a gate may stand still (default: 300)"),
        ("--shutdown-timeout", 1, "from a rank's last message to its end (default: 60)"),
        ("--silence-timeout", 3, "until a host or head that says nothing counts as lost (default: 10)"),
    ):
        group.add_argument(flag, type=numbers.seconds(least), metavar="SECONDS", help=f"seconds {help_text}")
    group.add_argument("--elastic", nargs="?", const="", help=argparse.SUPPRESS)  # gone: see run
    group.add_argument(
        "--no-preflight",
        action="store_true",
        help="start whatever the comparison of the hosts finds, and skip the preflight of all ranks",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="print the commands with their environment, start nothing"
    )


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
    trainer_arguments, config, source = _trainer_arguments(args)
    request = _request(args)
    machine = look_at_this_machine(device=args.device)
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
        lambda num_cores: _choose_cpu_ranks(
            num_cores, config, fresh_start="--fresh-start" in trainer_arguments
        ),
        lambda interface: outward_address(machine.addresses, interface),
    )
    if plan.device == "cuda":
        config = _settings(trainer_arguments, "cuda")
    idle = _check_batches(plan, config, fresh_start="--fresh-start" in trainer_arguments)
    _check_interface(plan, machine)
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
        launch.say(line)
    hosts = _job_hosts(plan, machine, ssh)
    return _start(args, machine, plan, hosts, trainer_arguments, config)


def _choose_cpu_ranks(num_cores: int, config: Config, *, fresh_start: bool) -> CpuRanks:
    """How many ranks this machine gets where it has no GPU and nobody gave a number."""
    from alphazero.cluster.plan.cpu_ranks import choose_cpu_ranks
    from alphazero.host.memory import HostMemory
    from alphazero.training.batch_plan import LEAST_MICRO_BATCH, plan_batches

    batch_size = config.training.batch_size
    named = _micro_batch_size(config, fresh_start=fresh_start)

    def ranks_at_work(num_ranks: int) -> float:
        try:
            plan = plan_batches(batch_size, named, [1.0] * num_ranks, "cpu")
        except ConfigError:  # no such plan; where there is none at all, the trainer says why
            return 0.0
        return num_ranks * (1 - plan.idle_share)

    least = LEAST_MICRO_BATCH["cpu"]
    least = min(least, named) if named > 0 else least
    available = HostMemory().check().available_bytes
    return choose_cpu_ranks(num_cores, batch_size, least, config.network, available, ranks_at_work)


def _micro_batch_size(config: Config, *, fresh_start: bool) -> int:
    """The micro-batch by flag, else that of the run that goes on; 0 or AUTO where none is chosen yet."""
    from alphazero.training.checkpoint.files import STATE, checkpoints_in, read_json

    named = config.training.micro_batch_size
    if named > 0 or fresh_start:
        return named
    run = Path(config.run.runs_dir) / (config.run.run_name or config.preset or "run")
    for path in reversed(checkpoints_in(run / "checkpoints")):
        with contextlib.suppress(CheckpointError):
            state = read_json(path / STATE)
            saved = state.get("micro_batch_size")
            if state.get("batch_size") == config.training.batch_size and type(saved) is int and saved > 0:
                return saved
    return named


def _port_notices(plan: ClusterPlan, port_is_free: Callable[[int], bool]) -> list[str]:
    """Of a dry run, where a start would find its port in use."""
    if plan.node is None or plan.node.node_rank != 0 or port_is_free(plan.master_port):
        return []
    return [f"port {plan.master_port} is in use here now: a start would refuse it, or take another one"]


def _words_to_others(args: argparse.Namespace, plan: ClusterPlan) -> list[str]:
    """What to type on the other nodes, where only node 0 knows its address."""
    from alphazero.cli.main import build_parser
    from alphazero.cluster.plan.commands import other_node_commands

    if not plan.chose_address:
        return []
    trainer = build_parser("train").with_dashes(args.passed_on)
    place = (plan.num_nodes, plan.master_addr, plan.master_port)
    commands = other_node_commands(_request(args), *place, trainer)
    return [f"on node {rank}, type: {line}" for rank, line in enumerate(commands, 1)]


def _request(args: argparse.Namespace) -> LaunchRequest:
    return LaunchRequest(**{entry.name: getattr(args, entry.name) for entry in fields(LaunchRequest)})


def _check_batches(plan: ClusterPlan, config: Config, *, fresh_start: bool) -> tuple[str, ...]:
    """Batch arithmetic: a slip is one line here, not one per rank after seconds; a line about idle ranks."""
    from alphazero.training.batch_plan import idle_notice, plan_batches

    ranks = [host.num_processes for host in plan.hosts]
    if plan.node is not None:
        ranks = [count or plan.node.num_processes for count in ranks]
    if None in ranks:
        return ()  # the hosts will say
    weights = [host.weight for host, count in zip(plan.hosts, ranks, strict=True) for _ in range(count or 0)]
    device = "cpu" if plan.device == "cpu" else "cuda"
    training = config.training
    batches = plan_batches(
        training.batch_size,
        _micro_batch_size(config, fresh_start=fresh_start),
        weights,
        device,
        equal_passes=training.zero_stage >= 2,
    )
    notice = idle_notice(batches, device, max(training.micro_batch_size, 0))
    return (notice,) if notice else ()


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
    )
    command = typed_command(sys.argv, os.environ)
    os.environ[COMMAND_VARIABLE] = json.dumps(command)
    supervisor = Supervisor(job, sys.executable, os.environ, launch.say)
    status = supervisor.run()
    run = supervisor.run_directory
    is_saved = supervisor.has_saved or (run is not None and (run / "checkpoints" / LATEST).exists())
    if run is not None and is_saved and status not in (0, LaunchError.exit_code):
        launch.say(f"continue with: {continuing(command, run.name)}")
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


def _settings(arguments: list[str], device: str) -> Config:
    from alphazero.cli import train

    preset = train.GPU_PRESET if device == "cuda" else train.CPU_PRESET
    return train.read_settings(_parsed(arguments), preset)[0]


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """The trainer's arguments."""
    from alphazero.cli.main import build_parser

    return build_parser("train").parse_args(arguments)


def _choose_run(arguments: list[str], device: str, plan: ClusterPlan) -> ChosenRun:
    """The run's directory by name, so that a restart continues what a fresh start began.

    What can be told here of a run that is in use, or of a checkpoint to resume, is told before ranks start.
    """
    from alphazero.cluster.launch.supervisor import ChosenRun
    from alphazero.run.run_directory import choose_run_directory, require_free

    fresh_start = "--fresh-start" in arguments
    settings = _settings(arguments, device)
    # Nodes that are started by hand choose alike, as long as none of them makes the directory.
    reserve = fresh_start and (plan.node is None or plan.num_nodes == 1)
    run = choose_run_directory(settings.run, settings.preset, fresh_start=fresh_start, reserve=reserve)
    require_free(run)
    resume, is_alone = _parsed(arguments).resume, plan.node is not None and plan.num_nodes == 1
    if resume and is_alone:
        find_resumed(run.checkpoints, resume, lambda text: None, hash_files=False)
    named = [argument for argument in arguments if argument != "--fresh-start"]
    if fresh_start:
        named += ["--run-name", run.path.name]
    return ChosenRun(str(run.path.absolute()), tuple(named))


def _node_rank(text: str) -> int | str:
    return text if text == "auto" else numbers.whole(0, MOST_NODES - 1)(text)


def _trainer_arguments(args: argparse.Namespace) -> tuple[list[str], Config, str]:
    """What goes to the trainer, its settings, and its --config, checked here."""
    from alphazero.cli import train
    from alphazero.cli.main import build_parser

    parser = build_parser("train")
    arguments = parser.with_dashes(args.passed_on)
    if args.device != "auto":
        arguments += ["--device", args.device]
    if args.no_preflight:
        arguments.append("--no-preflight")
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise parser.unknown_error(unknown, list(build_parser("launch").flags()))
    config, _ = train.read_settings(parsed, train.CPU_PRESET)
    return arguments, config, str(parsed.config)


def _config_files(arguments: list[str]) -> tuple[str, ...]:
    """Files of settings that the trainer reads on every host; shipped ones are the checkout's."""
    parsed = _parsed(arguments)
    return tuple(name for name in (parsed.config, parsed.deepspeed_config) if name and Path(name).is_file())


def _require_modules() -> None:
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise LaunchError(f"{sys.executable}: has no {', '.join(missing)}; expected `make setup` once")
