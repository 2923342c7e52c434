"""`alphazero selfplay`: games that a network plays against itself, into a game store."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import DataError
from alphazero.base.section import add_flags
from alphazero.cli.flags import add_network_flags, add_weights_flag
from alphazero.machine.lock import DirectoryLock
from alphazero.settings.flags import count, seconds
from alphazero.settings.load import load_config, preset_names
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig, settled

if TYPE_CHECKING:
    import pyarrow as pa

# Flags that are no settings: `--precision` may be int8, which training has not.
OWN_FLAGS = ("games", "seconds", "json", "precision")
SECTIONS = {"search": SearchConfig, "self_play": SelfPlayConfig}
# Settings of training on the games; --precision is that of the evaluations.
UNUSED = (
    "mode",
    "generations",
    "steps_per_generation",
    "pretraining_steps",
    "historical_share",
    "reuse",
    "simulations_per_round",
    "evaluation_precision",
    "gate_games",
    "gate_score",
    "value_q_ratio",
    "window_minimum",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments, and the settings of search and self-play."""
    add_weights_flag(parser)
    parser.add_argument("--out", type=Path, required=True, help="game store to create or append to")
    parser.add_argument(
        "--games",
        type=count,
        default=1000,
        metavar="N",
        help="games to play, the same ones for any number of --lanes (default: 1000)",
    )
    parser.add_argument(
        "--seconds",
        type=seconds(0.1),
        default=math.inf,
        help="play at most this long (default: no limit)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--config", default="", metavar="NAME|FILE", help=f"preset ({', '.join(preset_names())}) or TOML file"
    )
    add_network_flags(parser)
    parser.add_argument(
        "--seed", default=argparse.SUPPRESS, metavar="N", help="seed of noise and openings (default: 0)"
    )
    add_flags(parser, SECTIONS, unused=UNUSED)


def run(args: argparse.Namespace) -> int:
    """Play, store the games, report the speed."""
    flags = {name: value for name, value in vars(args).items() if name not in OWN_FLAGS}
    config = load_config(args.config, flags)
    self_play = settled(config.self_play, config.search, config.training.batch_size, num_ranks=1)
    with sole_writer(args.out):
        return play(args, config.search, self_play, config.training.seed)


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
    with contextlib.ExitStack() as held:
        for place in (out.parent, out) if is_of_a_run else (out,):
            lock = DirectoryLock.acquire(place, "self-play", lambda text: print(text, file=sys.stderr))
            held.callback(lock.withdraw)
        try:
            yield
        finally:
            held.close()
            if is_new:
                with contextlib.suppress(OSError):  # not empty: games were stored
                    out.rmdir()


def play(args: argparse.Namespace, search: SearchConfig, self_play: SelfPlayConfig, seed: int) -> int:
    """Play until there are enough games or a signal arrives; returns the exit status."""
    import torch

    from alphazero.data.store.growing import GrowingStore
    from alphazero.network.inference.purpose import evaluator_for_self_play
    from alphazero.network.model.precision import choose_device
    from alphazero.network.weights.open_network import open_network
    from alphazero.play.selfplay import Recording
    from alphazero.show.console import showing
    from alphazero.training.loop.stop import StopRequest

    device = choose_device(args.device, 0, os.environ)
    network, _ = open_network(args.weights, device)
    evaluator = evaluator_for_self_play(network, device, args.precision, self_play.evaluation_batch)
    store = GrowingStore(args.out, network.spec.name)
    stop = StopRequest()
    started = time.monotonic()
    with showing("self-play", args.games, "game") as work:

        def on_progress(ended: int) -> bool:
            work.advance(ended)
            return not stop.requested and time.monotonic() - started < args.seconds

        recording = Recording(
            search,
            self_play,
            seed,
            network.spec.name,
            evaluator,
            store,
            on_progress,
            torch.get_num_threads(),
        )
        batch = recording.run(args.games)
    report(args.out, batch, recording.evaluations, time.monotonic() - started, as_json=args.json)
    return 128 + stop.signal if stop.requested else 0


def report(out: Path, batch: pa.RecordBatch, evaluations: int, seconds: float, *, as_json: bool) -> None:
    """Print figures of the games and the speed."""
    from alphazero.play.selfplay import describe, figures_of

    figures = figures_of(batch) if batch.num_rows else {}
    speed = {"games_per_hour": 3600 * batch.num_rows / seconds, "evaluations_per_s": evaluations / seconds}
    if as_json:
        print(json.dumps({"games": batch.num_rows, **figures, **speed}))
        return
    if figures:
        print(describe(figures))
    print(
        f"{batch.num_rows} games in {out} | {speed['games_per_hour']:,.0f} games/hour, "
        f"{speed['evaluations_per_s']:,.0f} evaluations/s"
    )
