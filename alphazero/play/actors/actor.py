"""An actor: plays games for a learner that it meets in a place, and nowhere else.

It keeps nothing: who it is, is random and new at each start, and games under way end with it.
"""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import alphazero._core as _core
from alphazero.base.errors import AlphaZeroError, ConfigError, PlaceError, PlaceRefusedError, WeightsError
from alphazero.base.log import Say
from alphazero.base.text import quoted
from alphazero.data.store.columns import TRAINED_ON
from alphazero.games.outside.names import class_of, named_class
from alphazero.games.registry import get_game
from alphazero.machine.environment import version_of
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.purpose import EvenLadder, evaluator_for_self_play
from alphazero.network.model.precision import evaluation_precision, fast_precisions
from alphazero.network.weights.open_network import open_weights
from alphazero.network.weights.weights import network_of
from alphazero.play import lanes as games
from alphazero.play.actors.courier import Courier, Tries
from alphazero.play.actors.place import SETTINGS, MeetingPlace, open_place
from alphazero.play.actors.pointers import ActorStatus, PlaceSettings, read_settings, rules_digest
from alphazero.play.actors.shard import new_actor
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_cache, new_lane, play, tables_of
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import MOST_BUDGET, SelfPlayConfig

ROUND_S = 20.0  # that a round of play should last: then games are published and weights looked for
POSITIONS_PER_SHARD = 1 << 16
POLL_S = 0.1


@dataclass(frozen=True)
class OfThisMachine:
    """What an actor has of its own command line; all else comes from the place.

    game: the recorded name of --game, "" where there is none. precision, evaluation_batch, evaluation_cache:
    None for those of the place. lanes: the fewest; it has at least two batches of them.
    """

    device: torch.device
    game: str = ""
    precision: str | None = None
    lanes: int = 0
    evaluation_batch: int | None = None
    evaluation_cache: int | None = None
    syzygy: str = ""


def run_actor(place: str, own: OfThisMachine, go_on: Callable[[], bool], say: Say) -> None:
    """Play until go_on gives False or the run has ended. say: prints lines.

    Raises ConfigError where the learner has another version, other rules or settings that this machine
    cannot follow, and PlaceError where the place refuses from the start.
    """
    while go_on():
        found = _wait_for_settings(place, go_on, say)
        if found is None:
            return
        met, settings, digest = found
        check(settings, own)
        actor = _Actor(met, settings, digest, own, go_on, say)
        if actor.play():
            say("the run has ended: its learner needs no more games")
            return


def _wait_for_settings(
    place: str, go_on: Callable[[], bool], say: Say
) -> tuple[MeetingPlace, PlaceSettings, str] | None:
    """The place and its settings, None where it shall wait no longer."""
    tries = Tries(say)
    answered = False
    while go_on():
        try:
            met = open_place(place)  # anew: a run gets its place when its learner starts
            if (found := read_settings(met)) is not None:
                return met, *found
            answered = True
            pause_s = tries.failed(PlaceError(f"{met.name}: no {SETTINGS} yet: no learner has started here"))
        except PlaceError as error:
            if isinstance(error, PlaceRefusedError) and not answered:
                raise
            pause_s = tries.failed(error)
        _sleep(min(pause_s, 10.0), go_on)
    return None


def _sleep(seconds: float, go_on: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and go_on():
        time.sleep(POLL_S)


def check(settings: PlaceSettings, own: OfThisMachine) -> None:
    """Raises ConfigError unless this machine has the rules of a place's game, and its tables.

    A place names no code: a Python file is run only where this command line names it, with the same digest.
    """
    game, asked, here = get_game(settings.game).name, class_of(settings.game), class_of(own.game)
    if asked is not None and own.game != game:
        if here is not None and here.plain == asked.plain:
            raise ConfigError(
                f"--game {here.file}: its sha256 begins with {here.digest}, that of the learner's file with "
                f"{asked.digest}; expected the same file"
            )
        flag = shlex.quote(f"PATH/{asked.plain}")
        raise ConfigError(f"{quoted(game)}: is run only where you name its file; expected --game {flag}")
    if asked is not None:
        named_class(game)
    if (rules := rules_digest(game)) != settings.rules:
        raise ConfigError(
            f"{game}: the rules are {quoted(rules)} here, and {quoted(settings.rules)} at the learner; "
            "expected the same"
        )
    if bool(settings.self_play.syzygy) != bool(own.syzygy):
        wanted = "the same tables" if settings.self_play.syzygy else "none, as at the learner"
        raise ConfigError(f"--syzygy {own.syzygy or 'is missing'}: expected {wanted}")


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
        games_own = replace(settings.self_play, syzygy=own.syzygy)
        if own.evaluation_batch is not None:
            games_own = replace(games_own, evaluation_batch=own.evaluation_batch)
        if own.evaluation_cache is not None:
            games_own = replace(games_own, evaluation_cache=own.evaluation_cache)
        self._games: SelfPlayConfig = games_own
        self._tables = tables_of(games_own, settings.game)
        self._cache = new_cache(games_own.evaluation_cache)
        leaves = settings.search.leaves if settings.search.algorithm == "puct" else 1
        lanes = max(own.lanes, 2 * max(1, games_own.evaluation_batch // leaves))
        self._lanes = [new_lane(number) for number in range(lanes)]
        # Every actor's games are others: the core draws by seed, lane and number of the game.
        seed = (settings.seed + int(self._id, 16)) % 2**62
        self._rules = self_play_settings(settings.search, games_own, seed)
        self._evaluator: NetworkEvaluator | EvenLadder | None = None
        self._network: NetworkConfig | None = None

    def play(self) -> bool:
        """Rounds of play until go_on gives False, or the settings change. True: the run has ended."""
        device = torch.cuda.get_device_name(self._own.device) if self._own.device.type == "cuda" else "cpu"
        status = ActorStatus(
            self._id, 0, platform.node(), device, version_of("alphazero"), 0, 0, 0.0, -1, False
        )
        budget = self._settings.search.simulations
        with Courier(self._place, self._digest, status, self._say) as courier:
            self._say(f"plays {self._settings.game} for {self._place.name}, on {platform.node()}, {device}")
            while self._go_on() and not courier.settings_changed and not courier.run_ended:
                if not self._is_ready(courier):
                    time.sleep(POLL_S)
                    continue
                began = time.monotonic()
                self._play_round(courier, budget)
                seconds = time.monotonic() - began
                if seconds < ROUND_S / 2:
                    budget = min(MOST_BUDGET, 2 * budget)
                elif seconds > 2 * ROUND_S:
                    budget = max(self._settings.search.simulations, budget // 2)
            return courier.run_ended

    def _is_ready(self, courier: Courier) -> bool:
        """Whether there are weights, which are loaded where they are newer, and games are wanted."""
        newest, lead = courier.newest, self._settings.lead_positions
        is_ahead = courier.unused > lead
        if is_ahead != courier.pauses:
            courier.pauses = is_ahead
            waits = f"pauses: {courier.unused:,} positions wait for the learner, more than {lead:,}"
            self._say(waits if is_ahead else "plays on")
        if newest is None or is_ahead:
            return False
        if newest.step != courier.step:
            try:
                self._load(newest.path)
            except AlphaZeroError as error:
                if self._evaluator is None:
                    raise
                self._say(f"{error}; plays on with the weights of step {courier.step}")
            courier.step = newest.step
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
            self._evaluator.load({name: one.to(device) for name, one in weights.state_dict.items()})
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
        """Finished games as shards, by lane and number, none much larger than POSITIONS_PER_SHARD."""
        finished = sorted(finished, key=lambda game: (game.lane, game.number))
        shard: list[_core.SelfPlayGame] = []
        positions = 0
        for number, game in enumerate(finished, start=1):
            shard.append(game)
            positions += int(np.count_nonzero(game.flags & TRAINED_ON))
            if positions >= POSITIONS_PER_SHARD or number == len(finished):
                courier.deliver(games.to_batch(shard), self._settings.rules)
                shard, positions = [], 0
