"""What a run measures of its network every so often: positions held out, and exact truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from alphazero.data.sampling.loader import WindowEncoder, spread_sample_ids
from alphazero.data.sampling.window import Window
from alphazero.evaluation.players import Player
from alphazero.evaluation.position_eval import metrics_of, sum_over_positions
from alphazero.evaluation.solved import OWN_TABLE, SolvedSet, move_errors, read_table
from alphazero.games.core_types import Line
from alphazero.games.registry import get_game
from alphazero.games.spec import GameSpec
from alphazero.network.model.loss import SUM_NAMES
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import expand_planes
from alphazero.network.precision import autocast
from alphazero.pipeline.sources.loading import loader_threads
from alphazero.training.exchange import Exchange
from alphazero.training.loop.job import Job
from alphazero.training.loop.trainer import Validate

BATCH_SIZE = 512


def make_validation(job: Job, held_out: Window | None, spec: GameSpec, exchange: Exchange) -> Validate:
    """A function that gives a network's figures, the same on all ranks. Collective."""
    on_held_out = _held_out_validation(job, held_out, spec, exchange) if held_out is not None else None
    solved = read_table() if get_game(spec.name).has_solved_positions and OWN_TABLE.is_file() else []

    def validate(network: AlphaZeroNet) -> Mapping[str, float]:
        figures = dict(on_held_out(network)) if on_held_out else {}
        return {**figures, **_solved_figures(job, network, solved)}

    return validate


def _held_out_validation(job: Job, held_out: Window, spec: GameSpec, exchange: Exchange) -> Validate | None:
    """Losses and accuracies on a fixed set of positions, shared over the ranks; None without any."""
    config, runtime = job.config, job.runtime
    ids = spread_sample_ids(held_out, config.training.validation_positions)
    if not len(ids):
        return None
    encoder = WindowEncoder(
        held_out, spec, num_threads=loader_threads(config.data, runtime), fill=config.data.history_fill
    )
    starts = range(0, len(ids), BATCH_SIZE)
    chunks = [ids[start : start + BATCH_SIZE] for start in starts]
    passes = -(-len(chunks) // exchange.world_size)

    def validate(network: AlphaZeroNet) -> Mapping[str, float]:
        total = torch.zeros(len(SUM_NAMES), dtype=torch.float64)
        # ZeRO 3 gathers weights in every forward pass: all ranks make as many, surplus ones uncounted.
        for turn in range(passes):
            index = turn * exchange.world_size + exchange.rank
            chunk = encoder.encode(chunks[index if index < len(chunks) else 0])
            sums = sum_over_positions(network, [chunk], runtime.device, config.training.precision)
            if index < len(chunks):
                total += sums
        return dataclasses.asdict(metrics_of(exchange.sum(total)))

    return validate


def _solved_figures(job: Job, network: AlphaZeroNet, solved: Sequence[SolvedSet]) -> Mapping[str, float]:
    """Shares of wrong moves of the network alone, each rank for itself: the positions are few."""
    if not solved:
        return {}
    return move_errors(solved, _plain_player(network, job.runtime.device, job.config.training.precision))


def _plain_player(network: AlphaZeroNet, device: torch.device, precision: str) -> Player:
    """The network's likeliest move, by the module as it is: at ZeRO 3 nothing can be folded or copied."""

    @torch.inference_mode()
    def choose(lines: Sequence[Line]) -> list[int]:
        packed_BN = torch.as_tensor(np.stack([line.packed() for line in lines])).to(device)
        planes_BCHW = expand_planes(packed_BN, network.spec, torch.channels_last)
        with autocast(device, precision):
            policy_BA = network(planes_BCHW).policy_BA.float().cpu().numpy()
        moves = []
        for line, policy_A in zip(lines, policy_BA, strict=True):
            legal = line.legal_indices()
            moves.append(line.index_to_move(int(legal[policy_A[legal].argmax()])))
        return moves

    return choose
