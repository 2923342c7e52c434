"""`alphazero launch`: starts the ranks of a training job; flags it does not know go to the trainer."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from alphazero.base.errors import CheckpointError, ConfigError, LaunchError
from alphazero.base.log import JSON, TEXT, write_json_lines
from alphazero.base.section import add_flags, values_of_flags
from alphazero.cli.command_table import build_parser
from alphazero.cli.flags import add_device_flag
from alphazero.cli.training import train
from alphazero.cli.training.train import Resumed
from alphazero.games.outside.names import flag_of_rules
from alphazero.launch.head.dry_run import dry_run_lines
from alphazero.launch.head.lines import say, say_of_job
from alphazero.launch.head.supervisor import ChosenRun, Supervision, Supervisor
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.launch.plan.node import choose_cpu_ranks
from alphazero.launch.plan.resolve import resolve
from alphazero.launch.plan.sources import LaunchRequest
from alphazero.machine import machine as machines
from alphazero.machine.environment import CHECKOUT, START, set_up
from alphazero.machine.memory import read_memory
from alphazero.run.checkpoint_files import checkpoints_in
from alphazero.run.directory import require_free
from alphazero.run.find import find_weights
from alphazero.run.next_command import COMMAND_VARIABLE, continuing, typed_command
from alphazero.settings.cluster import MOST_NODES, ClusterConfig, read_cluster
from alphazero.settings.flags import whole
from alphazero.settings.load import Config, decided
from alphazero.settings.scope import require_same
from alphazero.show.weights_and_biases import require_wandb
from alphazero.training.ranks.batch import (
    LEAST_MICRO_BATCH,
    BatchSizes,
    batch_over,
    fix_batch,
    idle_notice,
    implied_ranks,
    plan_batches,
)

# Flags this command does not know belong to the trainer (see alphazero.cli.command_table).
PASSES_ON_UNKNOWN_FLAGS = True

TRAIN_SCRIPT = CHECKOUT / "train_distributed.py"
PROGRAM = (str(TRAIN_SCRIPT),) if TRAIN_SCRIPT.is_file() else (START, "train")
NEEDED_MODULES = ("torch", "deepspeed", "alphazero._core")
# Of a preset, where the user names no file of settings; each is read once.
ReadSettings = Callable[[str], Config]


def configure(parser: argparse.ArgumentParser) -> None:
    """The launcher's own flags."""
    parser.epilog = (
        "All other flags go to the trainer: see `alphazero train --help`. docs/cluster.md describes several "
        "machines, SLURM, and which setting beats which."
    )
    add_flags(parser, {"cluster": ClusterConfig})
    group = parser.add_argument_group("this start")
    add_device_flag(group, "auto: GPUs where there are some")
    group.add_argument(
        "--node-rank",
        type=whole(0, MOST_NODES - 1),
        metavar="R",
        help="start only this machine's part: its number, from 0 to N-1",
    )
    group.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="ssh configuration to use instead of ~/.ssh/config"
    )
    group.add_argument(
        "--sync-data", action="store_true", help="copy --data to the hosts of the hostfile that lack it"
    )
    group.add_argument(
        "--no-preflight",
        action="store_true",
        help="start whatever the comparison of the hosts finds, and skip the preflight of all ranks",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="print the commands with their environment, start nothing"
    )


def cpu_ranks_for(num_cores: int, config: Config, resumed: Resumed | None) -> int:
    """How many ranks this machine gets without a GPU and without a number."""
    saved = resumed.sizes if resumed else None
    config = resumed.kept(config) if resumed else config
    implied = 0 if saved else implied_ranks(config)
    if 0 < implied <= num_cores:
        return implied

    def ranks_at_work(num_ranks: int) -> float:
        try:
            sizes, _ = fix_batch(config, num_ranks, saved)
            plan = plan_batches(sizes.batch_size, _in_use(sizes, saved), [1.0] * num_ranks, "cpu")
        except ConfigError:  # no such plan; where there is none at all, the trainer reports why
            return 0.0
        return num_ranks * (1 - plan.idle_share)

    batch_size = saved.batch_size if saved else batch_over(config, num_cores)
    training, least = config.training, LEAST_MICRO_BATCH["cpu"]
    named = _in_use(BatchSizes(training.batch_size, training.micro_batch_size), saved)
    least = min(least, named) if named > 0 else least
    available = read_memory().available_bytes
    return choose_cpu_ranks(num_cores, batch_size, least, config.network, available, ranks_at_work)


def _in_use(sizes: BatchSizes, saved: BatchSizes | None) -> int:
    """The micro-batch; the checkpoint's where none is named."""
    is_chosen = sizes.micro_batch_size <= 0 and saved is not None and sizes.batch_size == saved.batch_size
    return saved.micro_batch_size if is_chosen and saved else sizes.micro_batch_size


def check_batches(plan: LaunchPlan, config: Config, resumed: Resumed | None) -> list[str]:
    """Batch arithmetic: a mistake is one line here, not one per rank; it names the run that has the numbers.

    Lines of a dry run: about idle ranks, and those that the banner of the run will have.
    """
    named = config.training.micro_batch_size
    saved = resumed.sizes if resumed else None
    config = resumed.kept(config) if resumed else config
    shown = [f"precision {config.training.precision}", *decided(config)]
    if None in (host.num_ranks for host in plan.hosts):  # known when the hosts have counted their devices
        batch, least = config.training.batch_size, batch_over(config, 1)
        size = batch if least == batch or saved else f"{least} to {batch}"
        return [f"batch {size} over as many ranks as the hosts have devices", *shown]
    weights = [host.weight for host in plan.hosts for _ in range(host.num_ranks or 0)]
    device = "cpu" if plan.device == "cpu" else "cuda"
    sizes, _ = fix_batch(config, len(weights), saved)
    if resumed:
        require_same(resumed.run, resumed.step, "batch size", resumed.sizes.batch_size, sizes.batch_size)
    cut = functools.partial(plan_batches, sizes.batch_size, _in_use(sizes, saved), weights, device)
    try:
        batches = cut()
        if len({*zip(weights, batches.shares, strict=True)}) > 1 and _need_equal_passes(config):
            batches = cut(equal_passes=True)
    except ConfigError as error:
        raise ConfigError(f"{resumed.run}, which continues: {error}" if resumed else str(error)) from error
    notice = idle_notice(batches, max(named, 0))
    return [*([notice] if notice else []), f"batch {batches}", *shown]


def _need_equal_passes(config: Config) -> bool:
    """Whether ranks must make as many passes. At ZeRO 2 and 3 torch is asked, or else the ranks will tell."""
    if config.training.zero_stage >= 2:
        with contextlib.suppress(ImportError, TypeError, ValueError):
            from alphazero.training.engine.deepspeed_config import deepspeed_stage

            return deepspeed_stage(config) >= 2
    return False


def actor_flags(config: Config) -> tuple[str, ...]:
    """What actors of this job need on their command lines: what a place cannot tell them."""
    tables = ("--syzygy", config.self_play.syzygy) if config.self_play.syzygy else ()
    return (*flag_of_rules(config.network.game), *tables)


def run(args: argparse.Namespace) -> int:
    """Check, resolve, announce, start."""
    values = values_of_flags(ClusterConfig, vars(args))
    request = LaunchRequest(**values, device=args.device, node_rank=args.node_rank)
    if args.ssh_config is not None and not args.ssh_config.is_file():
        raise LaunchError(f"--ssh-config {args.ssh_config}: no such file")
    arguments, trainer = _trainer_arguments(args)
    machine = machines.look_at_this_machine(device=args.device)
    read = functools.cache(lambda preset: train.read_settings(trainer, preset))

    @functools.cache
    def resumed(preset: str) -> Resumed | None:
        return train.read_resumed(read(preset), trainer.resume, fresh_start=trainer.fresh_start)

    config = read(train.GPU_PRESET if machine.devices else train.CPU_PRESET)
    if config.run.log_format == JSON:
        write_json_lines("alphazero")
    plan = resolve(
        request,
        machine,
        os.environ,
        read_cluster(trainer.config),
        # --dry-run asks no name server.
        (lambda name: ()) if args.dry_run else machines.addresses_of,
        lambda num_cores: cpu_ranks_for(num_cores, read(train.CPU_PRESET), resumed(train.CPU_PRESET)),
        str(args.ssh_config or ""),
    )
    # Slots of a hostfile are GPUs until the hosts have counted them.
    preset = train.CPU_PRESET if plan.device == "cpu" else train.GPU_PRESET
    config = read(preset)
    if any(host.num_actors for host in plan.hosts) and config.self_play.self_play_from == "here":
        if any(word.startswith("--self-play-from") for word in arguments):
            raise ConfigError("--self-play-from here with actors: expected elsewhere, or both")
        arguments, trainer = _trainer_arguments(args, "--self-play-from", "elsewhere")
        read.cache_clear()
        config = read(preset)
    continued = None
    # Other hosts may have other files of that name.
    with contextlib.nullcontext() if plan.node_rank == 0 else contextlib.suppress(CheckpointError):
        continued = resumed(preset)
    if continued and plan.node_rank == 0:
        train.check_resumed(config, continued)
    settled = check_batches(plan, config, continued)
    if plan.node_rank == 0:
        require_wandb(config.run)
    notices = train.unread_variables(os.environ)
    if args.dry_run:
        if plan.device == "auto" and config.preset == train.GPU_PRESET and not trainer.config:
            notices.append(f"preset {train.GPU_PRESET}, or {train.CPU_PRESET} where the hosts have no GPU")
        for line in (*plan.notices, *notices, *settled, *(() if continued else train.chosen_lines(config))):
            say(line)
        if not plan.is_head and plan.node_rank == 0 and not machines.port_is_free(plan.master_port):
            fate = "refuse it" if plan.port_is_chosen else "take another one"
            say(f"port {plan.master_port} is in use here now: a start would {fate}")
        place = config.self_play.place or str(train.run_directory(config, fresh_start=False).path)
        actor = ("selfplay", "--for", place, *actor_flags(config))
        for line in dry_run_lines(plan, (*PROGRAM, *arguments), actor):
            print(line)
        return 0
    for line in notices:
        say_of_job(line)
    return _start(args, plan, arguments, trainer, config, read)


def _start(
    args: argparse.Namespace,
    plan: LaunchPlan,
    arguments: list[str],
    trainer: argparse.Namespace,
    config: Config,
    read: ReadSettings,
) -> int:
    """Start the job and see it to its end. arguments, trainer: what goes to the trainer, and parsed."""
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise LaunchError(f"{sys.executable}: has no {', '.join(missing)}; expected {set_up()} in {CHECKOUT}")
    preset_of = {"cuda": train.GPU_PRESET, "cpu": train.CPU_PRESET}
    job = Supervision(
        plan=dataclasses.replace(plan, directory=str(Path.cwd())),
        trainer=PROGRAM,
        choose_run=lambda device: _choose_run(arguments, trainer, read(preset_of[device]), plan),
        runs_directory=str(Path(config.run.runs_dir).absolute()),
        is_strict=not args.no_preflight,
        data=(*config.data.data, *config.data.validation_data),
        sync_data=args.sync_data,
        place=config.self_play.place,
        actor_flags=actor_flags(config),
        quiet=config.run.quiet,
    )
    command = typed_command(sys.argv, os.environ)
    os.environ[COMMAND_VARIABLE] = json.dumps(command)  # agents of this machine inherit it
    supervisor = Supervisor(job, say_of_job)
    status = supervisor.run()
    run = supervisor.run_directory
    is_saved = supervisor.has_saved or (run is not None and checkpoints_in(run / "checkpoints"))
    if run is not None and is_saved and status not in (0, LaunchError.exit_code):
        say_of_job(f"continue with: {continuing(command, run.name)}")
    return status


def _choose_run(
    arguments: list[str], trainer: argparse.Namespace, settings: Config, plan: LaunchPlan
) -> ChosenRun:
    """The run's directory by name, so that a restart continues what a fresh start began.

    A run that is in use and --init-weights that are not there are errors here, before ranks start.
    """
    # Nodes that are started by hand choose the same, as long as none of them makes the directory.
    reserve = trainer.fresh_start and not plan.is_by_hand
    run = train.run_directory(settings, fresh_start=trainer.fresh_start, reserve=reserve)
    require_free(run)
    has_rank_0 = not plan.is_head and plan.node_rank == 0
    if has_rank_0 and settings.training.init_weights and not checkpoints_in(run.checkpoints):
        find_weights(settings.training.init_weights, "--init-weights")
    named = [argument for argument in arguments if argument != "--fresh-start"]
    if trainer.fresh_start:
        named += ["--run-name", run.path.name]
    return ChosenRun(str(run.path.absolute()), tuple(named))


def _trainer_arguments(args: argparse.Namespace, *more: str) -> tuple[list[str], argparse.Namespace]:
    """What goes to the trainer, and that parsed. more: words that were not typed."""
    parser = build_parser("train")
    arguments = [*parser.with_dashes(args.passed_on), *more]
    if args.device != "auto":
        arguments += ["--device", args.device]
    if args.no_preflight:
        arguments.append("--no-preflight")
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise parser.unknown_error(unknown, list(build_parser("launch").flags()))
    if getattr(parsed, "log_format", TEXT) == JSON:
        write_json_lines("alphazero")
    return arguments, parsed
