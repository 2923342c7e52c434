"""`alphazero train`: one rank of a training job, or a whole one on this machine with --world-size."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from alphazero.base.errors import AlphaZeroError, CheckpointError, ConfigError, DataError, LaunchError
from alphazero.base.files import given_path, refuse_positions
from alphazero.base.log import JSON, TEXT, program_line, write_json_lines
from alphazero.base.section import add_flags
from alphazero.base.text import quoted
from alphazero.cli.command_table import build_parser, run_command
from alphazero.cli.flags import add_config_flag, add_device_flag, add_number
from alphazero.cli.training.accelerate import CONFIG_FILE, accelerate_settings
from alphazero.games.outside.names import is_outside
from alphazero.launch.node.store import lone_process_environment
from alphazero.launch.plan.outer import read_task
from alphazero.launch.plan.sources import refuse_loopback
from alphazero.machine import machine as machines
from alphazero.machine.environment import shipped
from alphazero.machine.machine import DEFAULT_PORT, LOOPBACK
from alphazero.machine.nvml import device_files_present
from alphazero.run import rank as rank_side
from alphazero.run.checkpoint_files import STATE, read_json
from alphazero.run.directory import RESTART_VARIABLE, RunDirectory, choose_run_directory
from alphazero.run.find import check_spelling, find_resumed
from alphazero.run.next_command import COMMAND_VARIABLE, typed_command, without
from alphazero.settings.chosen import OUTSIDE_PRESET, line_of, measure, with_chosen
from alphazero.settings.deepspeed_file import SET_FLAG, read_deepspeed_settings
from alphazero.settings.flags import Parser, whole
from alphazero.settings.load import SECTIONS, Config, load_config
from alphazero.settings.scope import changed_settings, kept_settings, require_same_run
from alphazero.show.console import Console
from alphazero.show.weights_and_biases import require_wandb
from alphazero.training.ranks.batch import BatchSizes

MOST_RANKS = 2**20
UNREAD_VARIABLES = ("NCCL_TIMEOUT", "DEEPSPEED_TIMEOUT")
WORLD_SIZE_FLAGS = ("--world-size", "--gpus", "--num-gpus")
GPU_PRESET, CPU_PRESET = "chess_20x256", "chess_cpu"
NO_GPU_NOTICES = (
    f"NO NVIDIA DEVICE IN USE: training on the CPU with the small preset {CPU_PRESET};",
    f"the full network is --config {GPU_PRESET}",
)


def configure(parser: Parser) -> None:
    """All settings as flags, and what concerns this start only."""
    parser.shorten_help()
    start = parser.add_argument_group("this start")
    no_gpu = f"{CPU_PRESET} where there is no NVIDIA device"
    outside = f"{OUTSIDE_PRESET} for games of OpenSpiel and Python files"
    add_config_flag(start, f" (default: {GPU_PRESET}, or {no_gpu}; {outside})")
    start.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        default="",
        metavar="latest|best-METRIC|STEP|PATH",
        help="continue from a checkpoint: the newest one (default), the best by a metric, that of a step, or "
        "a path",
    )
    start.add_argument(
        "--fresh-start", action="store_true", help="begin a new run beside an existing one of this name"
    )
    start.add_argument(
        "--accept-new-data", action="store_true", help="continue a run on other games than before"
    )
    start.add_argument(
        "--no-preflight", action="store_true", help="warn, and continue, where nodes have different settings"
    )
    start.add_argument("--mixed-precision", action="store_true", help="the same as --precision auto")
    start.add_argument(
        "--deepspeed-config",
        "--deepspeed_config",  # as DeepSpeed spells it
        default="",
        metavar="FILE",
        help="DeepSpeed settings (default: the ds_config.json of this program)",
    )
    start.add_argument(
        SET_FLAG,
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="values of a ds_config.json, which beat the file's: gradient_accumulation_steps=4 "
        "wandb.project=NAME tensorboard.output_path=DIR zero_optimization.offload_optimizer.device=cpu",
    )
    start.add_argument(
        "--deepspeed",
        nargs="?",
        const="",
        default="",
        metavar="FILE",
        help="the same as --deepspeed-config; without a file it changes nothing",
    )
    processes = parser.add_argument_group("processes (a launcher sets them through the environment)")
    add_device_flag(processes, "device to train on")
    processes.add_argument(
        "--backend",
        choices=("nccl", "gloo"),
        default="",
        help="what carries messages between ranks (default: nccl on GPUs, gloo on CPUs)",
    )
    processes.add_argument(
        *WORLD_SIZE_FLAGS,
        type=whole(1, MOST_RANKS),
        metavar="N",
        help="processes of the job, all started here",
    )
    add_number(processes, "--local-rank", whole(0, MOST_RANKS), "number of this process on its host")
    processes.add_argument(
        "--master-addr", default="", metavar="ADDRESS", help="address of the host of rank 0"
    )
    add_number(
        processes,
        "--master-port",
        whole(1, 65_535),
        "port of rank 0 (default: 12355)",
        metavar="PORT",
    )
    add_flags(parser, SECTIONS, parser.hidden)


def run(args: argparse.Namespace) -> int:
    """Train as one rank, or start the ranks."""
    if "RANK" in os.environ:
        return _train(args)
    task = read_task(os.environ)
    is_of_task = str(args.world_size) == task.get("WORLD_SIZE")
    if not args.world_size or args.world_size == 1 or is_of_task:
        return _train(args, task)
    # The launcher starts the ranks of this machine, with this command's own arguments, typed as `alphazero
    # train ...` or as `train_distributed.py ...`.
    typed = sys.argv[2:] if sys.argv[1:2] == ["train"] else sys.argv[1:]
    os.environ[COMMAND_VARIABLE] = json.dumps(typed_command(sys.argv, os.environ))
    typed = build_parser("train").with_dashes(typed)
    for flag in WORLD_SIZE_FLAGS:
        typed = without(typed, flag)
    return run_command(["launch", "--gpus", str(args.world_size), *typed])


def read_settings(args: argparse.Namespace, default_preset: str) -> Config:
    """All settings after preset, ds_config.json and flags; needs no torch, so that a launcher checks first.

    Raises ConfigError or DataError for whatever a user got wrong in them.
    """
    flags = dict(vars(args))
    if args.mixed_precision:
        if flags.get("precision", "auto") != "auto":
            raise ConfigError(f"--mixed-precision is --precision auto: contradicts {flags['precision']}")
        flags["precision"] = "auto"
    flags |= accelerate_settings(os.environ, flags)
    if args.resume and args.fresh_start:
        raise ConfigError("--resume contradicts --fresh-start")
    check_spelling(args.resume)
    if is_outside(str(flags.get("game", ""))):
        default_preset = OUTSIDE_PRESET
    file = Path(deepspeed_config_file(args) or shipped("ds_config.json"))
    settings = read_deepspeed_settings(file, args.deepspeed_set)
    config = load_config(args.config or default_preset, flags, settings, is_named=bool(args.config))
    given = [(path, "--data") for path in config.data.data]
    for path, flag in (*given, *((path, "--validation-data") for path in config.data.validation_data)):
        source = given_path(path, flag)
        if not source.is_file() and not source.is_dir():
            fault = "is no regular file" if source.exists() else "no such file or directory"
            raise DataError(f"{path}: {fault}; expected a game store, PGN file or directory")
        refuse_positions(Path(path))
    # A preset that the user named stands. A launcher without the core leaves the choice to the ranks.
    is_open = is_outside(config.network.game) and (not args.config or config.set_by_file)
    if is_open and importlib.util.find_spec("alphazero._core") is not None:
        config = with_chosen(config, measure(config.network.game))
    return config


def chosen_lines(config: Config) -> tuple[str, ...]:
    """A line that says what was chosen for the game of a run that begins, or none."""
    if not config.set_by_game:
        return ()
    return tuple(filter(None, [line_of(config, measure(config.network.game))]))


@dataclass(frozen=True)
class Resumed:
    """What a launcher reads of the checkpoint of step `step` that a start continues in `run`."""

    run: Path
    step: int
    config: dict[str, Any]
    sizes: BatchSizes

    def kept(self, config: Config) -> Config:
        """The settings to continue with (see kept_settings)."""
        return kept_settings(self.config, self.sizes.micro_batch_size, config)


def read_resumed(config: Config, resume: str, *, fresh_start: bool) -> Resumed | None:
    """The checkpoint to continue from; None where there is none. Needs no torch.

    What is damaged is left to those who read it all.
    """
    run = run_directory(config)
    if fresh_start or not (path := find_resumed(run.checkpoints, resume, lambda _: None, hash_files=False)):
        return None
    state = read_json(path / STATE)
    saved, numbers = (
        state.get("config"),
        [state.get(name) for name in ("step", "batch_size", "micro_batch_size")],
    )
    if not isinstance(saved, dict) or not all(type(number) is int for number in numbers):
        raise CheckpointError(f"{path / STATE}: {quoted(numbers)}: expected the state of a run")
    step, *sizes = cast(list[int], numbers)
    return Resumed(run.path, step, saved, BatchSizes(*sizes))


def check_resumed(config: Config, resumed: Resumed) -> None:
    """Raise CheckpointError where it is of another run; the batch is left to those who count the ranks."""
    changes = changed_settings(resumed.config, resumed.kept(config))
    others = [change for change in changes if change.name != "batch_size"]
    require_same_run(resumed.run, resumed.step, others)


def unread_variables(environment: Mapping[str, str]) -> list[str]:
    """A line about each variable of the environment that has no effect on a job of this program."""
    return [
        f"{name}={environment[name]}: has no effect; --hang-timeout and --start-timeout of the launcher set "
        "how long ranks may stand still"
        for name in UNREAD_VARIABLES
        if name in environment
    ]


def run_directory(config: Config, *, fresh_start: bool = False, reserve: bool = False) -> RunDirectory:
    """Where a run of these settings lives (see choose_run_directory)."""
    name = config.run.run_name or config.preset or "run"
    return choose_run_directory(config.run.runs_dir, name, fresh_start=fresh_start, reserve=reserve)


def deepspeed_config_file(args: argparse.Namespace) -> str:
    """The file that the command line names, by either of two flags, or accelerate; "" where none is named."""
    if args.deepspeed and args.deepspeed_config and args.deepspeed != args.deepspeed_config:
        raise ConfigError(
            f"--deepspeed {args.deepspeed}: contradicts --deepspeed-config {args.deepspeed_config}; "
            "expected one of them"
        )
    return str(args.deepspeed_config or args.deepspeed or os.environ.get(CONFIG_FILE, ""))


def _train(args: argparse.Namespace, task: Mapping[str, str] | None = None) -> int:
    if task:  # nothing above the ranks brings them together
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch's own retries are no news
    rank_side.begin(os.environ)
    if getattr(args, "log_format", TEXT) == JSON:
        write_json_lines(f"rank {os.environ.get('RANK', 0)}")
    if task:
        os.environ.update(_of_task(task, args, os.environ))
    elif "RANK" not in os.environ:
        os.environ.update(lone_process_environment())
    else:
        os.environ.update(_given_by_environment(args, os.environ))
    try:
        args.device = accelerate_settings(os.environ, vars(args)).get("device", args.device)
        on_cpu = args.device == "cpu" or not device_files_present()
        config = read_settings(args, CPU_PRESET if on_cpu else GPU_PRESET)
        resumed = None
        if os.environ["RANK"] == "0" or task:  # other hosts may have other files of that name
            resumed = read_resumed(config, args.resume, fresh_start=args.fresh_start)
        if resumed:
            check_resumed(config, resumed)
    except AlphaZeroError as error:
        error.found_by_all_ranks = True
        raise
    if os.environ["RANK"] == "0":
        require_wandb(config.run)
    if config.run.log_format == JSON:
        write_json_lines(f"rank {os.environ['RANK']}")
    # Where no launcher reports what takes long, the first rank does.
    speaks = os.environ["RANK"] == "0" and rank_side.OUTPUT_VARIABLE not in os.environ
    if speaks and not config.run.quiet:
        _say("starting: loading PyTorch and DeepSpeed takes some seconds")
    console = Console(speaks, log_format=config.run.log_format, quiet=config.run.quiet)
    with contextlib.closing(console), console.working("loading PyTorch and DeepSpeed"):
        from alphazero.training.ranks.runtime import read_runtime
        from alphazero.training.start.run_start import Request
        from alphazero.training.start.train import train

    runtime = read_runtime(os.environ, args.device, args.backend)
    request = Request(
        argv=sys.argv,
        resume=args.resume,
        fresh_start=args.fresh_start,
        accept_new_data=args.accept_new_data,
        is_restart=RESTART_VARIABLE in os.environ or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0",
        check=not args.no_preflight,
        command=() if task else tuple(typed_command(sys.argv, os.environ)),
        is_launched=COMMAND_VARIABLE in os.environ,
        notices=(
            *([] if COMMAND_VARIABLE in os.environ else unread_variables(os.environ)),
            *(NO_GPU_NOTICES if on_cpu and not args.config and config.preset == CPU_PRESET else ()),
            *(() if resumed else chosen_lines(config)),
        ),
    )
    return train(config, runtime, request)


def _of_task(
    task: Mapping[str, str], args: argparse.Namespace, environment: Mapping[str, str]
) -> dict[str, str]:
    """Rendezvous variables of a task of srun or mpirun; LaunchError where the master is not known."""
    address = args.master_addr or environment.get("MASTER_ADDR") or task.get("MASTER_ADDR")
    port = args.master_port or _number(environment, "MASTER_PORT") or task.get("MASTER_PORT", DEFAULT_PORT)
    if not address:
        raise LaunchError(
            f"{task['WORLD_SIZE']} tasks of mpirun: they are on several machines; expected --master-addr "
            "ADDRESS (or MASTER_ADDR), the address of the machine of rank 0"
        )
    if task["LOCAL_WORLD_SIZE"] != task["WORLD_SIZE"] and task["RANK"] == "0":
        refuse_loopback(address, machines.look_at_this_machine(device="cpu"), machines.addresses_of)
    interface = "lo"
    if not machines.names_loopback(address):
        interface = machines.interface_towards(address, machines.list_addresses())
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    own = {name: environment.get(name, interface) for name in names if interface}
    return {**own, **task, "MASTER_ADDR": address, "MASTER_PORT": str(port)}


def _given_by_environment(args: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """What flags add to the variables of a launcher that says RANK; LaunchError without a master."""
    address = environment.get("MASTER_ADDR") or args.master_addr
    if not address and environment.get("WORLD_SIZE", "1") != "1":
        raise LaunchError(f"RANK={environment['RANK']}: expected MASTER_ADDR beside it, or --master-addr")
    port = _number(environment, "MASTER_PORT") or args.master_port or DEFAULT_PORT
    return {"MASTER_ADDR": address or LOOPBACK, "MASTER_PORT": str(port)}


def _number(environment: Mapping[str, str], name: str) -> int:
    """A variable's whole number, 0 where it is not set."""
    text = environment.get(name) or "0"
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise LaunchError(f"{name}={text!r}: expected a whole number")
    return int(text)


def _say(text: str) -> None:
    print(program_line(text), file=sys.stderr, flush=True)
