"""`alphazero launch`: starts the ranks of a training job on this machine; other flags go to the trainer."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.cluster.health import Machine
from alphazero.cluster.hostfile import Host
from alphazero.cluster.resolve import LOOPBACK, LaunchPlan, is_this_machine
from alphazero.config import Config
from alphazero.errors import LaunchError

if TYPE_CHECKING:
    from alphazero.cluster.supervisor import ChosenRun

# Flags this command does not know belong to the trainer (see alphazero.cli.main).
PASSES_ON_UNKNOWN_FLAGS = True

TRAIN_SCRIPT = Path(__file__).resolve().parents[2] / "train_distributed.py"
NEEDED_MODULES = ("torch", "deepspeed", "alphazero._core")


def configure(parser: argparse.ArgumentParser) -> None:
    """The launcher's own flags."""
    parser.epilog = "All other flags go to the trainer unchanged: see `alphazero train --help`."
    parser.add_argument(
        "--gpus",
        type=_integer,
        metavar="N",
        help="processes on this machine: N, or -1 for all GPUs (default); CPU ranks where there is no GPU",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--nodes", type=_integer, metavar="N", help="machines of the job (default 1)")
    parser.add_argument(
        "--node-rank", type=_integer, metavar="R", help="this machine's number, 0 to N-1; the master is 0"
    )
    parser.add_argument("--master-addr", metavar="ADDRESS", help="address of node 0")
    parser.add_argument(
        "--master-port", type=_integer, metavar="PORT", help="its port (default 12355, or a free one)"
    )
    parser.add_argument(
        "--hostfile", type=Path, metavar="FILE", help="hosts, each '<host> slots=<processes>'"
    )
    parser.add_argument("--launcher", choices=("auto", "torchrun", "deepspeed"), default="auto")
    parser.add_argument(
        "--max-restarts", type=_integer, default=0, metavar="N", help="start again after a failure, N times"
    )
    parser.add_argument(
        "--min-nodes", type=_integer, default=0, metavar="N", help="go on with N hosts (default: all)"
    )
    parser.add_argument(
        "--no-preflight", action="store_true", help="start in spite of what the checks of the hosts find"
    )
    parser.add_argument(
        "--sync-data", action="store_true", help="send --data to the hosts of the hostfile that lack it"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands with their environment, start nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Check, resolve, announce, start."""
    from alphazero.cluster import commands, health, launch, resolve
    from alphazero.training.batch_plan import plan_batches

    trainer_arguments, config = _trainer_arguments(args)
    request = resolve.LaunchRequest(
        gpus=args.gpus,
        device=args.device,
        nodes=args.nodes,
        node_rank=args.node_rank,
        master_addr=args.master_addr,
        master_port=args.master_port,
        hostfile=args.hostfile,
        launcher=args.launcher,
    )
    machine = health.look_at_this_machine(device=args.device)
    plan = resolve.resolve(request, machine, os.environ, health.port_is_free, health.find_free_port)
    if isinstance(plan, resolve.HandLaunch):
        if args.dry_run:
            for host, line in commands.hand_commands(plan.hosts, plan.master_port, trainer_arguments):
                print(f"{line}   # on {host.name}")
            return 0
        return _start(args, machine, trainer_arguments, plan.hosts, plan.master_port)
    # Batch arithmetic: a slip is one line here, not one a rank after seconds.
    plan_batches(
        config.training.batch_size,
        max(config.training.micro_batch_size, 0),
        [1.0] * (plan.num_nodes * plan.num_processes),
        plan.device,
    )
    interface = ""
    if plan.num_nodes > 1:
        interface = health.interface_towards(plan.master_addr, machine.addresses)
    command = commands.build_command(
        plan, machine, interface, os.environ, sys.executable, _trainer(), trainer_arguments
    )
    if args.dry_run:
        for notice in plan.notices:
            launch.say(notice)
        print(command.shown())
        return 0
    here = (Host(LOOPBACK, plan.num_processes),)
    return _start(args, machine, trainer_arguments, here, plan.master_port, plan)


def _start(
    args: argparse.Namespace,
    machine: Machine,
    trainer_arguments: list[str],
    hosts: tuple[Host, ...],
    master_port: int,
    plan: LaunchPlan | None = None,
) -> int:
    """Start the job and see it to its end: on this machine (`plan`), or on several hosts from here."""
    from alphazero.cluster import launch
    from alphazero.cluster.fan_out import Remote
    from alphazero.cluster.preflight import JobHost
    from alphazero.cluster.supervisor import Supervision, Supervisor

    _require_modules()
    if plan is not None and plan.num_nodes > 1 and args.max_restarts:
        raise LaunchError("--max-restarts: starts all hosts again; wanted --hostfile beside it, not --nodes")
    if not 0 <= args.min_nodes <= len(hosts):
        raise LaunchError(f"--min-nodes {args.min_nodes}: wanted at most {len(hosts)}, as many as hosts")
    if args.max_restarts < 0:
        raise LaunchError(f"--max-restarts {args.max_restarts}: wanted 0 or more")

    def reached(host: Host) -> JobHost:
        is_here = plan is not None or is_this_machine(host, machine)
        name = machine.host_name if plan is not None else host.address
        return JobHost(Remote(name, "" if is_here else host.name), host.address, host.slots)

    config = _settings(trainer_arguments, "cpu")
    job = Supervision(
        hosts=tuple(map(reached, hosts)),
        trainer=_trainer(),
        choose_run=lambda device: _choose_run(trainer_arguments, device),
        directory=str(Path.cwd()),
        runs_directory=str(Path(config.run.runs_dir).absolute()),
        master_addr=args.master_addr or "",
        master_port=master_port,
        port_is_chosen=args.master_port is not None,
        plan=plan,
        device=plan.device if plan else args.device,
        launcher="deepspeed" if args.launcher == "deepspeed" else "torchrun",
        max_restarts=args.max_restarts,
        min_nodes=args.min_nodes,
        check=not args.no_preflight,
        data=(*config.data.data, *config.data.validation_data),
        sync_data=args.sync_data,
    )
    return Supervisor(job, sys.executable, os.environ, launch.say).run()


def _trainer() -> tuple[str, ...]:
    return (str(TRAIN_SCRIPT),) if TRAIN_SCRIPT.is_file() else ("--module", "alphazero", "train")


def _settings(arguments: list[str], device: str) -> Config:
    from alphazero.cli import train
    from alphazero.cli.main import build_parser

    preset = train.GPU_PRESET if device == "cuda" else train.CPU_PRESET
    return train.read_settings(build_parser("train").parse_args(arguments), preset)[0]


def _choose_run(arguments: list[str], device: str) -> ChosenRun:
    """The run's directory by name, so that a restart continues what a fresh start began."""
    from alphazero.cluster.supervisor import ChosenRun
    from alphazero.run_directory import choose_run_directory

    fresh_start = "--fresh-start" in arguments
    path = choose_run_directory(_settings(arguments, device), fresh_start=fresh_start).path
    named = [argument for argument in arguments if argument != "--fresh-start"]
    if fresh_start:
        named += ["--run-name", path.name]
    return ChosenRun(str(path.absolute()), tuple(named))


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a whole number") from error


def _trainer_arguments(args: argparse.Namespace) -> tuple[list[str], Config]:
    """What goes to the trainer, and its settings, checked here."""
    from alphazero.cli import train
    from alphazero.cli.main import build_parser

    arguments = [*args.passed_on]
    if args.device != "auto":
        arguments += ["--device", args.device]
    config, _ = train.read_settings(build_parser("train").parse_args(arguments), train.CPU_PRESET)
    return arguments, config


def _require_modules() -> None:
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise LaunchError(f"{sys.executable}: has no {', '.join(missing)}; wanted `make setup` once")
