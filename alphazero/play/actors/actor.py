"""An actor: plays games for a learner that it meets in a place alone.

It keeps nothing: who it is, is random and new at each start, and games under way end with it.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

import alphazero._core as _core
from alphazero.base.errors import AlphaZeroError, ConfigError, PlaceError, PlaceRefusedError, WeightsError
from alphazero.base.log import Say
from alphazero.base.text import quoted
from alphazero.data.store.columns import TRAINED_ON
from alphazero.games.outside.names import class_of, named_class
from alphazero.games.registry import get_game
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.purpose import EvenLadder, evaluator_for_self_play
from alphazero.network.model.precision import evaluation_precision, fast_precisions
from alphazero.network.weights.open_network import open_weights
from alphazero.network.weights.weights import network_of
from alphazero.play import lanes as games
from alphazero.play.actors.courier import LOOK_S, Courier, Tries
from alphazero.play.actors.place import SETTINGS, MeetingPlace, open_place
from alphazero.play.actors.pointers import ActorStatus, PlaceSettings, read_settings, rules_digest
from alphazero.play.actors.shard import MOST_SHARD_BYTES, new_actor
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_cache, new_lane, play, tables_of
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import MOST_BUDGET

ROUND_S = 20.0  # that a round of play should last: then games are published and weights looked for
LEAST_SEARCHES = 8  # of a lane in a round, at the end of which batches are not full
OLDEST = 3  # generations for which games may wait: the more actors there are, the sooner they pause
POSITIONS_PER_SHARD = 1 << 16
BYTES_PER_SHARD = MOST_SHARD_BYTES // 2  # by these of a ply and of an entry of its policy (play/lanes.py)
PLY_BYTES, ENTRY_BYTES = 35, 4
POLL_S = 0.1
T = TypeVar("T")


@dataclass(frozen=True)
class OfThisMachine:
    """What the command line of an actor says; all else comes from the place.

    game: the recorded name of --game, "" where there is none. precision: None for what the place's settings
    choose for the device. typed: fields of SelfPlayConfig, of those that a machine decides.
    """

    device: torch.device
    game: str = ""
    precision: str | None = None
    typed: Mapping[str, Any] = field(default_factory=dict)


def run_actor(place: str, own: OfThisMachine, go_on: Callable[[], bool], say: Say) -> None:
    """Play until go_on gives False or the run has ended. say: prints lines.

    Raises ConfigError where the learner has another version, other rules or settings that this machine
    cannot follow, and PlaceError where the place refuses from the start.
    """
    while go_on() and (meeting := _wait_for_settings(place, go_on, say)) is not None:
        check(meeting[1], own)
        if _Actor(*meeting, own, go_on, say).play():
            say("the run has ended: its learner needs no more games")
            return


def _wait_for_settings(
    place: str, go_on: Callable[[], bool], say: Say
) -> tuple[MeetingPlace, PlaceSettings, str] | None:
    """The place, its settings and their sha256; None where go_on gives False."""
    tries, answered = Tries(say), False
    while go_on():
        try:
            met = open_place(place)  # anew: a run gets its place when its learner starts
            if (settings := _aside(partial(read_settings, met), go_on)) is not None:
                return met, *settings
            if not go_on():
                return None
            answered = True
            error = PlaceError(f"{met.name}: no {SETTINGS} yet: no learner has started here")
        except PlaceError as caught:
            if isinstance(caught, PlaceRefusedError) and not answered:
                raise
            error = caught
        until = time.monotonic() + min(tries.failed(error), LOOK_S)
        while time.monotonic() < until and go_on():
            time.sleep(POLL_S)
    return None


def _aside(call: Callable[[], T], go_on: Callable[[], bool]) -> T | None:
    """What a call gives or raises, None where go_on gives False first.

    In another thread: S3's client tries for minutes, and signals are heard only between calls.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="first look", daemon=True).start()
    while go_on():
        if wait([answer], POLL_S).done:
            return answer.result()
    return None


def check(settings: PlaceSettings, own: OfThisMachine) -> None:
    """Raises ConfigError unless this machine has the rules of a place's game, and its tables.

    A place names no code: a Python file is run only where this command line names it, with the same digest.
    """
    game, asked, here = get_game(settings.game).name, class_of(settings.game), class_of(own.game)
    if asked is not None and here is not None and here.plain == asked.plain and own.game != game:
        raise ConfigError(
            f"--game {here.file}: its sha256 begins with {here.digest}, that of the learner's file with "
            f"{asked.digest}; expected the same file"
        )
    if asked is not None:
        named_class(game)
    if (rules := rules_digest(game)) != settings.rules:
        raise ConfigError(
            f"{game}: the rules are {quoted(rules)} here, and {quoted(settings.rules)} at the learner; "
            "expected the same"
        )
    tables = own.typed.get("syzygy", "")
    if bool(settings.self_play.syzygy) != bool(tables):
        wanted = "the same tables" if settings.self_play.syzygy else "none, as at the learner"
        raise ConfigError(f"--syzygy {tables or 'is missing'}: expected {wanted}")


class _Actor:
    """Plays by one version of a place's settings."""

    def __init__(
        self,
        place: MeetingPlace,
        settings: PlaceSettings,
        digest: str,
        own: OfThisMachine,
        go_on: Callable[[], bool],
        say: Say,
    ) -> None:
        self._place, self._settings, self._digest, self._own = place, settings, digest, own
        self._id = new_actor()
        self._go_on = go_on
        self._say: Say = lambda text: say(f"actor {self._id[:4]}: {text}")
        self._oldest = OLDEST * settings.self_play.steps_per_generation
        self._games = replace(settings.self_play, **{"lanes": 0, "syzygy": "", **own.typed})
        self._tables = tables_of(self._games, settings.game)
        self._cache = new_cache(self._games.evaluation_cache)
        leaves = settings.search.leaves if settings.search.algorithm == "puct" else 1
        two_batches = 2 * max(1, self._games.evaluation_batch // leaves)
        self._lanes = [new_lane(number) for number in range(max(two_batches, self._games.lanes))]
        # Every actor's games are others: the core draws by seed, lane and number of the game.
        seed = (settings.seed + int(self._id, 16)) % 2**62
        self._rules = self_play_settings(settings.search, self._games, seed)
        self._evaluator: NetworkEvaluator | EvenLadder | None = None
        self._network: NetworkConfig | None = None
        self._pauses = False

    def play(self) -> bool:
        """Rounds of play until go_on gives False, or the settings change. True: the run has ended."""
        device = torch.cuda.get_device_name(self._own.device) if self._own.device.type == "cuda" else "cpu"
        status = ActorStatus(self._id, platform.node(), device)
        simulations, lead = self._settings.search.simulations, self._settings.lead_positions
        # A round brings half of the lead at most, so not much more than the learner wants.
        most = min(MOST_BUDGET, simulations * max(1, lead // (2 * len(self._lanes))))
        budget = least = min(most, simulations * LEAST_SEARCHES)
        with Courier(self._place, self._digest, status, self._say, self._oldest) as courier:
            self._say(f"plays {self._settings.game} for {self._place.name}, on {platform.node()}, {device}")
            while self._go_on() and not courier.settings_changed and not courier.run_ended:
                if not self._is_ready(courier):
                    time.sleep(POLL_S)
                    continue
                began = time.monotonic()
                self._play_round(courier, budget)
                seconds = time.monotonic() - began
                if seconds < ROUND_S / 2:
                    budget = min(most, 2 * budget)
                elif seconds > 2 * ROUND_S:
                    budget = max(least, budget // 2)
            return courier.run_ended

    def _is_ready(self, courier: Courier) -> bool:
        """Whether there are weights, which are loaded where they are newer, and games are wanted."""
        newest, (unused, behind) = courier.newest, courier.unused
        lead, oldest = self._settings.lead_positions, self._oldest
        is_ahead = unused > lead or behind > oldest
        if is_ahead != self._pauses:
            self._pauses = is_ahead
            waits = f"pauses: {unused:,} positions wait for the learner, the oldest for {behind:,} steps"
            limits = f"expected at most {lead:,}, for {oldest:,}"
            self._say(f"{waits}; {limits}" if is_ahead else "plays on")
        if newest is None or is_ahead:
            return False
        if newest.step != courier.opened:
            courier.opened = newest.step
            try:
                self._load(newest.path)
                courier.step = newest.step
            except AlphaZeroError as error:
                if self._evaluator is None:
                    raise
                self._say(f"{error}; plays on with the weights of step {courier.step}")
        return True

    def _load(self, path: Path) -> None:
        """Play with these weights from now on."""
        device, settings, game = self._own.device, self._settings, self._settings.game
        weights = open_weights(path)
        if weights.config.game != game:
            raise WeightsError(f"{path}: of {quoted(weights.config.game)}; expected {game}")
        if self._cache is not None:
            self._cache.clear()
        if self._evaluator is not None and weights.config == self._network:
            self._evaluator.load({name: tensor.to(device) for name, tensor in weights.state_dict.items()})
            return
        training = settings.precision if settings.precision in fast_precisions(device) else "fp32"
        asked = settings.self_play.evaluation_precision
        precision = self._own.precision or evaluation_precision(
            asked, training, device, weights.config.body, game
        )
        network = network_of(weights.config, weights.state_dict).to(device)
        batch_size = self._games.evaluation_batch
        self._evaluator = evaluator_for_self_play(network, device, precision, batch_size)
        self._network = weights.config

    def _play_round(self, courier: Courier, budget: int) -> None:
        """Every lane plays on for `budget` simulations; the games that end are delivered."""
        assert self._evaluator is not None
        before = courier.moves

        def on_progress(moves: int, _: int) -> bool:
            courier.moves = before + moves
            return self._go_on()

        played = play(
            self._settings.game,
            self._rules,
            self._lanes,
            budget,
            self._evaluator,
            in_simulations=True,
            cache=self._cache,
            num_threads=torch.get_num_threads(),
            tables=self._tables,
            on_progress=on_progress,
            on_fault=lambda finished: self._deliver(courier, finished),
        )
        self._lanes = played.under_way
        self._deliver(courier, played.finished)

    def _deliver(self, courier: Courier, finished: Sequence[_core.SelfPlayGame]) -> None:
        """Finished games as shards, by lane and number, each with at most a game above the limits."""
        finished = sorted(finished, key=lambda game: (game.lane, game.number))
        shard: list[_core.SelfPlayGame] = []
        positions = size_bytes = 0
        for number, game in enumerate(finished, start=1):
            shard.append(game)
            positions += int(np.count_nonzero(game.flags & TRAINED_ON))
            size_bytes += PLY_BYTES * len(game.moves) + ENTRY_BYTES * len(game.policy_move)
            is_full = positions >= POSITIONS_PER_SHARD or size_bytes >= BYTES_PER_SHARD
            if is_full or number == len(finished):
                courier.deliver(games.to_batch(shard), self._settings.rules)
                shard, positions, size_bytes = [], 0, 0
