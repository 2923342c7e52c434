"""Self-play against the bare network: evaluations per second of both, at the same batch and threads.

`alphazero bench selfplay [--game G] [--blocks N --filters N --se-ratio N] [--batch N] [--threads N]
[--simulations N] [--seconds S] [--rounds N] [--device auto|cuda|cpu] [--precision P]`. A network with random
weights plays whole games from their beginnings; only its evaluations are counted, not exact ends of games.
Bare: the same evaluator on full batches of positions of such games, over and over. The two take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np
import numpy.typing as npt
import torch

from alphazero.games.registry import GameSpec, game_names, get_spec
from alphazero.network.inference.evaluator import Evaluation, NetworkEvaluator, Pending
from alphazero.network.model.precision import EVALUATION_PRECISIONS, choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.matches.openings import random_openings
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads, whole
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from benchmarks.measuring.device_load import DeviceLoad

WHOLE_GAMES_LANES_PER_SLOT = 2


def run(arguments: list[str]) -> dict[str, object]:
    """Medians over the rounds."""
    parser = Parser(prog="alphazero bench selfplay")
    parser.add_argument("--game", choices=game_names(), default="chess")
    parser.add_argument("--blocks", type=whole(1, 256), default=6)
    parser.add_argument("--filters", type=whole(1, 4096), default=64)
    parser.add_argument("--se-ratio", type=whole(0, 4096), default=8)
    parser.add_argument("--batch", type=batch_size, default=64)
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--simulations", type=count, default=100)
    parser.add_argument("--seconds", type=seconds(), default=10.0)
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--precision", choices=EVALUATION_PRECISIONS, default="bf16")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    spec = get_spec(args.game)
    config = NetworkConfig(game=args.game, blocks=args.blocks, filters=args.filters, se_ratio=args.se_ratio)
    network = AlphaZeroNet(config, spec, torch.Generator().manual_seed(0)).eval()
    device = choose_device(args.device, 0, os.environ)
    evaluator = NetworkEvaluator(network, device, args.precision, args.batch)
    batch = positions(spec, args.batch)
    rounds = [one_round(evaluator, batch, args) for _ in range(args.rounds)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def one_round(evaluator: NetworkEvaluator, batch: Batch, args: argparse.Namespace) -> dict[str, float]:
    """Bare network, steady self-play, a whole run and the bare network again: a machine changes its speed."""
    before = bare_speed(evaluator, batch, args.seconds)
    with DeviceLoad(evaluator.device) as load:
        steady = steady_speed(evaluator, args)
    idle_share = load.figures().get("device_idle_share")  # NVML may not tell it
    whole = whole_run(evaluator, args)
    bare = (before + bare_speed(evaluator, batch, args.seconds)) / 2
    return {
        "bare_evaluations_per_s": bare,
        "self_play_evaluations_per_s": steady,
        "share_steady": steady / bare,
        "share_whole_run": whole["evaluations_per_s"] / bare,
        "waits_for_network_share": whole["waits"],
        "games_per_hour": whole["games_per_hour"],
        **({"device_idle_share_steady": idle_share} if isinstance(idle_share, float) else {}),
    }


Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]


def positions(spec: GameSpec, count: int) -> Batch:
    """A full batch from random games."""
    game = spec.name
    openings = [each for plies in (2, 6, 10) for each in random_openings(game, count, plies, seed=plies)]
    lines = [opening.line(game) for opening in openings[: count * 3 : 3]]
    legal = [line.legal_indices() for line in lines]
    offset = np.concatenate([[0], np.cumsum([len(indices) for indices in legal])]).astype(np.int32)
    return np.stack([line.packed() for line in lines]), np.concatenate(legal).astype(np.int32), offset


def bare_speed(evaluator: NetworkEvaluator, batch: Batch, seconds: float) -> float:
    """Evaluations a second with two batches in flight, as self-play has them."""
    waiting = [evaluator.submit(*batch) for _ in range(2)]
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        waiting.pop(0).result()
        waiting.append(evaluator.submit(*batch))
        count += len(batch[0])
    elapsed = time.perf_counter() - begin
    for pending in waiting:
        pending.result()
    return count / elapsed


class Watched:
    """An evaluator that adds up the time in which the caller waits for it."""

    def __init__(self, evaluator: NetworkEvaluator) -> None:
        self._evaluator = evaluator
        self.batch_size = evaluator.batch_size
        self.batches_ahead = evaluator.batches_ahead
        self.waited_s = 0.0

    def submit(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> WatchedPending:
        """As NetworkEvaluator's."""
        begin = time.perf_counter()
        pending = self._evaluator.submit(packed, legal_index, legal_offset)
        self.waited_s += time.perf_counter() - begin
        return WatchedPending(self, pending)


class WatchedPending:
    """Its evaluations."""

    def __init__(self, owner: Watched, pending: Pending) -> None:
        self._owner = owner
        self._pending = pending

    def result(self) -> Evaluation:
        """As Pending's."""
        begin = time.perf_counter()
        evaluation = self._pending.result()
        self._owner.waited_s += time.perf_counter() - begin
        return evaluation


def steady_speed(evaluator: NetworkEvaluator, args: argparse.Namespace) -> float:
    """Evaluations a second amid the games, every slot with a game."""
    settings = self_play_settings(SearchConfig(simulations=args.simulations), SelfPlayConfig(), seed=1)
    begin = time.perf_counter()
    played = play(
        args.game,
        settings,
        [new_lane(number) for number in range(2 * args.batch)],
        1 << 30,
        evaluator,
        num_threads=args.threads,
        on_progress=lambda moves, games: time.perf_counter() - begin < args.seconds,
    )
    return played.evaluations / (time.perf_counter() - begin)


def whole_run(evaluator: NetworkEvaluator, args: argparse.Namespace) -> dict[str, float]:
    """From the first move to the last of a round of moves in every lane, the emptying batches included."""
    settings = self_play_settings(SearchConfig(simulations=args.simulations), SelfPlayConfig(), seed=2)
    lanes = [new_lane(number) for number in range(2 * args.batch * WHOLE_GAMES_LANES_PER_SLOT)]
    observed = Watched(evaluator)
    begin = time.perf_counter()
    played = play(args.game, settings, lanes, 8, observed, num_threads=args.threads)
    seconds = time.perf_counter() - begin
    plies = [len(game.moves) for game in played.finished] or [settings.max_plies]
    return {
        "evaluations_per_s": played.evaluations / seconds,
        "waits": observed.waited_s / seconds,
        "games_per_hour": played.moves / statistics.mean(plies) / seconds * 3600,
    }
