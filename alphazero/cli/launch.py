"""`alphazero launch`: starts the ranks of a training job on this machine; other flags go to the trainer."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from alphazero.config import Config
from alphazero.errors import LaunchError

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
        for host, line in commands.hand_commands(plan.hosts, plan.master_port, trainer_arguments):
            print(f"{line}   # on {host.name}")
        if args.dry_run:
            return 0
        names = ", ".join(host.name for host in plan.hosts)
        raise LaunchError(
            f"--hostfile {args.hostfile}: names {names}; this launcher starts this machine only: "
            "wanted the command above on each"
        )
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
    trainer = (str(TRAIN_SCRIPT),) if TRAIN_SCRIPT.is_file() else ("--module", "alphazero", "train")
    command = commands.build_command(
        plan, machine, interface, os.environ, sys.executable, trainer, trainer_arguments
    )
    if args.dry_run:
        for notice in plan.notices:
            launch.say(notice)
        print(command.shown())
        return 0
    _require_modules()
    for line in launch.banner(plan, machine, command):
        launch.say(line)
    return launch.run_command(command, plan.num_processes, launch.say)


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
