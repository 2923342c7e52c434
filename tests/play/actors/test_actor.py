"""An actor plays for a learner that it meets in a place: whatever stops, fails or differs."""

import itertools
import math
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import alphazero._core as _core
from alphazero.base.errors import ConfigError
from alphazero.cli.main import main
from alphazero.play.actors import courier as courier_module
from alphazero.play.actors.actor import OfThisMachine, _Actor, run_actor
from alphazero.play.actors.courier import Courier
from alphazero.play.actors.place import open_place
from alphazero.play.actors.pointers import Account, ActorStatus, read_statuses
from alphazero.play.actors.shard import MOST_SHARD_BYTES, new_actor, shard_of
from alphazero.play.lanes import to_batch
from tests.support.actors.learner import StandInLearner, games_in
from tests.support.actors.player import CPU, WAIT_S, ActorThread, hurry

WITH_TABLES = OfThisMachine(torch.device("cpu"), typed={"syzygy": "x"})


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch, tmp_path) -> None:
    hurry(monkeypatch, tmp_path)


@pytest.fixture
def place(tmp_path):
    return open_place(str(tmp_path / "place"), make=True)


def test_it_waits_for_a_learner_plays_with_the_newest_weights_and_publishes(place) -> None:
    player = ActorThread(place.name)
    player.until(lambda: any("no learner has started here" in line for line in player.lines))
    learner = StandInLearner(place)
    learner.publish(0)
    player.until(lambda: len(learner.shards()) >= 2)
    learner.publish(7)
    player.until(lambda: {step for _, _, step, _ in games_in(learner)} == {0, 7})
    player.end()
    games = games_in(learner)
    assert len({moves for _, _, _, moves in games}) > 1
    ((name, status),) = read_statuses(place).items()
    assert {actor for actor, *_ in games} == {name}
    assert status.ended and status.shards == len(learner.shards()) and status.step == 7 and status.beat > 1
    assert any("positions/s" in line and "weights of step" in line for line in player.lines)
    assert status.positions == sum(len(moves) for *_, moves in games)


def test_no_two_actors_play_the_same_games(place) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    players = [ActorThread(place.name), ActorThread(place.name)]
    for player in players:
        player.until(lambda: len({name.actor for name in learner.shards()}) == 2)
        player.end()
    (_, one), (_, other) = (
        (actor, {moves for *_, moves in games})
        for actor, games in itertools.groupby(games_in(learner), lambda game: game[0])
    )
    assert not one & other


def test_without_a_learner_it_stops_at_the_lead_and_plays_on_when_games_are_taken(place) -> None:
    learner = StandInLearner(place, lead=300)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: any("pauses: " in line for line in player.lines))
    time.sleep(0.5)
    before = learner.shards()
    time.sleep(0.5)
    assert learner.shards() == before
    positions = sum(len(moves) for *_, moves in games_in(learner))
    assert 300 < positions < 3000
    learner.accounts = {before[0].actor: Account(len(before), positions, 1)}
    learner.say()
    player.until(lambda: len(learner.shards()) > len(before))
    player.end()
    assert "1 shard refused" in player.lines[-1]


def test_it_pauses_while_its_games_wait_for_more_than_three_generations(place) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 0)
    learner.publish(301)  # the default: 100 steps a generation
    player.until(lambda: any("the oldest for 301 steps; expected" in line for line in player.lines))
    time.sleep(0.5)
    before = learner.shards()
    learner.accounts = {before[0].actor: Account(len(before), 1)}
    learner.say()
    player.until(lambda: {step for _, _, step, _ in games_in(learner)} == {0, 301})
    player.end()


def test_a_slow_link_does_not_keep_an_actor_at_weights_whose_games_are_refused(place) -> None:
    learner = StandInLearner(place)
    courier = Courier(place, learner.digest, ActorStatus(new_actor(), "host", "cpu"), print, 300)
    courier._directory.mkdir(parents=True)
    for step, fetched, pause_s in ((0, 0, 0.0), (300, 0, math.inf), (301, 301, math.inf), (302, 302, 0.0)):
        learner.publish(step)
        courier._fetch_after = pause_s
        courier._look()
        assert courier.newest is not None and courier.newest.step == fetched
        courier.step = courier.opened = fetched


def test_weights_that_cannot_be_played_with_are_passed_over_and_no_shard_names_them(place) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 0)
    learner.game = "tictactoe"
    learner.publish(7)
    player.until(lambda: any("plays on with the weights of step 0" in line for line in player.lines))
    learner.game, before = "connect4", len(learner.shards())
    player.until(lambda: len(learner.shards()) > before + 2)
    learner.publish(9)
    player.until(lambda: any(step == 9 for _, _, step, _ in games_in(learner)))
    player.end()
    assert {step for _, _, step, _ in games_in(learner)} == {0, 9}


def long_game(number: int) -> _core.SelfPlayGame:
    """Some 28 MB and one position to train on."""
    game = _core.SelfPlayGame()
    game.number, plies = number, 65_535
    for name in ("moves", "flags", "root_q", "root_d", "best_q", "best_d", "orig_q", "orig_d", "visits"):
        setattr(game, name, np.zeros(plies, getattr(game, name).dtype))
    game.flags = np.eye(1, plies, dtype=np.uint8)[0]
    game.policy_offset = np.arange(plies + 1, dtype=np.uint32) * 100
    game.policy_move = game.policy_prob = np.ones(plies * 100, np.uint16)
    return game


def test_no_shard_is_larger_than_what_a_learner_takes() -> None:
    sizes: list[int] = []
    numbers: list[int] = []

    def deliver(batch, rules) -> None:
        sizes.append(len(shard_of(new_actor(), 0, batch, 0, rules)[1]))
        numbers.extend(batch.column("number").to_pylist())

    actor: Any = SimpleNamespace(_settings=SimpleNamespace(rules=""))
    courier: Any = SimpleNamespace(deliver=deliver)
    _Actor._deliver(actor, courier, [long_game(number) for number in range(5)])
    assert len(sizes) > 1 and max(sizes) <= MOST_SHARD_BYTES and numbers == list(range(5))


def test_it_ends_with_the_run_but_not_for_one_that_had_ended_before(place) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    learner.say(ended=True)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 0)
    learner.say()
    time.sleep(0.5)
    assert not player.has_ended
    learner.say(ended=True)
    player.until(lambda: player.has_ended, ends=True)
    assert "the run has ended" in player.lines[-1]


def test_other_settings_of_a_new_start_are_followed(place) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 0)
    learner = StandInLearner(place, seed=9)
    time.sleep(0.5)
    assert len(read_statuses(place)) == 1  # weights of the new start are not there yet
    learner.publish(1)
    player.until(lambda: len({name.actor for name in learner.shards()}) == 2)
    player.end()
    first, second = read_statuses(place).values()
    assert first.ended and second.ended and {step for _, _, step, _ in games_in(learner)} == {0, 1}


def test_it_ends_with_its_games_published_when_a_learner_of_another_version_takes_over(place) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 0)
    StandInLearner(place, version="0.0.1").publish(1)
    player.wait()
    assert isinstance(player.error, ConfigError)
    assert "the learner is alphazero version 0.0.1 (format 1); expected" in str(player.error)
    ((_, status),) = read_statuses(place).items()
    assert status.ended and status.shards == len(learner.shards())


def test_games_wait_on_the_disk_while_a_place_fails_and_none_is_lost(place, tmp_path) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 0)
    (tmp_path / "place").rename(tmp_path / "away")
    cache = tmp_path / "cache"
    player.until(lambda: len(list(cache.rglob("*.arrow"))) > 2)
    assert any("no such directory; will be tried again" in line for line in player.lines)
    (tmp_path / "away").rename(tmp_path / "place")
    player.until(lambda: not list(cache.rglob("*.arrow")) and len(learner.shards()) > 3)
    player.until(lambda: "the place answers again" in "\n".join(player.lines))
    player.end()
    assert games_in(learner) and not list(cache.rglob("*.*"))


def test_games_that_wait_for_a_learner_with_other_settings_are_not_published(place) -> None:
    learner = StandInLearner(place)
    for settings, published in (("of a learner before", 0), (learner.digest, 1)):
        left = new_actor()
        courier = Courier(place, settings, ActorStatus(left, "host", "cpu"), print, 0)
        courier.deliver(to_batch([]), "")
        (courier._directory / "settings").write_text(settings)
        with Courier(place, learner.digest, ActorStatus(new_actor(), "host", "cpu"), print, 0):
            pass
        assert [name.actor for name in learner.shards()] == [left] * published
        assert not courier._directory.exists()


def test_a_full_disk_costs_no_games(place, monkeypatch) -> None:
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(courier_module, "replacing", full)
    learner = StandInLearner(place)
    learner.publish(0)
    player = ActorThread(place.name)
    player.until(lambda: len(learner.shards()) > 1)
    player.end()
    assert games_in(learner)
    (line,) = (line for line in player.lines if "games wait in memory until" in line)
    assert "00000000-" in line and "No space left on device; expected a disk that has space;" in line


@pytest.mark.parametrize(
    ("others", "own", "said"),
    [
        ({"version": "0.0.1"}, CPU, "the learner is alphazero version 0.0.1 .*; expected "),
        ({"rules": "others"}, CPU, "connect4: the rules are '' here, and 'others' at the learner"),
        ({"game": "chess9"}, CPU, "'chess9': expected one of chess"),
        (
            {},
            OfThisMachine(torch.device("cpu"), typed={"syzygy": "x"}),
            "--syzygy x: expected none, as at the learner",
        ),
    ],
)
def test_another_version_other_rules_or_tables_are_refused(place, others, own, said) -> None:
    StandInLearner(place, **others)
    with pytest.raises(ConfigError, match=said):
        run_actor(place.name, own, lambda: True, print)


NIM = """
open("executed", "w").close()
class Nim:
    def __init__(self): self.left, self.player = 5, 0
    def num_distinct_actions(self): return 2
    def current_player(self): return self.player
    def legal_actions(self): return [a for a in (0, 1) if a < self.left]
    def apply_action(self, a): self.left -= a + 1; self.player = 1 - self.player
    def is_terminal(self): return self.left == 0
    def returns(self): return [1.0, -1.0] if self.player == 1 else [-1.0, 1.0]
    def observation_tensor(self, player): return [float(self.left == n) for n in range(6)]
"""


def test_a_game_in_python_is_run_only_where_the_command_names_the_same_file(place, tmp_path, capfd) -> None:
    file = tmp_path / "nim.py"
    file.write_text(NIM)
    StandInLearner(place, game=f"{file}:Nim@0123456789ab", rules="0123456789ab")
    assert main(["selfplay", "--for", place.name]) == 2
    assert "which is run only where you name it; expected --game PATH/nim.py:Nim" in capfd.readouterr().err
    assert main(["selfplay", "--for", place.name, "--game", f"{file}:Nim"]) == 2
    assert "its sha256 begins with" in (said := capfd.readouterr().err) and said.count("\n") == 1
    assert not (tmp_path / "executed").exists()


def test_settings_of_the_games_are_not_an_actors(place, capfd) -> None:
    for flags, named in {
        ("--simulations", "3"): "--simulations",
        ("--seed", "0"): "--seed",
        ("--out", "x"): "--out",
        ("--games", "4"): "--games",
    }.items():
        assert main(["selfplay", "--for", place.name, *flags]) == 2
        assert f"{named} with --for: expected it at the learner" in capfd.readouterr().err
    assert main(["selfplay"]) == 2
    assert "neither --out nor --for" in capfd.readouterr().err


def started(place, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "alphazero", "selfplay", "--for", place.name, "--device", "cpu", *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for(what, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert what()


@pytest.mark.slow
def test_a_signal_ends_two_processes_with_their_games_published(place, tmp_path) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    process = started(place, "--gpus", "2", "--lanes", "200")
    try:
        wait_for(lambda: len({name.actor for name in learner.shards()}) == 2, process)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0 and time.monotonic() - began < 20
    finally:
        process.kill()
    assert len({actor for actor, *_ in games_in(learner)}) == 2
    assert all(status.ended for status in read_statuses(place).values())
    assert "Traceback" not in said and not list((tmp_path / "cache").rglob("*.arrow"))


def test_games_of_a_killed_actor_are_published_by_the_next_one_here(place, tmp_path) -> None:
    learner = StandInLearner(place)
    learner.publish(0)
    process = started(place)
    try:
        wait_for(lambda: len(learner.shards()) > 0, process)
        (tmp_path / "place").rename(tmp_path / "away")
        wait_for(lambda: len(list((tmp_path / "cache").rglob("*.arrow"))) > 0, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    kept = {path.name for path in (tmp_path / "cache").rglob("*.arrow")}
    (tmp_path / "away").rename(tmp_path / "place")
    published = learner.shards()
    player = ActorThread(place.name)
    player.until(lambda: len({name.actor for name in learner.shards()}) == 2)
    player.end()
    names = [str(name) for name in learner.shards()]
    assert all(any(name.endswith(one) for name in names) for one in kept)
    assert set(map(str, published)) < set(names) and games_in(learner)
    assert f"{len(kept)} shard" in player.lines[0] and "of earlier actors here" in player.lines[0]
