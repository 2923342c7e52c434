"""What a run measures of its network every so often: positions held out, and exact truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from alphazero.data.sampling.loader import WindowEncoder, spread_sample_ids
from alphazero.data.sampling.window import Window
from alphazero.evaluation.position_eval import metrics_of, sum_over_positions
from alphazero.evaluation.predictions import NUM_TALLIES, Predictions, bins_of, phases_in, tallies_of
from alphazero.evaluation.solved import OWN_TABLE, SolvedPosition, SolvedSet, move_errors, read_table
from alphazero.evaluation.solved_positions import SolvedPlayer, batch_of, exact_positions, successors
from alphazero.games.registry import get_game, get_spec
from alphazero.games.spec import GameSpec
from alphazero.network.model.loss import SUM_NAMES
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.pipeline.closer_look import (
    BY_POLICY,
    BY_VALUE,
    NUM_WORST,
    Worst,
    described,
    games_to_show,
    line_at,
    samples_of,
    seen_game,
)
from alphazero.pipeline.sources.loading import loader_threads
from alphazero.run.validation_record import (
    SeenGame,
    SeenGames,
    ValidationRecord,
    WrongPosition,
    append_record,
    write_games,
)
from alphazero.training.exchange import Exchange
from alphazero.training.loop.job import Job
from alphazero.training.loop.trainer import Validate

BATCH_SIZE = 512
CONNECT4 = "connect4"
OF_RESULTS, OF_EXACT_TRUTH = "results", "exact"


def make_validation(job: Job, held_out: Window | None, spec: GameSpec, exchange: Exchange) -> Validate:
    """A function that gives a network's figures, the same on all ranks, and records the rest. Collective."""
    on_held_out = HeldOut.of(job, held_out, spec, exchange) if held_out is not None else None
    solved = read_table() if get_game(spec.name).has_solved_positions and OWN_TABLE.is_file() else []

    def validate(network: AlphaZeroNet, step: int) -> Mapping[str, float]:
        figures = dict(on_held_out.measure(network, step)) if on_held_out else {}
        return {**figures, **_solved_figures(job, network, step, solved, is_recorded=not on_held_out)}

    return validate


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A fixed set of positions with known results, shared over the ranks, and a few whole games."""

    job: Job
    window: Window
    spec: GameSpec
    exchange: Exchange
    encoder: WindowEncoder
    ids: npt.NDArray[np.int64]
    games: tuple[int, ...]

    @classmethod
    def of(cls, job: Job, window: Window, spec: GameSpec, exchange: Exchange) -> HeldOut | None:
        """None without any positions."""
        config = job.config
        ids = spread_sample_ids(window, config.training.validation_positions)
        if not len(ids):
            return None
        threads = loader_threads(config.data, job.runtime)
        encoder = WindowEncoder(window, spec, num_threads=threads, fill=config.data.history_fill)
        return cls(job, window, spec, exchange, encoder, ids, tuple(games_to_show(window)))

    def measure(self, network: AlphaZeroNet, step: int) -> Mapping[str, float]:
        """Losses and accuracies; rank 0 records what else was seen. Collective."""
        chunks = [self.ids[start : start + BATCH_SIZE] for start in range(0, len(self.ids), BATCH_SIZE)]
        passes = -(-len(chunks) // self.exchange.world_size)
        total = torch.zeros(len(SUM_NAMES), dtype=torch.float64)
        tallies = torch.zeros(NUM_TALLIES, dtype=torch.float64)
        worst = Worst()
        # ZeRO 3 gathers weights in every forward pass: all ranks make as many, surplus ones uncounted.
        for turn in range(passes):
            index = turn * self.exchange.world_size + self.exchange.rank
            is_counted = index < len(chunks)
            ids = chunks[index if is_counted else 0]
            sums, (seen,) = self._look(network, ids)
            if is_counted:
                total += sums
                tallies += tallies_of(seen, self.spec)
                worst.look(seen, ids)
        # Two messages: in one, ranks might add up the figures in another order than runs of before did.
        total, tallies = self.exchange.sum(total), self.exchange.sum(tallies)
        wrong = self._worst_of_all(worst)
        games = self._games_seen(network)
        if self.job.runtime.is_main:
            phases = phases_in(tallies, self.spec)
            record = ValidationRecord(step, OF_RESULTS, len(self.ids), *bins_of(tallies), phases, wrong)
            append_record(self.job.run, record)
            write_games(self.job.run, SeenGames(step, self.spec.name, games))
        return dataclasses.asdict(metrics_of(total))

    def _look(
        self, network: AlphaZeroNet, ids: npt.NDArray[np.int64]
    ) -> tuple[torch.Tensor, list[Predictions]]:
        seen: list[Predictions] = []
        device, precision = self.job.runtime.device, self.job.config.training.precision
        sums = sum_over_positions(network, [self.encoder.encode(ids)], device, precision, seen.append)
        return sums, seen

    def _worst_of_all(self, worst: Worst) -> tuple[WrongPosition, ...]:
        """Those of all ranks, the worst of each kind first. Collective."""
        own: list[Any] = [
            [one.error, dataclasses.asdict(described(one, by, line_at(self.window, one.place)))]
            for by, found in worst.found.items()
            for one in found
        ]
        every = sorted((one for rank in self.exchange.gather(own) for one in rank), key=lambda one: -one[0])
        chosen = []
        for by in worst.found:
            of_kind = [body for _, body in every if body["by"] == by]
            for body in of_kind[:NUM_WORST]:
                policy = tuple((move, share) for move, share in body["policy"])
                chosen.append(WrongPosition(**{**body, "policy": policy}))
        return tuple(chosen)

    def _games_seen(self, network: AlphaZeroNet) -> tuple[SeenGame, ...]:
        """The games ply by ply: every rank looks at them, as forward passes of ZeRO 3 need all ranks."""
        return tuple(
            seen_game(self.window, row, self._look(network, samples_of(self.window, row))[1])
            for row in self.games
        )


def _solved_figures(
    job: Job, network: AlphaZeroNet, step: int, solved: Sequence[SolvedSet], *, is_recorded: bool
) -> Mapping[str, float]:
    """Shares of wrong moves of the network alone, each rank for itself: the positions are few."""
    if not solved:
        return {}
    player = SolvedPlayer(network, job.runtime.device, job.config.training.precision)
    figures = move_errors(solved, player)
    if is_recorded:
        record = _exact_record(player, step, [one for entry in solved for one in entry.positions])
        if job.runtime.is_main:
            append_record(job.run, record)
    return figures


def _exact_record(player: SolvedPlayer, step: int, solved: Sequence[SolvedPosition]) -> ValidationRecord:
    """Policies on the solved positions, which `player` has just seen; values on positions after them."""
    spec = get_spec(CONNECT4)
    asked, after = exact_positions(solved), successors(solved)
    by_policy = player.against(batch_of(asked))
    player.look([position.line for position in after])
    by_value = player.against(batch_of(after))
    tallies = tallies_of(by_value, spec)
    value_mse = {phase.name: phase.value_mse for phase in phases_in(tallies, spec)}
    phases = tuple(
        dataclasses.replace(phase, value_mse=value_mse[phase.name])
        for phase in phases_in(tallies_of(by_policy, spec), spec)
        if phase.name in value_mse
    )
    wrong: list[WrongPosition] = []
    for by, seen, positions in ((BY_POLICY, by_policy, asked), (BY_VALUE, by_value, after)):
        worst = Worst()
        worst.look(seen, range(len(positions)))
        wrong += [described(one, by, positions[one.place].line) for one in worst.found[by]]
    return ValidationRecord(step, OF_EXACT_TRUTH, len(after), *bins_of(tallies), phases, tuple(wrong))
