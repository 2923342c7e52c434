"""What the inbox of a learner takes from a place, one look at a time."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from alphazero.base.errors import BusyError, PlaceRefusedError
from alphazero.network.weights.weights import WeightsFile
from alphazero.play import lanes
from alphazero.play.actors.arrival import ArrivedGames, check_shard
from alphazero.play.actors.place import open_place
from alphazero.play.actors.pointers import (
    Account,
    ActorStatus,
    LearnerState,
    PlaceSettings,
    read_learner,
    write_learner,
    write_status,
)
from alphazero.play.actors.shard import ShardName, new_actor
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.run import checkpoint_files
from alphazero.run.directory import RunDirectory
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from alphazero.training.sources.inbox import Inbox
from tests.support.actors.learner import put_shard
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

SETTINGS = PlaceSettings("connect4", 1000, 3, "fp32", SearchConfig(simulations=4), SelfPlayConfig())


@pytest.fixture(scope="module")
def some_games() -> pa.RecordBatch:
    rules = self_play_settings(SETTINGS.search, SETTINGS.self_play, seed=1)
    evaluator = MadeUpEvaluator("connect4", 8)
    return lanes.to_batch(play("connect4", rules, [new_lane(0), new_lane(1)], 60, evaluator).finished)


class OfTest:
    """A place and the inbox of a learner there, which looks when a test asks it to."""

    def __init__(self, directory: Path, settings: PlaceSettings = SETTINGS) -> None:
        self.directory, self.settings, self.said = directory, settings, list[str]()
        self.place = open_place(str(directory / "place"), make=True)
        self.start()

    def start(self) -> None:
        """Another learner; the one before was killed."""
        run = RunDirectory(self.directory)
        self.inbox = Inbox(self.place, self.settings, run, 2000, self.said.append, renew_s=3600.0)
        self.inbox._thread.start = lambda: None
        self.inbox.start()

    def publish(self, *steps: int) -> None:
        """Weights of these steps, one after the other."""
        for step in steps:
            self.inbox.publish(step, WeightsFile(NetworkConfig(game="connect4"), {}, {}))
            self.inbox._look()

    def taken(self) -> list[tuple[str, int, bool]]:
        """Look once, and take all that is there: actor, number, whether it was refused."""
        self.inbox._look()
        shards = [arrival.shard for arrival in self.inbox.take(10**9)]
        return [(shard.actor, shard.number, shard.refused) for shard in shards]


def test_after_a_kill_games_enter_whose_weights_were_published_since_the_checkpoint(
    tmp_path, some_games
) -> None:
    world, actor = OfTest(tmp_path), new_actor()
    world.inbox.stand(100, {}, (100,))
    world.publish(200, 300, 400, 500, 600)
    for number, step in enumerate((100, 200, 600, 700)):
        put_shard(world.place, actor, number, some_games, step, "")
    world.start()  # from the checkpoint of step 100, and once more
    world.inbox.stand(100, {}, (100,))
    world.publish(200)
    world.start()
    world.inbox.stand(100, {}, (100,))
    assert world.taken() == [(actor, 0, False), (actor, 1, False), (actor, 2, False), (actor, 3, True)]
    assert all("weights of step 700: not published here" in line for line in world.said)


def test_no_shard_is_looked_at_before_the_run_stands_somewhere(tmp_path, some_games) -> None:
    """Until then learner.json has the accounts of the learner before, by which actors see what is unused."""
    world, actor = OfTest(tmp_path), new_actor()
    world.inbox.stand(0, {}, (0,))
    for number in range(2):
        put_shard(world.place, actor, number, some_games, 0, "")
    assert len(world.taken()) == 2
    world.inbox._look()
    world.start()
    put_shard(world.place, actor, 2, some_games, 2100, "")
    world.inbox._look()
    learner = read_learner(world.place)
    assert learner is not None and learner.actors[actor].shards == 2 and world.inbox.take(1) == []
    world.inbox.stand(2100, {actor: Account(2, 10)}, (0, 2100))
    assert world.taken() == [(actor, 2, False)] and world.said == []


def test_a_shard_whose_check_takes_too_much_memory_is_refused(tmp_path, some_games, monkeypatch) -> None:
    world, actor = OfTest(tmp_path), new_actor()
    world.inbox.stand(0, {}, (0,))
    bad, _ = (put_shard(world.place, actor, number, some_games, 0, "") for number in range(2))

    def check(name: ShardName, *others: Any) -> ArrivedGames:
        if name == bad:
            raise MemoryError
        return check_shard(name, *others)

    monkeypatch.setattr("alphazero.training.sources.inbox.check_shard", check)
    assert world.taken() == [(actor, 0, True), (actor, 1, False)]
    assert world.said == [f"refused: {bad}: its check takes more memory than is free"]


def test_an_actor_whose_shard_cannot_be_read_is_named_once_and_those_of_others_enter(
    tmp_path, some_games, monkeypatch
) -> None:
    world, (first, bad, last) = OfTest(tmp_path), ("00" * 8, "55" * 8, "ff" * 8)
    world.inbox.stand(0, {}, (0,))
    for actor in (first, bad, last):
        for number in range(2):
            put_shard(world.place, actor, number, some_games, 0, "")
    get = world.place.get

    def read(name: str, most_bytes: int) -> bytes | None:
        if f"/{bad}/" in name:
            raise PlaceRefusedError(f"{name}: Permission denied")
        return get(name, most_bytes)

    monkeypatch.setattr(world.place, "get", read)
    assert sorted(world.taken()) == [(actor, number, False) for actor in (first, last) for number in (0, 1)]
    assert world.taken() == [] and len(world.said) == 1
    assert (
        world.said[0].endswith("Permission denied; games of other actors are taken") and bad in world.said[0]
    )
    monkeypatch.undo()
    assert world.taken() == [(bad, 0, False), (bad, 1, False)]


def test_of_an_actor_with_very_much_the_first_shards_are_taken_and_then_the_others(
    tmp_path, some_games, monkeypatch
) -> None:
    world, actor = OfTest(tmp_path), new_actor()
    world.inbox.stand(0, {}, (0,))
    size_bytes = 0
    for number in range(4):
        put_shard(world.place, actor, number, some_games, 0, "")
        size_bytes = world.place.entries("games")[0].size_bytes
    monkeypatch.setattr("alphazero.training.sources.inbox.MOST_ACTOR_BYTES", 2 * size_bytes)
    assert [number for _, number, _ in world.taken()] == [0, 1]
    assert [number for _, number, _ in world.taken()] == [2, 3]
    assert world.said == []


def test_the_queue_has_a_limit_of_all_positions_and_room_for_every_actor(tmp_path, some_games) -> None:
    plies = len(lanes.entries(some_games, "moves"))
    settings = dataclasses.replace(SETTINGS, lead_positions=plies // 3)  # a little less than one shard's
    world, actors = OfTest(tmp_path, settings), sorted(new_actor() for _ in range(3))
    world.inbox.stand(0, {}, (0,))
    untrained = untrained_on(some_games)
    for number in range(2):
        for actor in actors:
            put_shard(world.place, actor, number, untrained if actor == actors[0] else some_games, 0, "")
    for number in range(2):
        for actor in actors:
            for _ in range(3):
                world.inbox._look()
            assert world.taken() == [(actor, number, False)]


def untrained_on(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same games after quick searches."""
    nothing = {"policy_move": [], "policy_prob": []}
    rows = [
        row | nothing | {name: [0] * len(row[name]) for name in ("flags", "policy_offset")}
        for row in batch.to_pylist()
    ]
    return pa.RecordBatch.from_pylist(rows, lanes.GAME_SCHEMA)


def test_the_lease_is_renewed_within_a_long_look_and_its_loss_is_noticed(
    tmp_path, some_games, monkeypatch
) -> None:
    world, actor = OfTest(tmp_path), new_actor()
    world.inbox.stand(0, {}, (0,))
    for number in range(4):
        put_shard(world.place, actor, number, some_games, 0, "")
    world.inbox._renew_s = 0.0  # every moment is later than that
    before = read_learner(world.place)
    assert len(world.taken()) == 4
    after = read_learner(world.place)
    assert before is not None and after is not None and after.counter >= before.counter + 5
    get = world.place.get

    def read(name: str, most_bytes: int) -> bytes | None:
        if name.startswith("games/"):
            write_learner(world.place, LearnerState("other", 1, 3, False, {}))
        return get(name, most_bytes)

    monkeypatch.setattr(world.place, "get", read)
    for number in range(4, 6):
        put_shard(world.place, actor, number, some_games, 0, "")
    with pytest.raises(BusyError, match="learner other works there, at step 3"):
        world.inbox._look()


def test_of_actors_without_a_folder_no_status_is_read_and_one_that_has_ended_loses_its(
    tmp_path, monkeypatch
) -> None:
    world, (gone, ended, plays) = OfTest(tmp_path), (new_actor() for _ in range(3))
    for actor in (gone, ended, plays):
        write_status(world.place, ActorStatus(actor, "host", "cpu", ended=actor != plays))
    for actor in (ended, plays):
        (tmp_path / "place" / "games" / actor).mkdir(parents=True)
    read: list[str] = []
    get = world.place.get
    monkeypatch.setattr(world.place, "get", lambda name, most: read.append(name) or get(name, most))
    checkpoint = tmp_path / "checkpoints" / "step-00000100"
    monkeypatch.setattr(checkpoint_files, "checkpoints_in", lambda directory: [checkpoint])
    monkeypatch.setattr(
        "alphazero.training.sources.inbox.read_state", lambda path: SimpleNamespace(self_play={})
    )
    world.inbox._clean()
    assert sorted(read) == sorted(f"actors/{actor}.json" for actor in (ended, plays))
    assert world.place.folders("games") == [plays]
