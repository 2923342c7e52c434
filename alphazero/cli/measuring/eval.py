"""`alphazero eval`: how well networks predict known games, or do with --solved, --epd and --puzzles."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alphazero.base import records
from alphazero.base.errors import ConfigError, DataError
from alphazero.base.section import flag_of
from alphazero.base.text import table
from alphazero.cli.flags import (
    add_gpus_flag,
    add_network_flags,
    add_number,
    add_paths,
    add_weights_flag,
    device_of,
    networks_of,
)
from alphazero.cli.measuring import eval_solved, eval_suites
from alphazero.cli.measuring.eval_suites import BATCH_SIZE, draw
from alphazero.data.open import open_or_import
from alphazero.data.sampling.loader import WindowEncoder, batches_of
from alphazero.data.sampling.window import Window
from alphazero.games.batch import Batch
from alphazero.games.registry import get_spec
from alphazero.play.workers import Worker, Workers, find_places
from alphazero.settings.flags import batch_size, count, seed, threads, whole
from alphazero.settings.self_play import MOST_SIMULATIONS
from alphazero.show.console import showing

if TYPE_CHECKING:
    import torch

    from alphazero.measure.known_games import PositionMetrics
    from alphazero.network.model.resnet import AlphaZeroNet

MOST_POSITIONS = 8192  # unless --positions is given
# What is measured, by the flag that asks for it, and the flags that this has beside those of all.
_SEARCHED = {"simulations", "no_proofs", "config"}
FLAGS = {
    "--data": {"data", "not_in", "positions", "seed", "num_workers"},
    "--solved": {"solved", "solver", "solved_sets", *_SEARCHED},
    "--solver": {"solved", "solver", "positions", "seed", *_SEARCHED},
    "--epd": {"epd", "simulations"},
    "--puzzles": {"puzzles", "simulations", "seed", "count"},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser, "each a row of the table", several=True)
    add_paths(
        parser,
        "--data",
        "game stores, PGN files or directories whose positions are predicted",
        "PATH",
        several=True,
    )
    add_paths(
        parser,
        "--not-in",
        "leave out positions that occur in these, such as the training data",
        "PATH",
        several=True,
    )
    add_number(parser, "--positions", count, f"most positions to use of --data (default: {MOST_POSITIONS})")
    add_number(
        parser, "--seed", seed, "draw positions or puzzles at random by this seed (default: evenly spread)"
    )
    add_number(
        parser,
        "--batch-size",
        batch_size,
        f"positions per forward pass (default: {BATCH_SIZE}; with --epd and --puzzles searches on a CPU: 64)",
    )
    add_number(
        parser,
        "--simulations",
        whole(1, MOST_SIMULATIONS),
        "with --solved, --epd and --puzzles: also measure a search of N simulations (default: no search)",
    )
    add_network_flags(parser)
    add_gpus_flag(parser)
    add_number(parser, "--num-workers", threads, "threads that encode positions (default: 1)")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        default=Path("cache"),
        help="directory of imported PGN files (default: cache)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    eval_suites.configure(parser)
    eval_solved.configure(parser)


@dataclass(frozen=True)
class PositionSet:
    """Samples to predict: ids among `in_data` samples, of which `eligible` were not left out."""

    ids: npt.NDArray[np.int64]
    in_data: int
    eligible: int


def run(args: argparse.Namespace) -> int:
    """Measure each network on the same positions, print them."""
    from alphazero.network.weights.open_network import open_network

    args.weights = networks_of(args)
    check_flags(args)
    if args.gpus != 1 and (args.epd or args.puzzles or args.solved):
        kind = "--puzzles" if args.puzzles else "--epd" if args.epd else "--solved"
        raise ConfigError(f"--gpus {args.gpus}: {kind} runs in one process; expected 1")
    if args.epd or args.puzzles:
        return eval_suites.run(args)
    args.batch_size = args.batch_size or BATCH_SIZE
    if args.solved:
        return eval_solved.run(args, device_of(args.device))
    places = find_places(args.gpus, args.device)
    device = device_of("cpu" if places else args.device)  # workers evaluate
    args.positions, args.num_workers = args.positions or MOST_POSITIONS, args.num_workers or 1
    if args.precision == "int8":
        raise ConfigError(
            "--precision int8: only with --solved, --epd and --puzzles; expected one of fp32, bf16, fp16"
        )
    if not args.data:
        raise ConfigError(
            "expected --data PATH... with known games, or --solved for Connect Four positions, or --epd or "
            "--puzzles for chess positions with solutions"
        )
    # Before any import of games, which may take long.
    networks = [open_network(name, device)[0] for name in args.weights]
    window = open_window(args.data, args.cache_dir)
    positions = choose_positions(args, window)
    for name, network in zip(args.weights, networks, strict=True):
        if network.spec.name != window.game_name:
            raise ConfigError(f"{name}: plays {network.spec.name}, --data holds {window.game_name}")
    with Workers("eval", args, places) as workers:
        rows = [
            measure(args, number, network, window, positions, workers)
            for number, network in enumerate(networks)
        ]
    print(to_json(args, positions, rows) if args.json else to_table(args, positions, rows))
    return 0


def check_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag of another measurement than the one asked for."""
    solved = "--solver" if args.solver else "--solved"
    kind = "--puzzles" if args.puzzles else "--epd" if args.epd else solved if args.solved else "--data"
    for name in sorted(set().union(*FLAGS.values()) - FLAGS[kind]):
        value = getattr(args, name)
        if value in (None, "", []) or value is False:
            continue
        if kind != "--data":
            raise ConfigError(f"{flag_of(name)}: not with {kind}")
        *others, last = [each for each, flags in FLAGS.items() if name in flags and each != "--solver"]
        kinds = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{flag_of(name)}: only with {kinds}")


def open_window(paths: Sequence[Path], cache_dir: Path) -> Window:
    """All positions of stores and raw files. Raises DataError where there is none."""
    with showing("reading the games", 0, "") as work:
        window = Window.of_stores(open_or_import(paths, cache_dir, progress=work))
    if not window.num_samples:
        raise DataError(f"{', '.join(map(str, paths))}: no position of a game with a result")
    return window


def choose_positions(args: argparse.Namespace, window: Window) -> PositionSet:
    """The samples of `window` that --not-in leaves, --positions of them. Raises DataError if none is left."""
    spec = get_spec(window.game_name)
    eligible = np.arange(window.num_samples, dtype=np.int64)
    if args.not_in:
        seen_window = open_window(args.not_in, args.cache_dir)
        if seen_window.game_name != window.game_name:
            raise DataError(f"--not-in holds {seen_window.game_name}, --data {window.game_name}")
        seen = np.unique(WindowEncoder(seen_window, spec, num_threads=args.num_workers).position_keys())
        keys = WindowEncoder(window, spec, num_threads=args.num_workers).position_keys()
        eligible = eligible[~np.isin(keys, seen)]
        if not len(eligible):
            raise DataError(f"--not-in: holds all {window.num_samples} positions of --data; none is left")
    return PositionSet(draw(eligible, args.positions, args.seed), window.num_samples, len(eligible))


def measure(
    args: argparse.Namespace,
    number: int,
    network: AlphaZeroNet,
    window: Window,
    positions: PositionSet,
    workers: Workers,
) -> PositionMetrics:
    """The network of this number on the positions, here where there are no workers.

    Its batches are dealt to the workers as one process would fill them.
    """
    import torch

    from alphazero.measure.known_games import metrics_of

    with showing(Path(args.weights[number]).name, len(positions.ids), "position") as work:
        if not workers:
            return metrics_of(sums_of(args, network, window, positions.ids, work.add))
        ids, size = positions.ids.tolist(), args.batch_size
        batches = [ids[begin : begin + size] for begin in range(0, len(ids), size)]
        parts = [tuple(chain.from_iterable(batches[own :: len(workers)])) for own in range(len(workers))]
        tasks = [records.to_json(PositionShare(number, part)) for part in parts]
        sums = []
        for reply in workers.replies(tasks):
            if reply.kind == MORE:
                work.add(int(reply.content))
            else:
                sums.append(torch.tensor(json.loads(reply.content), dtype=torch.float64))
        return metrics_of(reduce(torch.add, sums))


def sums_of(
    args: argparse.Namespace,
    network: AlphaZeroNet,
    window: Window,
    ids: npt.NDArray[np.int64],
    more: Callable[[int], None],
) -> torch.Tensor:
    """Sums over these positions; more: called with the number of each batch's."""
    from alphazero.measure.known_games import sum_over_positions

    encoder = WindowEncoder(window, network.spec, num_threads=args.num_workers)

    def batches() -> Iterator[Batch]:
        for batch in batches_of(encoder, ids, args.batch_size):
            yield batch
            more(len(batch.sample_id))

    return sum_over_positions(network, batches(), next(network.parameters()).device, args.precision)


# What workers send: positions done since the last time, the result of a task.
MORE, RESULT = "more", "result"


@dataclass(frozen=True)
class PositionShare:
    """The samples that one process evaluates, by the network of this number."""

    network: int
    ids: tuple[int, ...]


def work(args: argparse.Namespace, worker: Worker) -> None:
    """A worker of this command: its share of the positions."""
    from alphazero.network.weights.open_network import open_network

    device, window = device_of(args.device), open_window(args.data, args.cache_dir)
    for task in worker.tasks():
        share = records.from_json(PositionShare, task)
        network, _ = open_network(args.weights[share.network], device)
        ids = np.array(share.ids, np.int64)
        sums = sums_of(args, network, window, ids, lambda count: worker.reply(MORE, str(count)))
        worker.reply(RESULT, json.dumps(sums.tolist()))


def to_table(args: argparse.Namespace, positions: PositionSet, rows: Sequence[PositionMetrics]) -> str:
    """The number of positions and how they were chosen, then a table for people."""
    chosen = "evenly spread" if args.seed is None else f"seed {args.seed}"
    head = f"{len(positions.ids)} of {positions.in_data} positions ({chosen})"
    if args.not_in:
        share = positions.eligible / positions.in_data
        head += f"; {positions.eligible} ({share:.1%}) do not occur in {', '.join(map(str, args.not_in))}"
    lines: list[Sequence[str]] = [("weights", "top-1", "top-5", "policy loss", "value loss", "value mse")]
    for name, row in zip(args.weights, rows, strict=True):
        shares = (f"{share:.2%}" for share in (row.policy_top1, row.policy_top5))
        losses = (f"{loss:.4f}" for loss in (row.policy_loss, row.value_loss, row.value_mse))
        lines.append((name, *shares, *losses))
    return "\n".join(
        [
            head,
            "",
            *table(lines, "lrrrrr"),
            "",
            "top-1, top-5: share of positions whose known move is the network's first, among its first five;",
            "losses: cross-entropy in nats; value mse: mean squared error of win minus loss against the",
            "result, both from -1 to 1 (lc0 prints a quarter of it)",
        ]
    )


def to_json(args: argparse.Namespace, positions: PositionSet, rows: Sequence[PositionMetrics]) -> str:
    """JSON for programs."""
    return json.dumps(
        {
            "data": [str(path) for path in args.data],
            "not_in": [str(path) for path in args.not_in],
            "positions_in_data": positions.in_data,
            "positions_eligible": positions.eligible,
            "seed": args.seed,
            "precision": args.precision,
            "networks": [
                {"weights": name, **asdict(row)} for name, row in zip(args.weights, rows, strict=True)
            ],
        },
        indent=2,
    )
