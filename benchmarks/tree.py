"""Speed of the engine's search: nodes per second of one tree.

The network is made up unless --blocks gives it a tower. Its logits and values are drawn once, the same ones
for every batch. They come back at once, or from a device that takes its batches in order, one at a time, each
for --device-ms, while the processor is free.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
import torch

from alphazero.games.core_types import BatchEvaluation, Indices, Positions
from alphazero.games.registry import get_spec, make_line, read_game
from alphazero.network.inference.purpose import EvaluatorLadder, SideBySide, evaluator_for_tree
from alphazero.network.model.precision import EVALUATION_PRECISIONS, choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads, whole
from alphazero.settings.sections import NetworkConfig

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
    parser.add_argument("--blocks", type=whole(0, 256), default=0, help="of a tower; 0: made up")
    parser.add_argument("--filters", type=whole(1, 4096), default=256, help="channels of the tower")
    parser.add_argument("--se-ratio", type=whole(0, 4096), default=0, help="squeeze-excitation; 0 is none")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="of the tower")
    parser.add_argument("--precision", choices=EVALUATION_PRECISIONS, default="bf16", help="of the tower")
    args = parser.parse_args(arguments)
    args.game = read_game("--game", args.game)
    tower = evaluator_of(args) if args.blocks else None
    speeds = [speed(args, tower) for _ in range(args.turns)]
    return {**vars(args), "nodes_per_s": statistics.median(speeds), "slowest": min(speeds)}


def evaluator_of(args: argparse.Namespace) -> EvaluatorLadder | SideBySide:
    """The engine's, of a tower with random weights."""
    config = NetworkConfig(game=args.game, blocks=args.blocks, filters=args.filters, se_ratio=args.se_ratio)
    network = AlphaZeroNet(config, get_spec(args.game), torch.Generator().manual_seed(0)).eval()
    device = choose_device(args.device, 0, os.environ)
    return evaluator_for_tree(network, device, args.precision, batch_size=args.minibatch_size)


def speed(args: argparse.Namespace, tower: EvaluatorLadder | SideBySide | None) -> float:
    """Nodes per second of a new tree."""
    settings = TreeSettings(
        minibatch_size=args.minibatch_size,
        in_flight=args.batches_in_flight,
        search_threads=args.search_threads,
    )
    evaluator = tower or MadeUp(args.game, args.minibatch_size, MILLISECOND * args.device_ms)
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
