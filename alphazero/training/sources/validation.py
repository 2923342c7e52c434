"""What a run measures of its network every so often: positions held out, and exact truth.

For the report it keeps the worst of these positions, and whole games as the network sees them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from alphazero.base.records import from_table
from alphazero.data.sampling.loader import WindowEncoder, spread_sample_ids
from alphazero.data.sampling.window import Window
from alphazero.games.core_types import Line
from alphazero.games.notation import RESULTS
from alphazero.games.registry import GameSpec, get_game, make_line
from alphazero.measure.known_games import (
    NUM_TALLIES,
    Predictions,
    bins_of,
    metrics_of,
    phases_in,
    sum_over_positions,
    tallies_of,
)
from alphazero.measure.truth.connect4 import OWN_TABLE, read_sets
from alphazero.measure.truth.outside import NUM_POSITIONS, OutsideTruth, truth_of_run
from alphazero.measure.truth.positions import SolvedPlayer, SolvedSet, batch_of, move_errors, successors
from alphazero.network.model.loss import SUM_NAMES
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.run.rank import Phase
from alphazero.run.validation_record import (
    SeenGame,
    SeenGames,
    SeenPly,
    ValidationRecord,
    WrongPosition,
    append_record,
    write_games,
)
from alphazero.training.loop.job import Job, RankServices
from alphazero.training.loop.trainer import Validate
from alphazero.training.ranks.exchange import Exchange, Json
from alphazero.training.sources.given_games import loader_threads

NUM_WORST = 6  # of each kind
NUM_MOVES = 3  # of a wrong position
NUM_GAMES = 2
MOST_PLIES = 128  # of a game that is shown; games of a usual length are preferred
FEWEST_PLIES = 20
NUM_GAME_MOVES = 5  # shown of a ply
BY_POLICY, BY_VALUE = "policy", "value"


Ranked: TypeAlias = tuple[float, str, WrongPosition]  # the error, the game, the position


@dataclass
class Worst:
    """The NUM_WORST positions of different games with the largest errors of policy and of value."""

    ranked: dict[str, list[Ranked]] = field(default_factory=lambda: {BY_POLICY: [], BY_VALUE: []})

    def look(self, seen: Predictions, line_of: Callable[[int], tuple[str, Line]]) -> None:
        """Positions of a batch, by their numbers in it. line_of: the game of one, and the line up to it."""
        errors = {BY_POLICY: seen.policy_loss, BY_VALUE: np.abs(seen.value - seen.target_value)}
        for by, error_B in errors.items():
            order = [at for at in np.argsort(-error_B, kind="stable").tolist() if np.isfinite(error_B[at])]
            new = (_ranked(seen, at, by, float(error_B[at]), *line_of(at)) for at in order)
            both = [*self.ranked[by], *of_different_games(new)]
            self.ranked[by] = of_different_games(sorted(both, key=_error))


def of_different_games(ranked: Iterable[Ranked]) -> list[Ranked]:
    """The first NUM_WORST, one of a game at most; a position that several games reach is taken once."""
    kept: list[Ranked] = []
    taken: set[str] = set()
    for candidate in ranked:
        _, game, wrong = candidate
        if taken.isdisjoint((game, wrong.position)):
            taken |= {game, wrong.position}
            kept.append(candidate)
        if len(kept) == NUM_WORST:
            break
    return kept


def _error(ranked: Ranked) -> float:
    """The worst first."""
    return -ranked[0]


def _ranked(seen: Predictions, position: int, by: str, error: float, game: str, line: Line) -> Ranked:
    """A position in words; `line` ends in it."""
    index, share = seen.target_move(position)
    moves = tuple((text_of(line, move), chance) for move, chance in seen.moves(position, NUM_MOVES))
    value, target = float(seen.value[position]), float(seen.target_value[position])
    return error, game, WrongPosition(by, str(line), text_of(line, index), share, moves, value, target)


def text_of(line: Line, index: int) -> str:
    """A move in the game's own text, from its policy index."""
    return line.move_to_text(line.index_to_move(index))


def line_at(window: Window, ids: npt.NDArray[np.int64], number: int) -> tuple[str, Line]:
    """The game of one of the samples, as its shard and its place there, and the line up to it."""
    places = window.locate(ids[number : number + 1])
    shard, game, ply = int(places.shard[0]), int(places.game[0]), int(places.ply[0])
    start, moves = _game(window, shard, game)
    line = make_line(window.game_name, start)
    for move in moves[:ply]:
        line.push(move)
    return f"{shard}/{game}", line


def _game(window: Window, shard: int, game: int) -> tuple[str | None, list[int]]:
    """A game's start, None for the usual one, and its moves."""
    view = window.shards[shard]
    begin, end = (int(offset) for offset in view.moves_offset[game : game + 2])
    return view.start_of(game), view.moves[begin:end].tolist()


def games_to_show(window: Window) -> list[int]:
    """Rows of the window: NUM_GAMES games of a usual length, spread over it; always the same ones."""
    lengths = np.diff(window.ply_offset)
    usual = np.flatnonzero((lengths >= FEWEST_PLIES) & (lengths <= MOST_PLIES))
    rows = usual if len(usual) >= NUM_GAMES else np.arange(window.num_games)
    indices = np.linspace(0, len(rows) - 1, min(NUM_GAMES, len(rows))).astype(int)
    return [int(rows[index]) for index in np.unique(indices)]


def samples_of(window: Window, row: int) -> npt.NDArray[np.int64]:
    """The samples of a game, from its first ply on."""
    first, last = (int(offset) for offset in window.ply_offset[row : row + 2])
    return np.arange(first, min(last, first + MOST_PLIES), dtype=np.int64)


def seen_game(window: Window, row: int, seen: Predictions) -> SeenGame:
    """A game with the network's prediction for each of its samples. seen: of `samples_of`, in order."""
    shard, game = int(window.shard[row]), int(window.game[row])
    start, moves = _game(window, shard, game)
    line = make_line(window.game_name, start)
    positions = {ply: at for at, ply in enumerate(window.locate(samples_of(window, row)).ply.tolist())}
    texts: list[str] = []
    plies: list[SeenPly | None] = []
    for ply, move in enumerate(moves[:MOST_PLIES]):
        at = positions.get(ply)
        if at is None:
            plies.append(None)
        else:
            policy = tuple((text_of(line, index), share) for index, share in seen.moves(at, NUM_GAME_MOVES))
            plies.append(SeenPly(float(seen.value[at]), float(seen.wdl_B3[at, 1]), policy))
        texts.append(line.move_to_text(move))
        line.push(move)
    view, labels = window.shards[shard], {}
    if view.batch is not None:
        named = {name: view.batch.column(name)[game].as_py() for name in ("white", "black", "event", "date")}
        labels = {name: str(text)[:80] for name, text in named.items() if text}
    return SeenGame(start, tuple(texts), RESULTS[int(view.result[game])], tuple(plies), labels)


BATCH_SIZE = 512
OF_RESULTS, OF_EXACT_TRUTH = "results", "exact"


def make_validation(job: Job, held_out: Window | None, services: RankServices) -> Validate:
    """A function that gives a network's figures, the same on all ranks, and records the rest. Collective."""
    on_held_out: HeldOut | None = None
    num_positions = job.config.training.validation_positions
    if held_out is not None and len(ids := spread_sample_ids(held_out, num_positions)):
        threads = loader_threads(job.config.data, job.runtime)
        encoder = WindowEncoder(held_out, job.spec, num_threads=threads)
        on_held_out = HeldOut(job, held_out, services.exchange, encoder, ids)
    truth = _exact_truth(job, services)

    def validate(network: AlphaZeroNet, step: int) -> Mapping[str, float]:
        figures = dict(on_held_out.measure(network, step)) if on_held_out else {}
        figures |= _solved_figures(job, network, step, truth, is_recorded=not on_held_out)
        return figures

    return validate


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A fixed set of positions with known results, shared over the ranks, and a few whole games."""

    job: Job
    window: Window
    exchange: Exchange
    encoder: WindowEncoder
    ids: npt.NDArray[np.int64]

    def measure(self, network: AlphaZeroNet, step: int) -> Mapping[str, float]:
        """Losses and accuracies; rank 0 records what else was seen. Collective."""
        chunks = [self.ids[start : start + BATCH_SIZE] for start in range(0, len(self.ids), BATCH_SIZE)]
        total = torch.zeros(len(SUM_NAMES), dtype=torch.float64)
        tallies = torch.zeros(NUM_TALLIES, dtype=torch.float64)
        worst = Worst()
        # ZeRO 3 gathers weights in every forward pass: all ranks make as many, surplus ones uncounted.
        for first in range(0, len(chunks), self.exchange.world_size):
            index = first + self.exchange.rank
            is_counted = index < len(chunks)
            ids = chunks[index if is_counted else 0]
            sums, seen = self._look(network, ids)
            if is_counted:
                total += sums
                tallies += tallies_of(seen, self.job.spec)
                worst.look(seen, partial(line_at, self.window, ids))
        # Two messages: in one, ranks might add up the figures in another order than runs of before did.
        total, tallies = self.exchange.sum(total), self.exchange.sum(tallies)
        wrong = self._worst_of_all(worst)
        # Every rank looks at them, as forward passes of ZeRO 3 need all ranks.
        shown = [(row, samples_of(self.window, row)) for row in games_to_show(self.window)]
        games = tuple(seen_game(self.window, row, self._look(network, ids)[1]) for row, ids in shown)
        if self.job.runtime.is_main:
            phases = phases_in(tallies, self.job.spec)
            record = ValidationRecord(step, OF_RESULTS, len(self.ids), *bins_of(tallies), phases, wrong)
            append_record(self.job.run, record)
            write_games(self.job.run, SeenGames(step, self.job.spec.name, games))
        return dataclasses.asdict(metrics_of(total))

    def _look(self, network: AlphaZeroNet, ids: npt.NDArray[np.int64]) -> tuple[torch.Tensor, Predictions]:
        seen: list[Predictions] = []
        device, precision = self.job.runtime.device, self.job.config.training.precision
        sums = sum_over_positions(network, [self.encoder.encode(ids)], device, precision, seen.append)
        return sums, seen[0]

    def _worst_of_all(self, worst: Worst) -> tuple[WrongPosition, ...]:
        """Those of all ranks, the worst of each kind first. Collective."""
        own: list[Any] = [
            [error, game, dataclasses.asdict(wrong)]
            for ranked in worst.ranked.values()
            for error, game, wrong in ranked
        ]
        gathered = (row for rows in self.exchange.gather(own) for row in rows)
        every = sorted(
            ((error, game, from_table(WrongPosition, body)) for error, game, body in gathered), key=_error
        )
        kinds = ([ranked for ranked in every if ranked[2].by == by] for by in worst.ranked)
        return tuple(wrong for kind in kinds for *_, wrong in of_different_games(kind))


def _exact_truth(job: Job, services: RankServices) -> list[SolvedSet]:
    """Positions in which moves err, none where nothing is known of the game.

    Collective: rank 0 solves what a solver is named for.
    """
    game, solver = job.spec.name, job.config.training.solver
    if get_game(game).has_solved_positions and OWN_TABLE.is_file():
        return read_sets()
    if not solver or not job.config.training.validation_interval:
        return []
    with services.console.working(f"solving {game}", NUM_POSITIONS, "position") as work:

        def tick(known: int, searched: int) -> None:
            work.advance(known, f"{searched:,} searched" if searched else "")
            services.heartbeat.beat(Phase.START, 0, known + searched)

        def solve() -> Json:
            with suppress(KeyboardInterrupt), services.stop.interrupting():  # no step follows it
                return dataclasses.asdict(truth_of_run(job.run, game, solver, tick))
            return None

        truth = services.exchange.on_main(solve)
    return [SolvedSet(game, tuple(from_table(OutsideTruth, truth).exact()))] if truth else []


def _solved_figures(
    job: Job, network: AlphaZeroNet, step: int, truth: Sequence[SolvedSet], *, is_recorded: bool
) -> Mapping[str, float]:
    """Shares of wrong moves of the network alone, each rank for itself: the positions are few."""
    if not truth:
        return {}
    player = SolvedPlayer(network, job.runtime.device, job.config.training.precision)
    figures = move_errors(truth, player)
    if is_recorded:
        record = _exact_record(player, step, truth, job.spec)
        if job.runtime.is_main:
            append_record(job.run, record)
    return figures


def _exact_record(
    player: SolvedPlayer, step: int, truth: Sequence[SolvedSet], spec: GameSpec
) -> ValidationRecord:
    """Policies on the solved positions, which `player` has just seen; values on positions after them."""
    asked = [position for entry in truth for position in entry.positions]
    after = successors(asked)
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
        worst.look(seen, [(str(at), position.line) for at, position in enumerate(positions)].__getitem__)
        wrong += [position for *_, position in worst.ranked[by]]
    return ValidationRecord(step, OF_EXACT_TRUTH, len(after), *bins_of(tallies), phases, tuple(wrong))
