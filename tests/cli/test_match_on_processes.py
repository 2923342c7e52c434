"""`alphazero match --gpus 2`: the games, results and ends of a match on one process."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import chess.pgn
import psutil
import pytest

from alphazero.cli.main import main
from tests.support.evaluation.small_nets import write_small_net
from tests.support.paths import SUPPORT

FAKE = f"{sys.executable} {SUPPORT / 'evaluation' / 'fake_engine.py'}"
TWO = ["--device", "cpu", "--gpus", "2"]


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("weights")
    return [write_small_net(directory / f"{seed}.pt", "chess", seed) for seed in (1, 2)]


def moves_by_round(path: Path) -> dict[int, list[str]]:
    """Players, result and moves of each game; every game is there once."""
    found: dict[int, list[str]] = {}
    with path.open() as file:
        while (game := chess.pgn.read_game(file)) is not None:
            number = int(game.headers["Round"])
            assert not game.errors and number not in found
            heads = [game.headers[name] for name in ("White", "Black", "Result", "Termination")]
            found[number] = [*heads, *(move.uci() for move in game.mainline_moves())]
    return found


@contextlib.contextmanager
def long_match(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A match that would not end by itself; it is killed with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "alphazero", "match", "--maxmoves", "6", *words, *TWO],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def processes_after(process: subprocess.Popen[str], pgn: Path, games: int) -> list[psutil.Process]:
    """All processes below the match, once so many games have ended."""
    deadline = time.monotonic() + 90
    while not (pgn.exists() and pgn.read_text().count("[Round ") >= games):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return psutil.Process(process.pid).children(recursive=True)


def test_two_processes_play_the_games_of_one(nets, tmp_path, capsys) -> None:
    found = {}
    for name, more in (("one", ["--device", "cpu"]), ("two", TWO)):
        argv = ["match", "--weights", nets[0], "--against", nets[1], "--games", "6", "--maxmoves", "10"]
        argv += ["--player", "random", "--nodes", "4", "--pgn-out", str(tmp_path / f"{name}.pgn"), "--json"]
        assert main([*argv, *more]) == 0
        captured = capsys.readouterr()
        found[name] = json.loads(captured.out)
        numbers = [int(number) for number in re.findall(r"^Game (\d+) of 18 ", captured.err, re.M)]
        assert sorted(numbers) == list(range(1, 19))
    assert found["one"] == found["two"]
    games = moves_by_round(tmp_path / "one.pgn")
    assert len(games) == 18 and games == moves_by_round(tmp_path / "two.pgn")


@pytest.mark.slow
def test_a_match_stopped_on_two_processes_continues_on_one_with_each_game_once(tmp_path, capsys) -> None:
    state, pgn, pids = (tmp_path / name for name in ("match.json", "match.pgn", "pids"))
    player = f"cmd='{FAKE} --delay 0.03 --pid-file {pids}' nodes=1 name=fake"
    words = ["--player", player, "--against", "random", "--games", "20", "--concurrency", "2"]
    words += ["--resume", str(state), "--pgn-out", str(pgn)]
    for games, number in ((3, signal.SIGKILL), (7, signal.SIGINT)):
        with long_match(*words) as process:
            below = processes_after(process, pgn, games)
            assert len(below) >= 4, "two workers and an engine with its guard for each"
            process.send_signal(number)
            said, errors = process.communicate(timeout=60)
        assert not psutil.wait_procs(below, timeout=20)[1] and "Traceback" not in errors
        if number == signal.SIGKILL:
            assert process.returncode == -number
            continue
        assert process.returncode == 128 + number
        assert re.search(r"random against fake: \d+ games? in \d+ pairs?: \+\d+ =\d+ -\d+", said)
        assert re.search(r"^continue with: .* --gpus 2$", errors, re.M)
    assert 7 <= state.read_text().count("\n") - 1 < 20
    assert main(["match", "--maxmoves", "6", *words, "--device", "cpu", "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert sum(score["pairs"]) == 10 and score["not_counted"] == 0
    assert sorted(moves_by_round(pgn)) == list(range(1, 21))
    assert len(set(pids.read_text().split())) >= 4


@pytest.mark.slow
def test_a_test_that_is_decided_ends_all_processes(capsys) -> None:
    before = psutil.Process().children()  # of other tests
    argv = ["match", "--player", "solver", "--player", "random", "--opening-plies", "16"]
    assert main([*argv, "--games", "4000", "--sprt", "0", "30", "--json", *TWO]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sprt"]["decision"] == "H1" and sum(found["pairs"]) < 1000
    left = [child for child in psutil.Process().children() if child not in before]
    assert not [child for child in left if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_a_process_that_is_killed_is_named_and_the_result_so_far_is_printed(nets, tmp_path) -> None:
    pgn = tmp_path / "match.pgn"
    words = ["--weights", nets[0], "--against", "random", "--games", "20000", "--nodes", "2"]
    with long_match(*words, "--pgn-out", str(pgn)) as process:
        below = processes_after(process, pgn, 4)
        below[0].kill()
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and " against random: " in said and "Traceback" not in errors
    (line,) = (line for line in errors.splitlines() if "error" in line)
    killed = rf"process [12] of 2 of this command \(pid {below[0].pid}\) was killed by SIGKILL"
    assert re.match(rf"alphazero: error: {killed}", line)
    assert not psutil.wait_procs(below, timeout=20)[1]
    assert len(moves_by_round(pgn)) >= 4


def test_an_engine_that_fails_again_and_again_ends_the_match_of_all_processes(capsys) -> None:
    player = f"cmd='{FAKE} --mode crash' nodes=1 name=bad"
    argv = ["match", "--against", "random", "--player", player, "--maxmoves", "6", "--concurrency", "2"]
    assert main([*argv, "--games", "40", *TWO]) == 2
    captured = capsys.readouterr()
    assert "bad lost" in captured.out
    assert "player 'bad' failed in 3 games in a row" in captured.err.splitlines()[-1]
    assert "bad disconnects" in captured.err and "loses the game" in captured.err


def test_processes_without_a_game_with_engines_are_refused(capsys) -> None:
    for words in (["--player", "cmd=sleep", "nodes=1"], ["--player", "weights=x.pt", "depth=3"]):
        assert main(["match", "--against", "random", *words, *TWO]) == 2
        said = capsys.readouterr().err
        assert (
            "--concurrency 1: expected at least 2, a game with engines for each process of --gpus 2" in said
        )
        assert said.count("\n") == 1
