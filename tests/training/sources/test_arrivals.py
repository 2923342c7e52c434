"""Runs that learn from games of actors: what enters, once and in order, whatever is killed when."""

import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from alphazero.base.errors import BusyError, ConfigError, DataError, PlaceError
from alphazero.cli.command_table import build_parser
from alphazero.cli.training.train import read_settings as read_settings_of_training
from alphazero.network.weights.weights import WeightsFile
from alphazero.play import lanes
from alphazero.play.actors.place import MeetingPlace, open_place
from alphazero.play.actors.pointers import (
    LearnerState,
    PlaceSettings,
    read_learner,
    read_newest,
    read_settings,
    write_learner,
)
from alphazero.play.actors.shard import new_actor
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.settings.load import Config
from alphazero.settings.sections import NetworkConfig
from alphazero.training.sources.arrivals import check_ways, place_settings
from alphazero.training.sources.inbox import Inbox, require_free
from tests.support.actors.learner import put_shard
from tests.support.actors.ledger import Archive, add_up
from tests.support.jobs.kill_chain import sleep_while_running
from tests.support.paths import REPOSITORY
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator
from tests.training.start.test_self_play_runs import ARGUMENTS as HERE
from tests.training.start.test_self_play_runs import GENERATIONS, RUN, STEPS

ARGUMENTS = (*HERE, "--self-play-from", "elsewhere")
ACT = REPOSITORY / "tests" / "support" / "actors" / "act.py"


def settings_in(place: MeetingPlace) -> PlaceSettings | None:
    try:
        found = read_settings(place)
    except PlaceError:  # not there yet
        return None
    return found[0] if found else None


class QuickActor:
    """Publishes games of a made-up network as fast as the learner takes them; a context manager.

    Killed, which is what `end` does, it leaves what it published. bad: the numbers of shards that it spoils.
    """

    def __init__(self, place: Path, bad: tuple[int, ...] = ()) -> None:
        self.id, self.bad, self.number = new_actor(), bad, 0
        self._place = open_place(str(place))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "QuickActor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while (settings := settings_in(self._place)) is None:
            if self._ends.wait(0.05):
                return
        rules = self_play_settings(settings.search, settings.self_play, seed=int(self.id[:8], 16))
        under_way, evaluator = [new_lane(lane) for lane in range(4)], MadeUpEvaluator("connect4", 8)
        while not self._ends.wait(0.02):
            newest, learner = read_newest(self._place), read_learner(self._place)
            used = learner.actors.get(self.id) if learner else None
            if newest is None or self.number - (used.shards if used else 0) >= 6:
                continue
            played = play("connect4", rules, under_way, 12, evaluator)
            under_way = played.under_way
            if not played.finished:
                continue
            batch = lanes.to_batch(played.finished)
            if self.number in self.bad:
                rows = [row | {"result": 5} for row in batch.to_pylist()]
                batch = pa.RecordBatch.from_pylist(rows, lanes.GAME_SCHEMA)
            put_shard(self._place, self.id, self.number, batch, newest.step, settings.rules)
            self.number += 1


def finish(job, ranks: int) -> str:
    assert job.wait() == [0] * ranks, job.output()[-4000:]
    return job.output()


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{GENERATIONS * STEPS:08d}" / "weights.safetensors")


def checksum_in(output: str) -> str:
    step = GENERATIONS * STEPS
    return re.findall(rf"checkpoint at step {step}: .*checksum ([0-9a-f]+)", output)[-1]


@pytest.fixture(scope="module")
def fed(zygote, tmp_path_factory):
    """A run on two ranks whose games two actors brought, one of which spoils its second shard."""
    directory = tmp_path_factory.mktemp("fed")
    place = directory / RUN / "place"
    job = zygote.start(directory, 2, ARGUMENTS)
    with Archive(place, directory / "archive"), QuickActor(place), QuickActor(place, bad=(1,)) as spoils:
        (directory / "output.txt").write_text(finish(job, 2))
    (directory / "spoils").write_text(spoils.id)
    return directory


def test_published_and_used_games_add_up(fed) -> None:
    ledger = subprocess.run(
        [sys.executable, "-m", "tests.support.actors.ledger", fed / RUN, fed / "archive"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert ledger.returncode == 0, ledger.stderr
    found = json.loads(ledger.stdout)
    assert found["refused"] == 1 and found["used"] > 4
    assert found["published"] == found["used"] + found["refused"] + found["waiting"]


def test_a_spoiled_shard_is_set_aside_with_the_reason_and_counted_by_actor(fed) -> None:
    spoils, output = (fed / "spoils").read_text(), (fed / "output.txt").read_text()
    folder = fed / RUN / "games" / "refused"
    (record,) = map(json.loads, (folder / "reasons.jsonl").read_text().splitlines())
    assert (record["actor"], record["number"]) == (spoils, 1)
    assert "game 0: " in record["reason"] and f"refused: games/{spoils}/00000001-" in output
    assert [path.suffix for path in sorted(folder.iterdir())] == [".arrow", ".jsonl"]
    learner = read_learner(open_place(str(fed / RUN)))
    assert learner is not None and learner.ended and learner.id == ""
    assert {actor: account.refused for actor, account in learner.actors.items()}[spoils] == 1


def test_used_shards_and_old_weights_are_gone_when_a_checkpoint_has_used_them(fed) -> None:
    place = open_place(str(fed / RUN))
    learner = read_learner(place)
    assert learner is not None
    for entry in place.entries("games"):
        _, actor, name = entry.name.split("/")
        assert int(name[:8]) >= learner.actors[actor].shards
    assert len(place.entries("weights")) == 4  # three and the pointer
    newest = read_newest(place)
    assert newest is not None and newest.step == (GENERATIONS - 1) * STEPS


def test_the_age_of_games_the_wait_and_each_actor_are_in_the_figures(fed) -> None:
    figures = RunFigures.read(RunDirectory(fed / RUN))
    rows = figures.of("self_play").rows()
    positions = 0.0
    for row in rows:
        positions += row["brought_positions"]
        assert (row["step"] + STEPS) * 32 <= positions
        assert row["waited_s"] >= 0 and 0 <= row.get("age_mean", 0) <= row.get("age_oldest", 0) <= row["step"]
    by_actor = {name.partition("/")[0] for row in figures.of("actors").rows() for name in row if "/" in name}
    assert len(by_actor) == 2
    assert re.search(r"positions by 2 actors, .* steps old, oldest", (fed / "output.txt").read_text())


def test_the_games_alone_repeat_the_training_to_the_bit_on_other_ranks(fed, zygote, tmp_path) -> None:
    output = finish(zygote.start(tmp_path, 1, [*HERE, "--replay", str(fed / RUN)]), 1)
    assert checksum_in(output) == checksum_in((fed / "output.txt").read_text())
    assert (tmp_path / RUN / "games" / "manifest.json").read_text() == (
        fed / RUN / "games" / "manifest.json"
    ).read_text()
    refused = zygote.start(tmp_path, 1, [*HERE, "--replay", str(fed / RUN), "--generations", "9"])
    assert refused.wait() == [2] and "has 4 generations" in refused.output()


@pytest.mark.parametrize("most_kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_whatever_is_killed_each_shard_enters_once_and_the_replay_gives_the_same_bits(
    zygote, tmp_path, most_kills
) -> None:
    """The learner dies again and again, and with each second life an actor; in the slow tier a real one."""
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILL_SEED={seed} chooses these instants again")
    rng, place = random.Random(seed), tmp_path / RUN / "place"
    actor, real, statuses = QuickActor(place), None, [None]
    with Archive(place, tmp_path / "archive"), QuickActor(place):
        actor.__enter__()
        kills = 0
        while statuses != [0]:
            job = zygote.start(tmp_path, 1, ARGUMENTS)
            if kills < most_kills:
                sleep_while_running(job, rng.uniform(0.5, 5.0))
                job.kill()
                if real is not None:
                    real.kill()
                    real.wait()
                if most_kills > 2:
                    real = zygote.start(tmp_path / "actor", 1, ["--for", str(place), "--device", "cpu"], ACT)
                if kills % 2:
                    actor.__exit__()
                    actor = QuickActor(place)
                    actor.__enter__()
            statuses = job.wait()
            kills += statuses == [-9]
            assert statuses in ([0], [-9]), job.output()[-4000:]
            output = job.output()
        actor.__exit__()
    if real is not None:
        real.kill()
        real.wait()
    found = add_up(tmp_path / RUN, tmp_path / "archive")
    assert found["refused"] == 0 and found["used"] > 0
    replay = zygote.start(tmp_path / "replay", 1, [*HERE, "--replay", str(tmp_path / RUN)])
    assert checksum_in(finish(replay, 1)) == checksum_in(output)


def test_a_second_learner_is_seen_by_its_counter_and_by_no_clock(tmp_path) -> None:
    place = open_place(str(tmp_path / "place"), make=True)
    require_free(place, 0.1)  # nobody was there
    write_learner(place, LearnerState("other", 7, 40, False, {}))
    began = time.monotonic()
    require_free(place, 0.1)  # it stands still
    assert time.monotonic() - began >= 0.4
    for given_back in (LearnerState("", 8, 40, False, {}), LearnerState("other", 8, 40, True, {})):
        write_learner(place, given_back)
        began = time.monotonic()
        require_free(place, 10.0)
        assert time.monotonic() - began < 5.0
    write_learner(place, LearnerState("other", 9, 40, False, {}))
    renewal = threading.Timer(0.1, write_learner, (place, LearnerState("other", 10, 41, False, {})))
    renewal.start()
    with pytest.raises(BusyError, match="learner other works there, at step 41"):
        require_free(place, 1.0)


def test_the_loser_of_a_place_stops_before_it_publishes(tmp_path, fed) -> None:
    settings = settings_in(open_place(str(fed / RUN)))
    assert settings is not None
    place = open_place(str(tmp_path / "place"), make=True)
    inbox = Inbox(place, settings, RunDirectory(tmp_path), 100, print, renew_s=0.05)
    inbox.start()
    inbox.stand(0, {}, ())
    other, began = LearnerState("other", 1, 3, False, {}), time.monotonic()
    with pytest.raises(BusyError, match="learner other works there, at step 3"):
        while time.monotonic() - began < 20:  # what it writes may be overwritten once
            (tmp_path / "other.json").write_text(json.dumps(dataclasses.asdict(other)))
            (tmp_path / "other.json").replace(tmp_path / "place" / "learner.json")
            inbox.take(1)
            inbox.wait(0.05)
    inbox.close(ended=True)
    left = read_learner(place)
    assert left is not None and left.id == "other" and read_newest(place) is None


def play_some(settings: PlaceSettings):
    rules = self_play_settings(settings.search, settings.self_play, seed=1)
    return play("connect4", rules, [new_lane(lane) for lane in range(4)], 60, MadeUpEvaluator("connect4", 8))


def test_a_place_that_is_cut_off_stops_no_training_and_is_used_again(tmp_path, fed) -> None:
    settings = settings_in(open_place(str(fed / RUN)))
    assert settings is not None
    said: list[str] = []
    place = open_place(str(tmp_path / "place"), make=True)
    inbox = Inbox(place, settings, RunDirectory(tmp_path), 100, said.append, renew_s=0.02)
    inbox.start()
    inbox.stand(0, {}, (0,))
    (tmp_path / "place").rename(tmp_path / "away")
    deadline = time.monotonic() + 20
    while not said and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "training continues with the games that it has" in said[0] and inbox.take(1000) == []
    (tmp_path / "away").rename(tmp_path / "place")
    played = play_some(settings)
    put_shard(place, new_actor(), 0, lanes.to_batch(played.finished), 0, "")
    taken = []
    while not taken and time.monotonic() < deadline:
        inbox.wait(0.1)
        taken = inbox.take(1000)
    assert [one.shard.games for one in taken] == [len(played.finished)]
    inbox.close(ended=False)


class PausingDeque(deque):
    """Gives a thread that changes it meanwhile the time to."""

    def __iter__(self):
        for one in super().__iter__():
            time.sleep(0.002)
            yield one


def test_shards_are_taken_while_others_come_in(tmp_path, fed) -> None:
    settings = settings_in(open_place(str(fed / RUN)))
    assert settings is not None
    place = open_place(str(tmp_path / "place"), make=True)
    rules = self_play_settings(settings.search, settings.self_play, seed=1)
    under_way = [new_lane(lane) for lane in range(4)]
    played = play("connect4", rules, under_way, 400, MadeUpEvaluator("connect4", 8)).finished[:20]
    actor = new_actor()
    for number, game in enumerate(played):
        put_shard(place, actor, number, lanes.to_batch([game]), 0, "")
    inbox = Inbox(place, settings, RunDirectory(tmp_path), 100, print, renew_s=0.02)
    inbox._queue, inbox._most_waiting = PausingDeque(), 10**9
    inbox.start()
    inbox.stand(0, {}, (0,))
    taken, deadline = [], time.monotonic() + 20
    while len(taken) < len(played) and time.monotonic() < deadline:
        inbox.wait(0.01)
        taken += inbox.take(1)
        time.sleep(0.005)
    inbox.close(ended=False)
    assert len(played) == 20
    assert [one.shard.number for one in taken] == list(range(20))


def test_a_full_place_is_read_all_the_same_and_written_to_ever_less_often(tmp_path, fed, monkeypatch) -> None:
    settings = settings_in(open_place(str(fed / RUN)))
    assert settings is not None
    said: list[str] = []
    place = open_place(str(tmp_path / "place"), make=True)
    inbox = Inbox(place, settings, RunDirectory(tmp_path), 100, said.append, renew_s=0.02)
    inbox.start()
    inbox.stand(0, {}, (0,))
    put_shard(open_place(place.name), new_actor(), 0, lanes.to_batch(play_some(settings).finished), 0, "")
    tries: list[str] = []

    def full(name: str, content: bytes) -> None:
        tries.append(name)
        raise PlaceError(f"{name}: No space left on device")

    monkeypatch.setattr(place, "put", full)
    inbox.publish(5, WeightsFile(NetworkConfig(game="connect4"), {}, {}))
    taken, deadline = inbox.take(1000), time.monotonic() + 20
    while not taken and time.monotonic() < deadline:
        inbox.wait(0.1)
        taken = inbox.take(1000)
    assert len(taken) == 1
    tries.clear()
    time.sleep(1.0)
    assert len(tries) < 10 and 1 <= len(said) <= 2  # of the weights, of the lease
    monkeypatch.undo()
    inbox.close(ended=False)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--place", "elsewhere"), "--place elsewhere: expected --self-play-from elsewhere, or both"),
        (
            ("--mode", "supervised", "--self-play-from", "both"),
            "--self-play-from both: expected --mode selfplay, or mixed",
        ),
        (("--replay", "x", "--self-play-from", "both"), "--replay x: expected --self-play-from here"),
        (
            ("--opening-plies", "9", "--max-plies", "9"),
            "--opening-plies 9, --max-plies 9: expected openings that are shorter than games",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_answered(tmp_path, flags, words) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        check_ways(config_of(*flags), RunDirectory(tmp_path))


def test_a_directory_with_another_programs_settings_is_no_place(tmp_path) -> None:
    settings = tmp_path / "project" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"theme": "dark"}')
    config = config_of("--self-play-from", "elsewhere", "--place", str(settings.parent))
    with pytest.raises(DataError, match=r"settings\.json: is not"):
        check_ways(config, RunDirectory(tmp_path / "run"))
    assert [path.name for path in settings.parent.iterdir()] == [settings.name]


def test_a_run_that_is_made_longer_has_the_same_settings_for_actors() -> None:
    longer, other = (place_settings(config_of(*flags)) for flags in (("--generations", "9"), ("--seed", "9")))
    assert longer == place_settings(config_of("--generations", "4")) != other


def config_of(*flags: str) -> Config:
    args = build_parser("train").parse_args(["--config", "connect4", "--mode", "selfplay", *flags])
    return read_settings_of_training(args, "connect4")
