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
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import torch

import alphazero._core as _core
from alphazero.base.log import Topic, Work
from alphazero.base.text import counted
from alphazero.data.sampling.window import Mixture, Window, newest_games, window_size
from alphazero.data.store.columns import TRAINED_ON
from alphazero.data.store.store import GameStore
from alphazero.games.batch import MicroBatch
from alphazero.games.outside.names import is_outside
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.purpose import EvenLadder, evaluator_for_self_play
from alphazero.network.model.precision import evaluation_precision
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.network.weights.weights import network_of
from alphazero.play import lanes as games
from alphazero.play.actors.pointers import Account
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
from alphazero.training.sources.arrivals import WAIT_S, Arrivals, Brought, joined
from alphazero.training.sources.gate import Gate
from alphazero.training.sources.given_games import make_loader
from alphazero.training.sources.inbox import accounts_with
from alphazero.training.sources.replayed import ReplayedGames, num_samples_of
from alphazero.training.sources.shared_games import GenerationState, SharedGames, saved_lanes

# The growth of the window as in KataGo (Wu 2019, appendix C).
WINDOW_ALPHA, WINDOW_BETA = 0.75, 0.4
ONE_SIDED = 3  # generations of which one side wins all games


def report(
    job: Job,
    services: RankServices,
    step: int,
    generation: int,
    played: Played,
    finished: pa.RecordBatch,
    window: Window | None,
    seconds: float,
    brought: Brought | None = None,
) -> None:
    """Write and print the figures of a generation that was played before step `step`. Collective.

    played: by this rank. finished: the games of all ranks, and those of actors. window: what is to be trained
    on. brought: of a generation to which actors bring games.
    """
    counts = [played.moves, played.simulations, played.evaluations, played.cached, played.batches]
    sums = services.exchange.sum(torch.tensor(counts, dtype=torch.float64))
    moves, simulations, evaluations, cached, batches = sums.tolist()
    seen: tuple[str, dict[str, dict[str, float]]] = "", {}
    if services.observer:
        seen = services.observer.look("self-play", seconds, evaluations)
    if services.exchange.rank:
        return
    game, plays = job.spec.name, brought is None or batches > 0
    has_cache = plays and job.config.self_play.evaluation_cache > 0
    window_positions = window.num_samples if window else 0
    figures = figures_of(finished, game) if finished.num_rows else {}
    figures |= {f"gpu/{name}": value for name, value in seen[1].get("gpu", {}).items()}
    figures |= {
        "generation": float(generation),
        "window_positions": float(window_positions),
        "seconds": seconds,
        "games_per_hour": finished.num_rows * 3600 / seconds,
        "moves_per_s": moves / seconds,
        "simulations_per_s": simulations / seconds,
        "evaluations_per_s": evaluations / seconds,
    }
    if batches:
        figures["batch_fill"] = evaluations / (batches * job.config.self_play.evaluation_batch)
    if has_cache:
        figures["cached_share"] = cached / max(1.0, cached + evaluations)
    words = ""
    if brought is not None:
        figures |= brought.figures(step)
        words = brought.describe(step)
        services.metrics.write("actors", step, brought.by_actor())
    services.metrics.write("self_play", step, figures)
    parts = [
        f"generation {generation}",
        describe(figures) if finished.num_rows else "no game has ended yet",
        f"{seconds:.0f} s, {figures['games_per_hour']:,.0f} games/hour"
        + (f", {figures['evaluations_per_s']:,.0f} evaluations/s" if plays else "")
        + (f", {figures['cached_share']:.0%} of the positions from the cache" if has_cache else ""),
        f"batches {figures['batch_fill']:.0%} full" if batches else "",
        seen[0],
        words,
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
        is_gated = config.self_play.gate_games and not config.self_play.replay
        self._gate = Gate(job, services) if is_gated else None
        self._games = SharedGames(job.run, job.spec.name, services.writes, services.exchange)
        self._replayed = ReplayedGames(job, services.exchange) if self._own.replay else None
        self._arrivals = Arrivals(job, services) if self._own.self_play_from != "here" else None
        self._brought: Brought | None = None  # by actors, in the generation under way
        self._standing = GenerationState()
        self._window: Window | None = None
        self._results: deque[frozenset[int]] = deque(maxlen=ONE_SIDED)  # of the last generations

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Stand where the checkpoint stood, or at the beginning; games played since are set aside.

        Collective. Raises CheckpointError where it was made with other lanes, or its games are gone.
        """
        own, exchange = self._own, self._services.exchange
        if checkpoint is None or checkpoint.lanes is None:
            self._standing = GenerationState(given_id=self._given_id)
            lanes = games.to_batch([new_lane(number) for number in range(own.lanes)])
        else:
            # Other given games may have been taken on purpose (resume_checks.py).
            standing = GenerationState.of(checkpoint.state.self_play)
            self._standing = dataclasses.replace(standing, given_id=self._given_id)
            lanes = saved_lanes(checkpoint.lanes, self._job.spec.name, own.lanes, exchange)
        if self._gate:
            self._gate.champion = checkpoint.champion if checkpoint else None
        mine = lanes_of(exchange.rank, exchange.world_size, own.lanes)
        self._mine = games.from_batch(lanes.take(pa.array(list(mine), pa.int64())))
        self._lanes = games.to_bytes(lanes)
        self._window = self._make_window(self._games.rewind(self._standing))
        if self._arrivals:
            step = checkpoint.state.step if checkpoint else 0
            self._arrivals.order.rewind(self._standing.generation, self._games.holder_of(self._standing))
            self._arrivals.stand(step, self._standing.taken)

    def close(self, *, ended: bool) -> None:
        """Leave the place, where there is one. ended: the run made its last step."""
        if self._arrivals:
            self._arrivals.close(ended=ended)

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
        if self._replayed:
            self._replay_generation(end_step, self._replayed)
            return end_step
        return end_step if self._play_generation(step, end_step, weights()) else None

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 on the present window."""
        assert self._window is not None
        mixture = None
        if self._given is not None and self._window is not self._given:  # it begins with the given games
            mixture = Mixture(self._given.num_samples, self._own.historical_share)
        return make_loader(self._job, self._window, plan, mixture=mixture).iterate(first, last)

    def state(self) -> SourceState:
        """Where the generations stand, with the games under way."""
        window_id = self._window.id if self._window is not None else ""
        champion = self._gate.champion if self._gate else None
        return SourceState(window_id, dataclasses.asdict(self._standing), self._lanes, champion)

    def _play_generation(self, step: int, end_step: int, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Rounds of play in every lane until there are positions enough; False where a signal came.

        Then the games are part of the run: on every host's disk, in the window, in the next checkpoint.
        """
        own, standing, services = self._own, self._standing, self._services
        generation, taken = standing.generation + 1, standing.taken
        if self._gate:
            outcome = self._gate.decide(tensors, generation, step)
            services.console.say(f"generation {generation} | {outcome}")
            tensors = self._gate.player
        if self._arrivals:
            self._arrivals.publish(step, tensors)
            self._brought = Brought()
        if self._own.self_play_from != "elsewhere":
            self._load(tensors)
        trained_on = (end_step - min(own.pretraining_steps, end_step)) * self._job.batch_size
        if self._given is not None:
            trained_on = round(trained_on * (1 - own.historical_share))
        missing = math.ceil(trained_on / own.reuse) - standing.positions
        started = time.monotonic()
        what = f"self-play, generation {generation} of {own.generations}"
        with services.console.working(what, max(0, missing), "position") as work:
            played = self._find_games(step, generation, missing, work)
        if played is None:
            if self._arrivals:
                self._arrivals.stand(step, standing.taken)
            text = f"stopping: a signal came during the games of generation {generation}"
            services.console.say(text, Topic.END)
            return False
        finished = self._of_all_ranks(played.finished, "games of another rank")
        self._mine = played.under_way
        self._lanes = games.to_bytes(self._of_all_ranks(played.under_way, "lanes"))
        name, algorithm = self._job.spec.name, self._job.config.search.algorithm
        if self._brought:
            finished = joined([finished, *self._brought.rows()])
            taken = accounts_with(standing.taken, self._brought.shards())
        rows = games.store_rows(finished, name, algorithm, f"generation {generation}")
        store = self._games.append(rows, standing)
        positions = games.num_trained_positions(finished)
        self._standing = self._after(end_step, finished.num_rows, positions, store, taken)
        if self._arrivals and self._brought:
            self._arrivals.order.append(generation, step, self._brought.shards())
        self._window = self._make_window(store)
        seconds = time.monotonic() - started
        report(self._job, services, step, generation, played, finished, self._window, seconds, self._brought)
        self._note_one_side(finished)
        return True

    def _after(
        self,
        end_step: int,
        num_games: int,
        positions: int,
        store: GameStore | None,
        taken: dict[str, Account],
    ) -> GenerationState:
        """The standing after one more generation, whose games with so many positions the store has."""
        standing = self._standing
        return GenerationState(
            generation=standing.generation + 1,
            end_step=end_step,
            games=standing.games + num_games,
            positions=standing.positions + positions,
            num_shards=len(store.shards) if store else 0,
            store_id=store.manifest.sha256 if store else "",
            given_id=self._given_id,
            taken=taken,
        )

    def _replay_generation(self, end_step: int, replayed: ReplayedGames) -> None:
        """The games of another run's generation in place of new ones."""
        standing = self._standing
        generation = standing.generation + 1
        content = replayed.shard_of(generation)
        store = self._games.append_shard(content, standing)
        num_games, positions = 0, 0
        if content and store:
            shard = store.shards[-1]
            num_games, positions = shard.num_games, num_samples_of(shard)
        self._standing = self._after(end_step, num_games, positions, store, {})
        self._window = self._make_window(store)
        text = f"generation {generation} | {counted(num_games, 'game')} and {counted(positions, 'position')}"
        self._services.console.say(f"{text} of {self._own.replay} once more")

    def _note_one_side(self, finished: pa.RecordBatch) -> None:
        """Say once where one side has won all games of some generations by rules outside the core."""
        if finished.num_rows and is_outside(self._job.spec.name):
            self._results.append(frozenset(map(int, finished.column("result").to_numpy())))
        if len(self._results) == ONE_SIDED and self._results[0] in ({1}, {-1}) and len({*self._results}) == 1:
            self._results = deque(maxlen=0)
            side = "first" if finished.column("result")[0].as_py() > 0 else "second"
            self._services.console.warn(
                f"the {side} player has won all games of {ONE_SIDED} generations: as good play may have it, "
                "or rules that report a wrong winner (alphazero games check)"
            )

    def _find_games(self, step: int, generation: int, missing: int, work: Work) -> Played | None:
        """Games with `missing` positions, played here or taken from the place; None where one was to stop."""
        positions = self._take(missing)
        work.advance(positions)
        if self._own.self_play_from != "elsewhere":
            return self._play_rounds(step, missing, work, positions)
        beats = itertools.count()
        while positions < missing:
            self._services.heartbeat.beat(Phase.SELF_PLAY, step, next(beats))
            work.note = "waits for games of actors"
            if any(self._services.exchange.numbers(int(self._services.stop.requested))):
                return None
            positions += self._take(missing - positions, WAIT_S)
            work.advance(positions)
        self._services.heartbeat.beat(Phase.DATA, step)
        return Played(True, [], self._mine, 0, 0, 0, 0, 0)

    def _take(self, missing: int, wait_s: float = 0.0) -> int:
        """Shards of the place for a generation that still misses so many positions; those that they have.

        More than it misses are taken, but for one generation at most, so that training need not wait at the
        next one.
        """
        if self._arrivals is None or self._brought is None:
            return 0
        began = time.monotonic()
        with self._services.clock.part(Part.WAITING):
            taken = self._arrivals.take(missing + self._arrivals.lead, wait_s)
        if wait_s:
            self._brought.waited_s += time.monotonic() - began
        self._brought.add(taken)
        return taken.positions

    def _play_rounds(self, step: int, missing: int, work: Work, positions: int) -> Played | None:
        """Rounds of this rank's lanes until games of all ranks with `missing` positions have ended.

        positions: that actors brought before the first one. Without actors there is at least one round; None
        on all ranks where one was asked to stop.
        """
        exchange, heartbeat = self._services.exchange, self._services.heartbeat
        whole: Played | None = None if self._arrivals is None else Played(True, [], self._mine, 0, 0, 0, 0, 0)
        while whole is None or positions < missing:
            played = self._play_round(step, whole, work)
            heartbeat.beat(Phase.DATA, step)  # from here on this rank may wait for the others' games
            own = sum(int(np.count_nonzero(game.flags & TRAINED_ON)) for game in played.finished)
            by_rank = exchange.numbers(own if played.is_complete else -1)
            if min(by_rank) < 0:
                return None
            positions += sum(by_rank)
            positions += self._take(missing - positions)
            whole = whole.then(played) if whole else played
            work.advance(positions)
        return whole

    def _play_round(self, step: int, before: Played | None, work: Work) -> Played:
        """One round of this rank's lanes. before: its earlier rounds of the generation.

        work: shows moves as they are made.
        """
        own, services = self._own, self._services
        assert self._evaluator is not None
        lanes = before.under_way if before else self._mine
        moves_before, games_before = (before.moves, len(before.finished)) if before else (0, 0)
        # A move of many lanes takes long, a batch does not.
        batches = itertools.count(before.batches if before else 0)
        services.heartbeat.beat(Phase.SELF_PLAY, step, next(batches))
        where = " on rank 0" if services.exchange.world_size > 1 else ""

        def on_progress(moves: int, num_games: int) -> bool:
            services.heartbeat.beat(Phase.SELF_PLAY, step, next(batches))
            moves, num_games = moves_before + moves, games_before + num_games
            work.note = f"{counted(moves, 'move')} and {counted(num_games, 'game')} ended{where}"
            return not services.stop.requested

        with services.clock.part(Part.SELF_PLAY):
            return play(
                self._job.spec.name,
                self._settings,
                lanes,
                own.simulations_per_round,
                self._evaluator,
                in_simulations=True,
                cache=self._cache,
                num_threads=torch.get_num_threads(),
                tables=self._tables,
                on_progress=on_progress,
            )

    def _of_all_ranks(self, own: list[_core.SelfPlayGame], what: str) -> pa.RecordBatch:
        """These games of every rank, by lane and number. Collective."""
        batch = games.to_batch(sorted(own, key=lambda game: (game.lane, game.number)))
        if self._services.exchange.world_size == 1:
            return batch
        contents = self._services.exchange.gather_bytes(games.to_bytes(batch))
        return games.concatenated([games.from_bytes(content, what) for content in contents])

    def _load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Have the evaluator play with these weights."""
        config = self._job.config
        if self._cache is not None:
            self._cache.clear()
        if self._evaluator is not None:
            self._evaluator.load(tensors)
            return
        device, network = self._job.runtime.device, config.network
        precision = evaluation_precision(
            self._own.evaluation_precision, config.training.precision, device, network.body, network.game
        )
        self._evaluator = evaluator_for_self_play(
            network_of(network, tensors), device, precision, self._own.evaluation_batch
        )

    def _make_window(self, store: GameStore | None) -> Window | None:
        """The newest games, as many as the power law of all positions gives, behind those given.

        None before the first game.
        """
        if store is None:
            return self._given
        size = window_size(self._standing.positions, self._own.window_minimum, WINDOW_ALPHA, WINDOW_BETA)
        newest = newest_games(store, size)
        return newest if self._given is None else Window.joined(self._given, newest)
