"""The data source of self-play: generations of games, the window they make, what a checkpoint keeps of them.

A generation: every lane plays on with the newest weights, the games that ended are shared by all ranks and
stored as one shard, and training goes on for steps_per_generation steps on the newest games. All of it is a
function of the settings and the weights, so a run that was killed plays the same games again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa
import torch

from alphazero import _core
from alphazero.config import Config
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.replay_window import newest_games, window_size
from alphazero.data.sampling.window import Mixture, Window
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.errors import DataError
from alphazero.games.batch import MicroBatch
from alphazero.games.spec import GameSpec
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.pipeline.gate import Gate
from alphazero.pipeline.given_games import loader_threads
from alphazero.run.console import Console
from alphazero.run.heartbeat import HeartbeatWriter
from alphazero.run.metrics import MetricWriter
from alphazero.search.settings import self_play_settings
from alphazero.selfplay import games
from alphazero.selfplay.figures import describe, figures_of
from alphazero.selfplay.worker import Played, lanes_of, new_lane, play
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.checkpoint.sharing import raise_shared
from alphazero.training.exchange import Exchange
from alphazero.training.loop.data_source import SourceState, Weights
from alphazero.training.loop.job import Job
from alphazero.training.loop.stop import StopRequest


@dataclass(frozen=True)
class Standing:
    """Where the generations stand: how many were played, and what they gave.

    end_step: the step until which the newest generation is trained on. positions: full searches of all
    stored games. num_shards, store_id: the store of games as it was then.
    """

    generation: int = 0
    end_step: int = 0
    games: int = 0
    positions: int = 0
    num_shards: int = 0
    store_id: str = ""


@dataclass
class Totals:
    """What this rank did in a generation."""

    moves: int = 0
    simulations: int = 0
    evaluations: int = 0
    batches: int = 0

    def add(self, played: Played) -> None:
        """One more round."""
        self.moves += played.moves
        self.simulations += played.simulations
        self.evaluations += played.evaluations
        self.batches += played.batches

    def numbers(self) -> list[int]:
        """In the order of the fields."""
        return [self.moves, self.simulations, self.evaluations, self.batches]


@dataclass(frozen=True)
class Helpers:
    """Those that generations work with. writes: this rank writes the store of games of its host."""

    exchange: Exchange
    console: Console
    metrics: MetricWriter
    heartbeat: HeartbeatWriter
    stop: StopRequest
    writes: bool


class Generations:
    """Plays games between stretches of training, on every rank its lanes."""

    def __init__(self, job: Job, spec: GameSpec, given: Window | None, helpers: Helpers) -> None:
        """given: historical games to mix in, and to train on before the first generation."""
        self._job = job
        self._spec = spec
        self._given = given
        self._helpers = helpers
        self._settings = self_play_settings(job.config.search, job.config.self_play, job.config.training.seed)
        self._evaluator: NetworkEvaluator | None = None
        self._gate = Gate(job, spec, helpers.exchange) if job.config.self_play.gate_games else None
        self._standing = Standing()
        self._window: Window | None = None

    @property
    def _config(self) -> Config:
        return self._job.config

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Stand where the checkpoint stood, or at the beginning; games played since are set aside.

        Collective. Raises CheckpointError where it was made with other lanes, or its games are gone.
        """
        own, exchange = self._config.self_play, self._helpers.exchange
        mine = lanes_of(exchange.rank, exchange.world_size, own.lanes)
        if checkpoint is None or checkpoint.lanes is None:
            self._standing = Standing()
            self._lanes = games.to_batch([new_lane(number) for number in range(own.lanes)])
        else:
            self._standing = Standing(**checkpoint.state.self_play)
            self._lanes = games.from_bytes(checkpoint.lanes, "lanes.arrow")
            if self._lanes.num_rows != own.lanes:
                raise_shared(
                    [
                        f"--lanes {own.lanes}: the run has {self._lanes.num_rows}; expected as many, "
                        "or --fresh-start"
                    ]
                )
        if self._gate:
            self._gate.champion = checkpoint.champion if checkpoint else None
        self._mine = games.from_batch(self._lanes.take(pa.array(list(mine), pa.int64())))
        self._rewind_store()
        self._window = self._make_window()

    def prepare(self, step: int, weights: Weights) -> int | None:
        """Play the next generation where the last one has been trained on; the step until which it lasts.

        Collective. None: a signal came amid the games; the generation is dropped.
        """
        own = self._config.self_play
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
        loader = Loader(
            self._window,
            self._spec,
            seed=self._config.training.seed,
            batch_size=plan.batch_size,
            micro_batch_size=plan.micro_batch_size,
            passes=plan.passes_of(self._job.runtime.rank),
            num_threads=loader_threads(self._config, self._job.runtime),
            history_fill=self._config.data.history_fill,
            symmetries=self._config.data.symmetries,
            value_q_ratio=self._config.self_play.value_q_ratio,
            mixture=self._mixture(),
        )
        return loader.iterate(first, last)

    def state(self) -> SourceState:
        """Where the generations stand, with the games under way."""
        window_id = self._window.id if self._window is not None else ""
        champion = self._gate.champion if self._gate else None
        return SourceState(window_id, asdict(self._standing), games.to_bytes(self._lanes), champion)

    def _play_generation(self, step: int, end_step: int, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Rounds of moves in every lane until there are positions enough; False where a signal came."""
        own, standing, helpers = self._config.self_play, self._standing, self._helpers
        if self._gate:
            said = self._gate.decide(tensors, standing.generation + 1)
            helpers.console.say(f"generation {standing.generation + 1} | {said}")
            tensors = self._gate.player
        self._load(tensors)
        trained_on = (end_step - min(own.pretraining_steps, end_step)) * self._job.batch_size
        if self._given is not None:
            trained_on = round(trained_on * (1 - own.historical_share))
        wanted = math.ceil(trained_on / own.reuse)
        started = time.monotonic()
        finished: list[pa.RecordBatch] = []
        mine, positions, totals = self._mine, standing.positions, Totals()
        while not finished or positions < wanted:
            played = self._play_round(step, mine)
            if played is None:
                return False
            mine = played.under_way
            batch = games.concatenated(
                [
                    games.from_bytes(content, "games of another rank")
                    for content in helpers.exchange.gather(games.to_bytes(games.to_batch(played.finished)))
                ]
            )
            finished.append(batch)
            positions += games.num_trained_positions(batch)
            totals.add(played)
        self._take(mine, games.concatenated(finished), positions, end_step)
        self._tell(step, games.concatenated(finished), totals, time.monotonic() - started)
        return True

    def _load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Have the evaluator play with these weights."""
        config, runtime = self._config, self._job.runtime
        if self._evaluator is None:
            with torch.device("meta"):
                network = AlphaZeroNet(config.network, self._spec)
            network.load_state_dict(dict(tensors), assign=True)
            precision = config.self_play.evaluation_precision
            self._evaluator = NetworkEvaluator(
                network.eval(),
                self._spec,
                runtime.device,
                config.training.precision if precision == "training" else precision,
                config.self_play.evaluation_batch,
            )
        else:
            self._evaluator.load(tensors)

    def _play_round(self, step: int, mine: list[_core.SelfPlayGame]) -> Played | None:
        """One round of this rank's lanes; None on all ranks where one was asked to stop."""
        own, helpers = self._config.self_play, self._helpers
        assert self._evaluator is not None
        generation = self._standing.generation + 1

        def on_progress(moves: int, num_games: int) -> bool:
            helpers.heartbeat.beat(step, f"self-play: move {moves}")
            return not helpers.stop.requested

        played = play(
            self._spec.name,
            self._settings,
            mine,
            own.moves_per_round,
            self._evaluator,
            fill=self._config.data.history_fill,
            num_threads=torch.get_num_threads(),
            on_progress=on_progress,
        )
        if not all(helpers.exchange.numbers(int(played.is_complete))):
            helpers.console.say(f"stopping: a signal came during the games of generation {generation}")
            return None
        return played

    def _take(
        self, mine: list[_core.SelfPlayGame], finished: pa.RecordBatch, positions: int, end_step: int
    ) -> None:
        """Make the games part of the run: on every host's disk, in the window, in the next checkpoint."""
        exchange, generation = self._helpers.exchange, self._standing.generation + 1
        self._mine = mine
        under_way = exchange.gather(games.to_bytes(games.to_batch(mine)))
        self._lanes = games.concatenated([games.from_bytes(content, "lanes") for content in under_way])
        rows = games.store_rows(
            finished, self._spec.name, self._config.search.algorithm, f"generation {generation}"
        )
        if self._helpers.writes and rows.num_rows:
            self._store.append(rows)
        exchange.barrier()
        store = GameStore.open(self._job.run.games) if self._standing.games + rows.num_rows else None
        self._standing = Standing(
            generation=generation,
            end_step=end_step,
            games=self._standing.games + rows.num_rows,
            positions=positions,
            num_shards=len(store.shards) if store else 0,
            store_id=store.manifest.sha256 if store else "",
        )
        self._window = self._make_window()

    def _make_window(self) -> Window | None:
        """The newest games, as many as the power law of all positions says, behind those given.

        None before the first game.
        """
        own = self._config.self_play
        if not self._standing.games:
            return self._given
        size = window_size(self._standing.positions, own.window_minimum, own.window_alpha, own.window_beta)
        newest = newest_games(GameStore.open(self._job.run.games), size)
        return newest if self._given is None else Window.joined(self._given, newest)

    def _mixture(self) -> Mixture | None:
        """How batches are drawn from a window that begins with given games."""
        if self._given is None or self._window is self._given:
            return None
        return Mixture(self._given.num_samples, self._config.self_play.historical_share)

    def _rewind_store(self) -> None:
        """Have every host's store hold the standing's games and no others; they are sent where they lack."""
        standing, exchange = self._standing, self._helpers.exchange
        held, fault = "", ""
        if self._helpers.writes:
            try:
                self._store = GrowingStore(self._job.run.games, self._spec.name)
                if len(self._store.shards) >= standing.num_shards:
                    self._store.truncate_to(standing.num_shards)
                    held = self._store.manifest.sha256 if self._store.manifest else ""
            except DataError as error:
                fault = str(error)
        raise_shared(exchange.gather(fault))
        if not standing.num_shards:
            return
        holders = [
            rank for rank, store_id in enumerate(exchange.gather(held)) if store_id == standing.store_id
        ]
        if not holders:
            raise_shared(
                [
                    f"{self._job.run.games}: not the games of generation {standing.generation} that the "
                    "checkpoint learned from; expected them, or --fresh-start"
                ]
            )
        self._send_games(holders[0], lacks=self._helpers.writes and held != standing.store_id)

    def _send_games(self, source: int, *, lacks: bool) -> None:
        """Every shard from rank `source` to the writers that lack it."""
        exchange = self._helpers.exchange
        if not any(exchange.numbers(int(lacks))):
            return
        if lacks:
            self._store.truncate_to(0)
        for number in range(self._standing.num_shards):
            content = b""
            if exchange.rank == source:
                assert self._store.manifest is not None
                content = (self._job.run.games / self._store.manifest.shards[number].name).read_bytes()
            content = exchange.from_rank(source, content)
            if lacks:
                self._store.append_shard(content)

    def _tell(self, step: int, finished: pa.RecordBatch, totals: Totals, seconds: float) -> None:
        """The generation's figures, for people and for the metrics."""
        helpers, standing = self._helpers, self._standing
        sums = helpers.exchange.sum(torch.tensor(totals.numbers(), dtype=torch.float64))
        if not self._job.runtime.is_main:
            return
        moves, simulations, evaluations, batches = sums.tolist()
        figures = figures_of(finished) if finished.num_rows else {}
        figures |= {
            "generation": float(standing.generation),
            "window_positions": float(self._window.num_samples if self._window else 0),
            "seconds": seconds,
            "moves_per_s": moves / seconds,
            "simulations_per_s": simulations / seconds,
            "evaluations_per_s": evaluations / seconds,
            "batch_fill": evaluations / max(1.0, batches * self._config.self_play.evaluation_batch),
        }
        helpers.metrics.write("self_play", step, figures)
        text = describe(figures) if finished.num_rows else "no game has ended yet"
        helpers.console.say(
            f"generation {standing.generation} | {text} | {seconds:.0f} s, {evaluations / seconds:,.0f} "
            f"evaluations/s | window {figures['window_positions']:,.0f} positions"
        )
