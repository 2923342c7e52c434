"""Speed of the engine's search: nodes per second of one tree, with a made-up network.

`alphazero bench tree [--device-ms M]`. Logits and values are drawn once, the same ones for every batch. They
come back at once, or from a device that takes its batches in order, one at a time, each for so many
milliseconds, while the processor is free.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from alphazero.games.core_types import BatchEvaluation, Indices, Positions
from alphazero.games.registry import get_spec, make_line, read_game
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads

MIDDLE_GAME = "r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2QK2R w KQ - 0 9"
MILLISECOND = 1e-3


def run(arguments: list[str]) -> dict[str, object]:
    """Nodes per second, the median of some searches that begin with an empty tree."""
    parser = Parser(prog="alphazero bench tree", description=__doc__)
    parser.add_argument("--game", default="chess", metavar="GAME", help="any, as --game of training takes it")
    parser.add_argument("--nodes", type=count, default=200_000, help="of a search")
    parser.add_argument("--minibatch-size", type=batch_size, default=256)
    parser.add_argument("--batches-in-flight", type=count, default=2)
    parser.add_argument("--search-threads", type=threads, default=1)
    parser.add_argument("--device-ms", type=seconds(), default=0.0, help="of a batch; 0: it answers at once")
    parser.add_argument("--turns", type=count, default=3)
    args = parser.parse_args(arguments)
    args.game = read_game("--game", args.game)
    speeds = [speed(args) for _ in range(args.turns)]
    return {**vars(args), "nodes_per_s": statistics.median(speeds), "slowest": min(speeds)}


def speed(args: argparse.Namespace) -> float:
    """Nodes per second of a new tree."""
    settings = TreeSettings(
        minibatch_size=args.minibatch_size,
        in_flight=args.batches_in_flight,
        search_threads=args.search_threads,
    )
    evaluator = MadeUp(args.game, args.minibatch_size, MILLISECOND * args.device_ms)
    tree = TreeSearch(args.game, evaluator, settings)
    tree.set_line(make_line(args.game, *([MIDDLE_GAME] if args.game == "chess" else [])))
    found = tree.search(SearchLimits(nodes=args.nodes))
    tree.close()
    tree.join()
    return found.nodes / found.seconds


class MadeUp:
    """An evaluator: each row of a batch has its evaluation, whatever the position."""

    def __init__(self, game: str, batch_size: int, batch_s: float) -> None:
        self.batch_size = batch_size
        self._batch_s = batch_s
        self._device_free_at = 0.0
        rng = np.random.default_rng(0)
        self._logits = rng.normal(0, 2, batch_size * get_spec(game).max_legal_moves).astype(np.float32)
        self._wdl = rng.dirichlet((8, 8, 8), batch_size).astype(np.float32)

    def submit(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> OnDevice:
        """Begin to evaluate a batch, after those before it."""
        self._device_free_at = max(time.perf_counter(), self._device_free_at) + self._batch_s
        evaluation = BatchEvaluation(self._logits[: len(legal_index)], self._wdl[: len(packed)])
        return OnDevice(evaluation, self._device_free_at if self._batch_s else 0.0)


class OnDevice:
    """A batch on its way."""

    def __init__(self, evaluation: BatchEvaluation, done_at: float) -> None:
        self._evaluation = evaluation
        self._done_at = done_at

    def result(self) -> BatchEvaluation:
        """Wait for the device."""
        left = self._done_at - time.perf_counter()
        if left > 0:
            time.sleep(left)
        return self._evaluation
