"""The learner's side of a place, as tests write it: settings, weights of a tiny network, what was taken."""

from __future__ import annotations

import itertools

import torch

from alphazero.games.registry import get_spec, make_line
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import WeightsFile
from alphazero.play.actors.place import MeetingPlace
from alphazero.play.actors.pointers import (
    Account,
    LearnerState,
    PlaceSettings,
    publish_weights,
    rules_digest,
    write_learner,
    write_settings,
)
from alphazero.play.actors.shard import MOST_SHARD_BYTES, ShardName, read_shard, shard_of
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig


def put_shard(place: MeetingPlace, actor: str, number: int, batch, step: int, rules: str) -> ShardName:
    """Write finished games to a place, as the courier of an actor does."""
    name, content = shard_of(actor, number, batch, step, rules)
    place.put(str(name), content)
    return name


class StandInLearner:
    """Writes what a learner writes; takes shards as one takes them, without training."""

    def __init__(self, place: MeetingPlace, game: str = "connect4", *, lead: int = 100_000, **others) -> None:
        self.place, self.game = place, game
        own = SelfPlayConfig(evaluation_batch=8, evaluation_cache=0, evaluation_precision="fp32")
        settings = PlaceSettings(
            game, lead, 0, "fp32", SearchConfig(simulations=4), own, rules=rules_digest(game)
        )
        self.settings = PlaceSettings(**{**vars(settings), **others})
        self.digest = write_settings(place, self.settings)
        self.accounts: dict[str, Account] = {}
        self._counter = 0

    def publish(self, step: int) -> None:
        """Weights of this step, other ones for every step."""
        config = NetworkConfig(game=self.game, blocks=1, filters=8)
        network = AlphaZeroNet(config, get_spec(self.game), torch.Generator().manual_seed(step))
        publish_weights(
            self.place, step, WeightsFile(config, network.state_dict(), {"step": step}), self.digest
        )

    def say(self, *, ended: bool = False) -> None:
        """learner.json with the accounts."""
        self._counter += 1
        write_learner(self.place, LearnerState("me", self._counter, 0, ended, self.accounts))

    def shards(self) -> list[ShardName]:
        """All that is in the place, in the order of training."""
        found = [ShardName.of(entry.name) for entry in self.place.entries("games")]
        return sorted(name for name in found if name)


def games_in(learner: StandInLearner) -> list[tuple[str, int, int, tuple[int, ...]]]:
    """Actor, number, step and moves of every game; each is legal and shards have no gaps."""
    found = []
    for actor, names in itertools.groupby(learner.shards(), lambda name: name.actor):
        for expected, name in enumerate(names):
            assert name.number == expected
            origin, batch = read_shard(name, learner.place.get(str(name), MOST_SHARD_BYTES))
            for moves in batch.column("moves").to_pylist():
                line = make_line(learner.game)
                for move in moves:
                    assert move in line.legal()
                    line.push(move)
                found.append((actor, name.number, origin.step, tuple(moves)))
    return found
