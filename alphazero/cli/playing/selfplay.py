"""`alphazero selfplay`: games that a network plays against itself, into a game store or for a learner."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import AlphaZeroError, ConfigError, DataError
from alphazero.base.log import program_line
from alphazero.base.place_name import read_place
from alphazero.base.section import add_flags, flag_of, values_of_flags
from alphazero.cli.command_table import GAME_FILE
from alphazero.cli.flags import (
    add_config_flag,
    add_gpus_flag,
    add_network_flags,
    add_number,
    add_weights_flag,
    device_of,
    network_of,
)
from alphazero.data.store.growing import GrowingStore
from alphazero.games.registry import read_game
from alphazero.machine.lock import only_writer
from alphazero.play.lanes import concatenated, from_bytes, store_rows, to_bytes
from alphazero.play.selfplay import describe, figures_of, play_first_games, tables_of
from alphazero.play.workers import Place, Worker, Workers, find_places
from alphazero.settings.flags import count, seconds
from alphazero.settings.load import Config, load_config
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig, settled
from alphazero.show.console import showing

if TYPE_CHECKING:
    import pyarrow as pa

    from alphazero.base.log import Work
    from alphazero.network.model.resnet import AlphaZeroNet

GAMES_UNASKED = 1000
SECTIONS = {"search": SearchConfig, "self_play": SelfPlayConfig}


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments, and the settings of search and self-play."""
    add_weights_flag(parser)
    parser.add_argument("--out", type=Path, help="game store to create or append to")
    parser.add_argument(
        "--for",
        dest="play_for",
        metavar="PLACE",
        help="play for the learner of this run, directory or URL (s3://...) with its newest weights and its "
        "settings, until it ends or a signal comes (docs/actors.md)",
    )
    text = f"games to play, the same ones for any --lanes and --gpus (default: {GAMES_UNASKED})"
    add_number(parser, "--games", count, text)
    add_number(
        parser, "--seconds", seconds(0.1), "play at most this long (default: no limit)", math.inf, metavar="S"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_config_flag(parser)
    add_network_flags(parser)
    add_gpus_flag(parser)
    parser.add_argument(
        "--seed", default=argparse.SUPPRESS, metavar="N", help="seed of noise and openings (default: 0)"
    )
    add_flags(parser, SECTIONS, trains=False)
    parser.set_defaults(precision=None)


def run(args: argparse.Namespace) -> int:
    """Play, store the games, report the speed; or play for a learner."""
    if args.play_for is not None:
        return act(args)
    if args.out is None:
        raise ConfigError("neither --out nor --for: expected --out STORE, or --for PLACE of a learner")
    args.games, args.precision = args.games or GAMES_UNASKED, args.precision or "fp32"
    args.weights = network_of(args)
    config, places = config_of(args), find_places(args.gpus, args.device)
    with sole_writer(args.out):
        return play(args, config, places)


# What a machine decides for itself; a place has all other settings.
OF_AN_ACTOR = frozenset({"lanes", "evaluation_batch", "evaluation_cache", "syzygy"})


def act(args: argparse.Namespace) -> int:
    """Be an actor, or with --gpus several; 0 also after a signal, since what is finished is published."""
    from alphazero.training.loop.stop import StopRequest

    typed = [name for section in SECTIONS.values() for name in values_of_flags(section, vars(args))]
    typed = [name for name in typed if name not in OF_AN_ACTOR]
    typed += [name for name in ("network", "weights", "out", "games", "config") if getattr(args, name)]
    typed += [name for name in ("json", "seed") if getattr(args, name, False)]
    if typed:
        flag = "W" if typed[0] == "network" else flag_of(typed[0])
        raise ConfigError(f"{flag} with --for: expected it at the learner, which decides it")
    read_place("--for", args.play_for)
    places, stop = find_places(args.gpus, args.device), StopRequest()
    if not places:
        run_as_actor(args, lambda: not stop.requested)
    with Workers("selfplay", args, places) as workers:
        for _ in workers.replies(["play"] * len(workers), lambda: not stop.requested):
            pass
    return 0


def run_as_actor(args: argparse.Namespace, go_on: Callable[[], bool]) -> None:
    """Play for the learner of --for until --seconds have passed or go_on gives False."""
    from alphazero.play.actors.actor import OfThisMachine, run_actor

    until, own = time.monotonic() + args.seconds, values_of_flags(SelfPlayConfig, vars(args))
    game = getattr(args, GAME_FILE, None)
    name = read_game("--game", game) if game else ""
    machine = OfThisMachine(device_of(args.device), name, args.precision, own)

    def say(text: str) -> None:
        print(program_line(text), file=sys.stderr, flush=True)

    run_actor(args.play_for, machine, lambda: go_on() and time.monotonic() < until, say)


def config_of(args: argparse.Namespace) -> Config:
    """The settings of the games. Raises ConfigError."""
    flags = dict(vars(args))
    flags.pop("precision", None)  # of the evaluations, not of training, which has no int8
    config = load_config(args.config, flags)
    own = settled(config.self_play, config.search, config.training.batch_size, num_ranks=1)
    return replace(config, self_play=own)


@contextlib.contextmanager
def sole_writer(out: Path) -> Iterator[None]:
    """Lock the store, and the run that it belongs to, within the block.

    Even opening a store to append to it removes the remains of a killed writer.
    """
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: not a game store; expected a new or an existing one")
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    is_of_a_run = out.name == "games" and (out.parent / "checkpoints").is_dir()
    try:
        with contextlib.ExitStack() as held:
            for path in (out.parent, out) if is_of_a_run else (out,):
                held.enter_context(only_writer(path, "self-play", lambda text: print(text, file=sys.stderr)))
            yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # not empty: games were stored
                out.rmdir()


def play(args: argparse.Namespace, config: Config, places: Sequence[Place]) -> int:
    """Play until there are enough games or a signal arrives; returns the exit status."""
    from alphazero.network.weights.open_network import open_network
    from alphazero.training.loop.stop import StopRequest

    device = device_of("cpu" if places else args.device)  # workers have networks of their own
    network, _ = open_network(args.weights, device)
    game = network.spec.name
    tables_of(config.self_play, game)  # workers and this process open their own; what is wrong is said first
    store = GrowingStore(args.out, game)
    stop = StopRequest()
    batches: list[pa.RecordBatch] = []
    began = time.monotonic()

    def keep(batch: pa.RecordBatch) -> None:
        store.append(store_rows(batch, game, config.search.algorithm, "self-play"))
        batches.append(batch)

    try:
        with showing("self-play", args.games, "game") as work, Workers("selfplay", args, places) as workers:
            if places:
                collect(workers, work, keep, lambda: not stop.requested)
            else:

                def on_progress(ended: int) -> bool:
                    work.advance(ended)
                    return not stop.requested

                play_share(args, config, network, 0, 1, keep, on_progress)
    except AlphaZeroError:
        if batches:
            report(args, game, concatenated(batches), time.monotonic() - began)
        raise
    report(args, game, concatenated(batches), time.monotonic() - began)
    return 128 + stop.signal if stop.requested else 0


def play_share(
    args: argparse.Namespace,
    config: Config,
    network: AlphaZeroNet,
    process: int,
    processes: int,
    keep: Callable[[pa.RecordBatch], None],
    on_progress: Callable[[int], bool],
) -> None:
    """Play the games of this process, every `processes`-th one, for at most --seconds.

    keep gets finished games. on_progress gets their number after each batch; False ends play.
    """
    import torch

    from alphazero.network.inference.purpose import evaluator_for_self_play
    from alphazero.play.search_settings import self_play_settings

    own, device = config.self_play, next(network.parameters()).device
    evaluator = evaluator_for_self_play(network, device, args.precision, own.evaluation_batch)
    started = time.monotonic()
    # This process's part of --lanes, but enough to fill two batches.
    part = len(range(process, own.lanes, processes))
    play_first_games(
        network.spec.name,
        self_play_settings(config.search, own, config.training.seed),
        own,
        range(process, args.games, processes),
        max(1, part, min(own.lanes, 2 * own.evaluation_batch)),
        evaluator,
        tables=tables_of(own, network.spec.name),
        keep=keep,
        on_progress=lambda ended: on_progress(ended) and time.monotonic() - started < args.seconds,
        num_threads=torch.get_num_threads(),
    )


GAMES, ENDED = "games", "ended"  # what workers send
PROGRESS_S = 0.5


def work(args: argparse.Namespace, worker: Worker) -> None:
    """A worker of this command: its share of the games."""
    from alphazero.network.weights.open_network import open_network

    if args.play_for is not None:
        for _ in worker.tasks():
            run_as_actor(args, lambda: not worker.is_asked_to_stop)
        return
    config = config_of(args)
    network, _ = open_network(args.weights, device_of(args.device))
    for task in worker.tasks():
        process, processes = json.loads(task)
        said = 0.0

        def keep(batch: pa.RecordBatch) -> None:
            worker.reply(GAMES, to_bytes(batch))

        def on_progress(ended: int) -> bool:
            nonlocal said
            if time.monotonic() - said > PROGRESS_S:
                said = time.monotonic()
                worker.reply(ENDED, str(ended))
            return not worker.is_asked_to_stop

        play_share(args, config, network, process, processes, keep, on_progress)


def collect(
    workers: Workers, work: Work, keep: Callable[[pa.RecordBatch], None], go_on: Callable[[], bool]
) -> None:
    """Deal the games to the workers; keep what they play and show their progress."""
    number = len(workers)
    ended = [0] * number
    for reply in workers.replies([json.dumps([own, number]) for own in range(number)], go_on):
        if reply.kind == GAMES:
            keep(from_bytes(reply.content, "games of a worker"))
        else:
            ended[reply.worker] = int(reply.content)
            work.advance(sum(ended))


def report(args: argparse.Namespace, game: str, batch: pa.RecordBatch, seconds: float) -> None:
    """Print figures of the games and the speed."""
    figures = figures_of(batch, game) if batch.num_rows else {"games": 0.0}
    speed = 3600 * batch.num_rows / seconds
    if args.json:
        print(json.dumps({**figures, "games_per_hour": speed}))
        return
    if batch.num_rows:
        print(describe(figures))
    print(f"{batch.num_rows} games in {args.out} | {speed:,.0f} games/hour")
