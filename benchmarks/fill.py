"""How full the batches of self-play are on 1 to N ranks, and how old the weights of its games: a simulation.

The core plays a rank's lanes with a preset's settings; a made-up evaluator takes the network's place, and a
batch, full or not, takes it a fixed time. Positions of finished games end a generation, as in training. One
rank's share of lanes stands for all: they differ by one lane at most. Priors and values are noise, in chess
around the material, and sides far behind resign, so that chess games last about as long as real ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from alphazero.data.store.columns import TRAINED_ON
from alphazero.games.core_types import BatchEvaluation
from alphazero.games.registry import get_spec
from alphazero.network.inference.purpose import SMALLEST_EVEN, batch_sizes
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, lanes_of, new_cache, new_lane, play
from alphazero.settings.flags import Parser, count, number, whole
from alphazero.settings.load import Config, load_config
from alphazero.settings.self_play import settled
from benchmarks.measuring.page import configure, document_of, markdown_table, percent, shown

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions, W words of planes,
# P kinds of pieces, Q squares.

NOISE = 1 << 16
LOGIT_SPREAD, VALUE_SPREAD, VALUE_PER_PAWN, MOST_DRAWS = 1.5, 0.25, 0.2, 0.3
PIECES = np.array((1, 3, 3, 5, 9, 0, -1, -3, -3, -5, -9, 0), np.float32)  # planes 0 to 11 of lc0's 112


class MadeUpEvaluation(BatchEvaluation):
    """See alphazero.search.batched.Pending."""

    def result(self) -> MadeUpEvaluation:
        """It is there at once; the time that a batch takes is counted afterwards."""
        return self


@dataclass
class MadeUpNetwork:
    """Evaluations by the packed position alone. sizes: how many batches had so many positions."""

    game: str
    batch_size: int
    batches_ahead: int
    sizes: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self._normal = rng.standard_normal(NOISE).astype(np.float32)
        self._num_words = get_spec(self.game).num_bit_planes
        self._factors_W = rng.integers(0, 1 << 63, self._num_words, dtype=np.uint64) * 2 + 1

    def submit(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> MadeUpEvaluation:
        """See alphazero.search.batched.Evaluator."""
        self.sizes[len(packed)] += 1
        words_BW = packed[:, : 8 * self._num_words].view(np.uint64)
        hash_B = (words_BW * self._factors_W).sum(axis=1)
        hash_B ^= hash_B >> np.uint64(29)
        hash_B *= np.uint64(0x9E3779B97F4A7C15)
        hash_B ^= hash_B >> np.uint64(32)
        value_B = VALUE_SPREAD * self._normal[hash_B % np.uint64(NOISE)]
        if self.game == "chess":
            bits_BPQ = np.unpackbits(packed[:, : 8 * len(PIECES)], axis=1).reshape(-1, len(PIECES), 64)
            value_B += VALUE_PER_PAWN * (bits_BPQ.sum(axis=2, dtype=np.float32) @ PIECES)
        value_B = np.tanh(value_B)
        draw_B = MOST_DRAWS * (1 - np.abs(value_B))
        decided_B = 1 - draw_B
        wdl = np.stack([decided_B * (1 + value_B) / 2, draw_B, decided_B * (1 - value_B) / 2], axis=1)
        mixed_K = np.repeat(hash_B.astype(np.uint32), np.diff(legal_offset)) * np.uint32(2654435761)
        mixed_K ^= legal_index.astype(np.uint32) * np.uint32(40503)
        logits_K = LOGIT_SPREAD * self._normal[mixed_K % np.uint32(NOISE)]
        return MadeUpEvaluation(logits_K.astype(np.float32), wdl.astype(np.float32))


@dataclass
class Ages:
    """The generations in which the games of some lanes began, and how many ago those did that ended."""

    begun: dict[tuple[int, int], int] = field(default_factory=dict)

    def see(self, played: Played, generation: int) -> list[int]:
        """Ages of the games that ended in a round of this generation: 0 for those that began in it."""
        ages = [generation - self.begun.pop((game.lane, game.number), generation) for game in played.finished]
        for game in played.under_way:
            self.begun.setdefault((game.lane, game.number), generation)
        return ages


def run(arguments: list[str]) -> dict[str, object]:
    """The document, measured or read."""
    parser = Parser(prog="alphazero bench fill", description=__doc__)
    parser.add_argument("--config", default="chess_20x256")
    parser.add_argument("--ranks", type=count, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--lanes", type=whole(), default=0, help="over all ranks; 0 chooses as training does")
    parser.add_argument("--moves", type=whole(), default=0, help="rounds of moves, not of simulations")
    parser.add_argument("--simulations-per-round", type=whole(), default=0, help="0 chooses as training does")
    parser.add_argument("--generations", type=count, default=4, help="those that count")
    parser.add_argument("--warm-up", type=whole(), default=2, help="generations before them")
    parser.add_argument("--divide", type=count, default=1, help="searches and budgets by this: faster")
    parser.add_argument("--batches-ahead", type=whole(1, 8), default=2, help="2 as on a GPU, 1 as on the CPU")
    parser.add_argument("--batch-ms", type=number(0.0, 1e6), default=2.3, help="of a full batch")
    parser.add_argument("--launch-ms", type=number(0.0, 1e6), default=0.3, help="of a batch of one position")
    parser.add_argument("--resign", type=number(0.0, 1.0), default=0.99, help="where the preset has none")
    configure(parser)
    args = parser.parse_args(arguments)
    return document_of("fill", args, documents(args), text)


def documents(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The document after each number of ranks."""
    rows: list[dict[str, Any]] = []
    job = {name: getattr(args, name) for name in ("config", "divide", "batch_ms", "launch_ms", "generations")}
    for ranks in args.ranks:
        rows.append(one_row(args, ranks))
        yield {"job": job, "rows": rows}


def one_row(args: argparse.Namespace, ranks: int) -> dict[str, Any]:
    """Generations of one of `ranks` ranks."""
    config = settled_config(args, ranks)
    own = config.self_play
    search = dataclasses.replace(config.search, simulations=divided(config.search.simulations, args.divide))
    quick = dataclasses.replace(own, fast_simulations=divided(own.fast_simulations, args.divide))
    settings = self_play_settings(search, quick, config.training.seed)
    network = MadeUpNetwork(config.network.game, own.evaluation_batch, args.batches_ahead)
    budget = args.moves or divided(own.simulations_per_round, args.divide)
    needed = own.steps_per_generation * config.training.batch_size / own.reuse / ranks
    lanes = [new_lane(lane) for lane in lanes_of(0, ranks, own.lanes)]
    cache, ages = new_cache(own.evaluation_cache), Ages()
    go_on = partial(play, config.network.game, settings, in_simulations=not args.moves, cache=cache)
    positions, found, sums = 0, list[int](), Counter[str]()
    for generation in range(args.warm_up + args.generations):
        if generation == args.warm_up:  # the games no longer stand at one ply
            for counts in (network.sizes, sums, found):
                counts.clear()
        if cache is not None:
            cache.clear()
        while True:
            played = go_on(lanes, budget, network)
            lanes = played.under_way
            found += ages.see(played, generation)
            positions += sum(np.count_nonzero(game.flags & TRAINED_ON) for game in played.finished)
            sums.update(evaluations=played.evaluations, rounds=1, moves=played.moves)
            if positions >= needed * (generation + 1):
                break
    return {
        "ranks": ranks,
        "lanes": own.lanes,
        "round": f"{args.moves} moves" if args.moves else f"{own.simulations_per_round:,} simulations",
        "rounds": sums["rounds"] / args.generations,
        "moves_per_lane": sums["moves"] / args.generations / len(lanes),
        "games": len(found),
        "mean_age": statistics.mean(found) if found else None,
        "largest_age": max(found, default=None),
        **times(network.sizes, own.evaluation_batch, sums["evaluations"], args.batch_ms, args.launch_ms),
    }


def settled_config(args: argparse.Namespace, ranks: int) -> Config:
    """The preset as a run on so many ranks begins with it, with what the flags name."""
    flags = {"lanes": args.lanes, "simulations_per_round": args.simulations_per_round}
    config = load_config(args.config, flags)
    own = settled(config.self_play, config.search, config.training.batch_size, ranks)
    own = dataclasses.replace(own, resign_threshold=own.resign_threshold or args.resign)
    return dataclasses.replace(config, self_play=own)


def divided(simulations: int, by: int) -> int:
    """At least one."""
    return max(1, simulations // by)


def times(
    sizes: Mapping[int, int], batch_size: int, evaluations: int, batch_ms: float, launch_ms: float
) -> dict[str, float]:
    """The fill of batches, evaluations/s of the device, and what smaller batches for the tails would add.

    A batch of n positions takes launch_ms and a share of the rest that goes with n.
    """
    ladder = [size for size in batch_sizes(batch_size) if size >= SMALLEST_EVEN] or [batch_size]
    num_batches = sum(sizes.values())
    padded_ms = num_batches * batch_ms
    fitting_ms = 0.0
    for size, times_seen in sizes.items():
        room = next(each for each in ladder if each >= size)
        fitting_ms += times_seen * (launch_ms + (batch_ms - launch_ms) * room / batch_size)
    return {
        "batch_fill": evaluations / (num_batches * batch_size),
        "evaluations_per_s": 1000 * evaluations / padded_ms,
        "gain_of_smaller_batches": padded_ms / fitting_ms - 1,
    }


def text(document: dict[str, Any]) -> str:
    """The table in Markdown."""
    header = ["ranks", "lanes", "a round", "rounds a generation", "batches full", "evaluations/s a rank"]
    header += ["smaller batches add", "games' oldest weights, generations: mean", "largest"]
    cells = [
        [
            str(row["ranks"]),
            f"{row['lanes']:,}",
            row["round"],
            f"{row['rounds']:.1f}",
            percent(row["batch_fill"]),
            shown(row["evaluations_per_s"]),
            percent(row["gain_of_smaller_batches"]),
            "-" if row["mean_age"] is None else f"{row['mean_age']:.2f}",
            "-" if row["largest_age"] is None else str(row["largest_age"]),
        ]
        for row in document["rows"]
    ]
    job = document["job"]
    divided_by = f", searches and budgets divided by {job['divide']}" if job["divide"] > 1 else ""
    place = f"{job['config']}{divided_by}; a batch takes {job['batch_ms']:g} ms"
    return f"{place}\n\n{markdown_table(header, cells)}"
