"""The data source of self-play: generations of games, their window, figures and part of a checkpoint.

In a generation every lane plays on with the newest weights, the games that ended are shared by all ranks and
stored as one shard, and training continues for steps_per_generation steps on the newest games. All of it is a
function of the settings and the weights, so a run that was killed plays the same games again.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import torch

import alphazero._core as _core
from alphazero.base.log import Topic, Work
from alphazero.base.text import counted
from alphazero.data.sampling.window import Mixture, Window, newest_games, window_size
from alphazero.games.batch import MicroBatch
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.purpose import EvenLadder, evaluator_for_self_play
from alphazero.network.model.precision import evaluation_precision
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.network.weights.weights import network_of
from alphazero.play import lanes as games
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import (
    Played,
    describe,
    figures_of,
    lanes_of,
    new_cache,
    new_lane,
    play,
    tables_of,
)
from alphazero.run.rank import Phase
from alphazero.training.loop.job import Job, RankServices, SourceState, Weights
from alphazero.training.loop.part_clock import Part
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.sources.gate import Gate
from alphazero.training.sources.given_games import make_loader
from alphazero.training.sources.shared_games import GenerationState, SharedGames, saved_lanes
from alphazero.training.sources.shown_texts import game_text

# The growth of the window as in KataGo (Wu 2019, appendix C).
WINDOW_ALPHA, WINDOW_BETA = 0.75, 0.4


@dataclass
class GenerationFigures:
    """What this rank did in a generation, and the report of all ranks.

    batch_size: of an evaluation. has_cache: of evaluations; then the share of positions found in it counts.
    """

    generation: int
    batch_size: int
    has_cache: bool
    game: str
    moves: int = 0
    simulations: int = 0
    evaluations: int = 0
    cached: int = 0
    batches: int = 0
    games: int = 0

    def add(self, played: Played) -> None:
        """Add one more round."""
        self.moves += played.moves
        self.simulations += played.simulations
        self.evaluations += played.evaluations
        self.cached += played.cached
        self.batches += played.batches
        self.games += len(played.finished)

    def report(
        self,
        step: int,
        finished: pa.RecordBatch,
        window_positions: int,
        seconds: float,
        services: RankServices,
    ) -> None:
        """Add up all ranks; write and print the figures on rank 0. Collective.

        finished: the games of all ranks. window_positions: those to be trained on.
        """
        counts = [self.moves, self.simulations, self.evaluations, self.cached, self.batches]
        sums = services.exchange.sum(torch.tensor(counts, dtype=torch.float64))
        moves, simulations, evaluations, cached, batches = sums.tolist()
        seen: tuple[str, dict[str, dict[str, float]]] = "", {}
        if services.observer:
            seen = services.observer.look("self-play", seconds, evaluations)
        if services.exchange.rank:
            return
        figures = figures_of(finished, self.game) if finished.num_rows else {}
        figures |= {f"gpu/{name}": value for name, value in seen[1].get("gpu", {}).items()}
        figures |= {
            "generation": float(self.generation),
            "window_positions": float(window_positions),
            "seconds": seconds,
            "games_per_hour": finished.num_rows * 3600 / seconds,
            "moves_per_s": moves / seconds,
            "simulations_per_s": simulations / seconds,
            "evaluations_per_s": evaluations / seconds,
        }
        if batches:
            figures["batch_fill"] = evaluations / (batches * self.batch_size)
        if self.has_cache:
            figures["cached_share"] = cached / max(1.0, cached + evaluations)
        services.metrics.write("self_play", step, figures)
        parts = [
            f"generation {self.generation}",
            describe(figures) if finished.num_rows else "no game has ended yet",
            f"{seconds:.0f} s, {figures['games_per_hour']:,.0f} games/hour, "
            f"{figures['evaluations_per_s']:,.0f} evaluations/s"
            + (f", {figures['cached_share']:.0%} of the positions from the cache" if self.has_cache else ""),
            f"batches {figures['batch_fill']:.0%} full" if batches else "",
            seen[0],
            f"window {window_positions:,} positions",
        ]
        services.console.say(" | ".join(filter(None, parts)))


class Generations:
    """Plays games between stretches of training, on every rank its lanes."""

    def __init__(self, job: Job, given: Window | None, services: RankServices) -> None:
        """given: historical games to mix in, and to train on before the first generation."""
        config = job.config
        self._job = job
        self._given = given
        self._given_id = given.id if given is not None else ""
        self._services = services
        self._own = config.self_play
        self._settings = self_play_settings(config.search, config.self_play, config.training.seed)
        self._evaluator: NetworkEvaluator | EvenLadder | None = None
        self._cache = new_cache(config.self_play.evaluation_cache)
        self._tables = tables_of(config.self_play, job.spec.name)
        self._gate = Gate(job, services) if config.self_play.gate_games else None
        self._games = SharedGames(job.run, job.spec.name, services.writes, services.exchange)
        self._standing = GenerationState()
        self._window: Window | None = None

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Stand where the checkpoint stood, or at the beginning; games played since are set aside.

        Collective. Raises CheckpointError where it was made with other lanes, or its games are gone.
        """
        own, exchange = self._own, self._services.exchange
        mine = lanes_of(exchange.rank, exchange.world_size, own.lanes)
        if checkpoint is None or checkpoint.lanes is None:
            self._standing = GenerationState(given_id=self._given_id)
            self._lanes = games.to_batch([new_lane(number) for number in range(own.lanes)])
        else:
            # Other given games may have been taken on purpose (resume_checks.py).
            self._standing = dataclasses.replace(
                GenerationState(**checkpoint.state.self_play), given_id=self._given_id
            )
            self._lanes = saved_lanes(checkpoint.lanes, self._job.spec.name, own.lanes, exchange)
        if self._gate:
            self._gate.champion = checkpoint.champion if checkpoint else None
        self._mine = games.from_batch(self._lanes.take(pa.array(list(mine), pa.int64())))
        self._games.rewind(self._standing)
        self._window = self._make_window()

    def prepare(self, step: int, weights: Weights) -> int | None:
        """Play the next generation where the last one has been trained on; the step until which it lasts.

        Collective. None: a signal came amid the games; the generation is dropped.
        """
        own = self._own
        if step < own.pretraining_steps and self._given is not None:
            self._window = self._given
            return own.pretraining_steps
        if step < self._standing.end_step:
            return self._standing.end_step
        end_step = step + own.steps_per_generation
        return end_step if self._play_generation(step, end_step, weights()) else None

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 on the present window."""
        assert self._window is not None
        ratio, mixture = self._own.value_q_ratio, self._mixture()
        loader = make_loader(self._job, self._window, plan, value_q_ratio=ratio, mixture=mixture)
        return loader.iterate(first, last)

    def state(self) -> SourceState:
        """Where the generations stand, with the games under way."""
        window_id = self._window.id if self._window is not None else ""
        champion = self._gate.champion if self._gate else None
        return SourceState(
            window_id, dataclasses.asdict(self._standing), games.to_bytes(self._lanes), champion
        )

    def _play_generation(self, step: int, end_step: int, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Rounds of play in every lane until there are positions enough; False where a signal came."""
        own, standing, services = self._own, self._standing, self._services
        if self._gate:
            outcome = self._gate.decide(tensors, standing.generation + 1, step)
            services.console.say(f"generation {standing.generation + 1} | {outcome}")
            tensors = self._gate.player
        self._load(tensors)
        trained_on = (end_step - min(own.pretraining_steps, end_step)) * self._job.batch_size
        if self._given is not None:
            trained_on = round(trained_on * (1 - own.historical_share))
        needed = math.ceil(trained_on / own.reuse)
        started = time.monotonic()
        figures = GenerationFigures(
            standing.generation + 1,
            own.evaluation_batch,
            self._cache is not None,
            self._job.config.network.game,
        )
        what = f"self-play, generation {standing.generation + 1} of {own.generations}"
        missing = needed - standing.positions
        with services.console.working(what, max(0, missing), "position") as work:
            played = self._play_rounds(step, missing, figures, work)
        if played is None:
            return False
        mine, all_finished = played
        positions = standing.positions + games.num_trained_positions(all_finished)
        self._take(mine, all_finished, positions, end_step)
        window_positions = self._window.num_samples if self._window else 0
        figures.report(step, all_finished, window_positions, time.monotonic() - started, services)
        if all_finished.num_rows and not services.exchange.rank:
            services.metrics.note("self-play game", game_text(self._job.spec.name, all_finished))
        return True

    def _play_rounds(
        self, step: int, missing: int, figures: GenerationFigures, work: Work
    ) -> tuple[list[_core.SelfPlayGame], pa.RecordBatch] | None:
        """Rounds until games with `missing` positions have ended: games under way, those that ended.

        At least one round; None where a signal came. figures: take in what this rank does.
        """
        mine, positions = self._mine, 0
        finished: list[pa.RecordBatch] = []
        while not finished or positions < missing:
            played = self._play_round(step, mine, figures, work)
            if played is None:
                return None
            mine = played.under_way
            batch = self._of_all_ranks(played.finished, "games of another rank")
            finished.append(batch)
            positions += games.num_trained_positions(batch)
            figures.add(played)
            work.advance(positions)
        return mine, games.concatenated(finished)

    def _of_all_ranks(self, own: list[_core.SelfPlayGame], what: str) -> pa.RecordBatch:
        """These games of every rank. Collective."""
        contents = self._services.exchange.gather_bytes(games.to_bytes(games.to_batch(own)))
        return games.concatenated([games.from_bytes(content, what) for content in contents])

    def _load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Have the evaluator play with these weights."""
        config = self._job.config
        if self._cache is not None:
            self._cache.clear()
        if self._evaluator is not None:
            self._evaluator.load(tensors)
            return
        device = self._job.runtime.device
        self._evaluator = evaluator_for_self_play(
            network_of(config.network, tensors),
            device,
            evaluation_precision(
                self._own.evaluation_precision,
                config.training.precision,
                device,
                config.network.body,
                config.network.game,
            ),
            self._own.evaluation_batch,
        )

    def _play_round(
        self, step: int, mine: list[_core.SelfPlayGame], figures: GenerationFigures, work: Work
    ) -> Played | None:
        """One round of this rank's lanes; None on all ranks where one was asked to stop.

        figures: of this rank's earlier rounds of the generation. work: shows moves as they are made.
        """
        own, services = self._own, self._services
        assert self._evaluator is not None
        batches = itertools.count(figures.batches)  # a move of many lanes takes long, a batch does not
        services.heartbeat.beat(Phase.SELF_PLAY, step, figures.batches)

        where = " on rank 0" if services.exchange.world_size > 1 else ""

        def on_progress(moves: int, num_games: int) -> bool:
            services.heartbeat.beat(Phase.SELF_PLAY, step, next(batches))
            moves, num_games = figures.moves + moves, figures.games + num_games
            work.note = f"{counted(moves, 'move')} and {counted(num_games, 'game')} ended{where}"
            return not services.stop.requested

        with services.clock.part(Part.SELF_PLAY):
            played = play(
                self._job.spec.name,
                self._settings,
                mine,
                own.simulations_per_round or own.moves_per_round,
                self._evaluator,
                in_simulations=own.simulations_per_round > 0,
                cache=self._cache,
                num_threads=torch.get_num_threads(),
                tables=self._tables,
                on_progress=on_progress,
            )
        services.heartbeat.beat(Phase.DATA, step)  # from here on this rank may wait for the others' games
        if not all(services.exchange.numbers(int(played.is_complete))):
            generation = self._standing.generation + 1
            text = f"stopping: a signal came during the games of generation {generation}"
            services.console.say(text, Topic.END)
            return None
        return played

    def _take(
        self, mine: list[_core.SelfPlayGame], finished: pa.RecordBatch, positions: int, end_step: int
    ) -> None:
        """Make the games part of the run: on every host's disk, in the window, in the next checkpoint."""
        generation = self._standing.generation + 1
        self._mine = mine
        self._lanes = self._of_all_ranks(mine, "lanes")
        rows = games.store_rows(
            finished, self._job.spec.name, self._job.config.search.algorithm, f"generation {generation}"
        )
        self._games.append(rows)
        store = self._games.open() if self._standing.games + rows.num_rows else None
        self._standing = GenerationState(
            generation=generation,
            end_step=end_step,
            games=self._standing.games + rows.num_rows,
            positions=positions,
            num_shards=len(store.shards) if store else 0,
            store_id=store.manifest.sha256 if store else "",
            given_id=self._given_id,
        )
        self._window = self._make_window()

    def _make_window(self) -> Window | None:
        """The newest games, as many as the power law of all positions gives, behind those given.

        None before the first game.
        """
        own = self._own
        if not self._standing.games:
            return self._given
        size = window_size(self._standing.positions, own.window_minimum, WINDOW_ALPHA, WINDOW_BETA)
        newest = newest_games(self._games.open(), size)
        return newest if self._given is None else Window.joined(self._given, newest)

    def _mixture(self) -> Mixture | None:
        """How batches are drawn from a window that begins with given games."""
        if self._given is None or self._window is self._given:
            return None
        return Mixture(self._given.num_samples, self._own.historical_share)
