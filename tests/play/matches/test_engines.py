"""Matches with UCI engines: good ones, and those that crash, hang, cheat, are late or will not end."""

import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest

from alphazero.base.errors import ConfigError, PlayerError
from alphazero.play.matches import engines as engine_process
from alphazero.play.matches.engines import EngineRoom
from alphazero.play.matches.game import Adjudication, DrawRule, Ending, pairings_of
from alphazero.play.matches.limits import Limit, TimeControl
from alphazero.play.matches.match import Arena, MatchPlan
from alphazero.play.matches.openings import random_openings
from alphazero.play.matches.players import Player
from alphazero.play.matches.record import MatchRecord
from tests.support.paths import SUPPORT

FAKE = SUPPORT / "evaluation" / "fake_engine.py"
NODES = Limit(nodes=10)
SHORT = Adjudication(max_plies=12)


def fake(name: str = "fake", *flags: str, limit: Limit = NODES, **options: str) -> Player:
    return Player(name, command=(sys.executable, str(FAKE), *flags), limit=limit, options=options)


def other(name: str = "random") -> Player:
    return Player(name, random_share=1.0)


def play(players, games: int = 4, *, rules=SHORT, concurrency: int = 2, timeout_s: float = 60.0):
    """The finished games, by number, and the lines told."""
    found, lines = [], []
    pairings = tuple(pairings_of(2, random_openings("chess", games // 2, 2, 1)))
    plan = MatchPlan(
        "chess", tuple(players), pairings, rules, concurrency=concurrency, engine_timeout_s=timeout_s
    )
    with Arena() as arena:
        arena.play(plan, lambda game: found.append(game) or True, lines.append)
    return sorted(found, key=lambda game: game.pairing.number), lines


def moves_of(games) -> list[list[str]]:
    return [[decision.move for decision in game.decisions] for game in games]


def test_engines_play_the_same_games_whatever_the_concurrency() -> None:
    players = [fake("one"), fake("two", Seed="7")]
    found, lines = play(players, concurrency=3)
    assert [game.ending for game in found] == [Ending.ADJUDICATION] * 4 and not lines
    assert found[0].reason == "Draw by adjudication: 12 plies"
    decision = found[0].decisions[0]
    assert decision.score is not None and decision.depth == 3 and decision.nodes == 77
    assert 0 < decision.time_s < 1
    assert moves_of(found) == moves_of(play(players, concurrency=1)[0])


@pytest.mark.parametrize(
    ("mode", "ending", "told"),
    [
        ("crash", Ending.ABANDONED, r"bad disconnects \(segmentation fault, or so\) and loses the game"),
        ("hang", Ending.ABANDONED, r"bad does not answer for 1 s and loses the game"),
        ("illegal", Ending.ILLEGAL, r"bad makes an illegal move \(.*e1e8.*\) and loses the game"),
        ("none", Ending.ILLEGAL, r"bad makes no move and loses the game"),
        ("null", Ending.ILLEGAL, r"bad makes no move and loses the game"),
        pytest.param(
            *("close", Ending.ABANDONED, r"bad does not answer for 1 s and loses the game"),
            marks=pytest.mark.slow,
        ),
        (
            "endless",
            Ending.ABANDONED,
            r"bad disconnects \(a line of over 1,048,576 bytes\) and loses the game",
        ),
        ("bytes", Ending.ILLEGAL, r"bad makes no move and loses the game"),
    ],
)
def test_an_engine_that_fails_loses_the_game_and_the_match_goes_on(mode, ending, told) -> None:
    # Each process fails at its fourth move: there is a new one for the next game.
    bad = fake("bad", "--mode", mode, "--from-move", "4")
    timeout_s = 1.0 if "answer" in told else 60.0
    found, lines = play([bad, fake("good")], games=2, concurrency=1, timeout_s=timeout_s)
    assert [game.ending for game in found] == [ending] * 2 and len(lines) == 2
    assert [game.points for game in found] == [0.0, 1.0]
    assert re.fullmatch(rf"game 1: {told}", lines[0])
    assert found[1].reason.startswith("Black ")
    assert all(len(game.decisions) > 4 for game in found)


def test_numbers_of_hundreds_of_digits_are_bounded_and_the_game_is_played(tmp_path) -> None:
    huge = fake("huge", "--mode", "huge")
    found, lines = play([huge, other()], games=2)
    assert [game.ending for game in found] == [Ending.ADJUDICATION] * 2 and not lines
    with MatchRecord([huge, other()], tmp_path / "match.pgn") as record:
        for game in found:
            record.add(game)
    text = (tmp_path / "match.pgn").read_text()
    assert "{ +10000.00/1000 " in text and max(map(len, text.splitlines())) <= 100


def test_a_move_that_answers_the_position_before_is_illegal() -> None:
    early = fake("early", "--mode", "early")
    found, lines = play([early, other()], games=2, concurrency=1)
    assert found[1].ending is Ending.ILLEGAL and found[1].points == 1.0
    assert re.fullmatch(r"game 2: early makes an illegal move \(\w+\) and loses the game", lines[-1])


def test_an_engine_that_ends_after_its_move_is_started_again(tmp_path) -> None:
    found, lines = play([fake("leaving", "--mode", "leave"), other()], games=2)
    assert {game.ending for game in found} == {Ending.ABANDONED} and len(lines) == 2


@pytest.mark.parametrize("first_bad_move", ["1", "3"])
def test_three_failures_in_a_row_end_the_match(first_bad_move: str) -> None:
    with pytest.raises(PlayerError, match=r"player 'bad' failed in 3 games in a row; .* disconnects"):
        play([other(), fake("bad", "--mode", "crash", "--from-move", first_bad_move)], games=8)


@pytest.mark.parametrize("mode", ["slow", "indented"])
def test_an_engine_on_a_clock_loses_on_time(mode: str) -> None:
    slow = fake("slow", "--mode", mode, limit=Limit(control=TimeControl(0.3), margin_s=0.0))
    found, lines = play([slow, other()], games=2)
    assert [game.ending for game in found] == [Ending.TIME] * 2
    assert re.fullmatch(r"game 1: slow loses on time \(\d+ms overrun\)", lines[0])
    patient = fake("patient", "--mode", "slow", "--from-move", "2", limit=Limit(move_time_s=5.0))
    assert [
        game.ending for game in play([patient, other()], games=2, rules=Adjudication(max_plies=8))[0]
    ] == [Ending.ADJUDICATION] * 2


def test_an_engine_that_never_answers_on_a_clock_loses_on_time(monkeypatch) -> None:
    monkeypatch.setattr("alphazero.play.matches.engines.LATE_S", 0.1)
    hung = fake("hung", "--mode", "hang", limit=Limit(control=TimeControl(0.2)))
    found, lines = play([hung, other()], games=2)
    assert [game.ending for game in found] == [Ending.TIME] * 2
    assert min(lines) == "game 1: hung loses on time without an answer and loses the game"


def test_scores_of_engines_end_games_by_the_rules() -> None:
    rules = Adjudication(draw=DrawRule(0, 2, 10), max_plies=60)
    found, _ = play([fake("one"), fake("two")], games=2, rules=rules)
    assert [game.reason for game in found] == ["Draw by adjudication"] * 2
    assert all(game.points == 0.5 and len(game.decisions) < 50 for game in found)


def alive(file: Path) -> list[int]:
    return [pid for pid in map(int, file.read_text().split()) if psutil.pid_exists(pid)]


def test_no_engine_outlives_the_match_not_even_one_that_ignores_quit(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(engine_process, "QUIT_TIMEOUT_S", 0.2)
    pids = tmp_path / "pids"
    play([fake("deaf", "--mode", "deaf", "--pid-file", str(pids)), other()], games=2)
    assert len(pids.read_text().split()) == 2 and not alive(pids)


def test_no_process_of_an_engine_outlives_the_match_in_whatever_session(tmp_path) -> None:
    pids = tmp_path / "pids"
    play([fake("parent", "--mode", "parent", "--pid-file", str(pids)), other()], games=2)
    assert len(pids.read_text().split()) == 4 and not alive(pids)


@pytest.mark.parametrize(("mode", "processes"), [("deaf", 1), ("parent", 2)])
def test_engines_die_with_a_match_that_is_killed(tmp_path, mode, processes) -> None:
    """Nothing but the system can do that: SIGKILL leaves the match no time."""
    pids = tmp_path / "pids"
    program = (
        "import sys, time\n"
        "from tests.play.matches.test_engines import *\n"
        "room = EngineRoom().__enter__()\n"
        f"room.check(fake('deaf', '--mode', {mode!r}, '--pid-file', {str(pids)!r}))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    match = psutil.Popen([sys.executable, "-c", program], stdout=-1, cwd=SUPPORT.parents[1])
    assert match.stdout.readline() == b"ready\n" and len(alive(pids)) == processes
    match.kill()
    match.wait()
    deadline = time.monotonic() + 10
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pids)


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        (
            Player("x", command=("no-such-program",), limit=NODES),
            "player 'x': 'no-such-program': expected an executable program",
        ),
        (fake("x", "--mode", "mute"), r"player 'x': .*no licence found.*expected a UCI engine"),
        (fake("x", Sead="1"), "player 'x': .*Sead"),
        (fake("x", Seed="many"), "player 'x': .*Seed.*many"),
        (fake("x", Seed="1000"), "player 'x': .*Seed.*999"),
        (
            Player("x", command=("sleep", "30"), limit=NODES),
            r"player 'x': no uciok and readyok within 0\.2 s",
        ),
    ],
)
def test_an_engine_that_does_not_start_is_one_line_before_the_first_game(engine, told, monkeypatch) -> None:
    if engine.command[0] == "sleep":
        monkeypatch.setattr(engine_process, "START_TIMEOUT_S", 0.2)
    with EngineRoom() as room, pytest.raises(ConfigError, match=told) as caught:
        room.check(engine)
    assert "\n" not in str(caught.value)


def test_an_engine_has_a_session_of_its_own(tmp_path) -> None:
    """Ctrl-C in a terminal goes to all of its processes; engines are to be ended by the match."""
    pids = tmp_path / "pids"
    with EngineRoom() as room:
        room.check(fake("fake", "--pid-file", str(pids)))
        (pid,) = alive(pids)
        assert os.getsid(pid) != os.getsid(0)
