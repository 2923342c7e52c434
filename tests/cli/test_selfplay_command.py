"""`alphazero selfplay` and `match`: games into a store, interrupted or not; scores."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
import torch

import alphazero as az
from alphazero.cli.command_table import build_parser
from alphazero.cli.main import main
from alphazero.data.store.store import GameStore
from alphazero.games.registry import get_spec
from alphazero.machine.lock import only_writer
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import WeightsFile, write_weights
from alphazero.settings.sections import NetworkConfig

QUICK = ("--lanes", "8", "--simulations", "4", "--evaluation-batch", "8")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    config = NetworkConfig(game="connect4", blocks=1, filters=8)
    network = AlphaZeroNet(config, get_spec("connect4"), torch.Generator().manual_seed(0))
    path = tmp_path_factory.mktemp("weights") / "connect4.pt"
    write_weights(path, WeightsFile(config, network.state_dict(), {}))
    return str(path)


def test_games_are_stored_and_more_are_added(weights, tmp_path, capsys) -> None:
    argv = ["selfplay", "--weights", weights, "--out", str(tmp_path / "games"), "--games", "12", *QUICK]
    assert main(argv) == 0
    store = GameStore.open(tmp_path / "games")
    store.verify()
    assert store.num_games == 12 and store.manifest.game == "connect4"
    said = capsys.readouterr().out
    assert "12 games" in said and "games/hour" in said and "policy entropy" in said
    assert main([*argv, "--seed", "1"]) == 0
    assert GameStore.open(tmp_path / "games").num_games == 24


@pytest.mark.slow
def test_the_games_are_the_same_for_any_number_of_lanes_short_ones_and_long_ones(weights, tmp_path) -> None:
    """Not the first to end, of which most would be short."""

    def games(num: int, *flags: str) -> list[tuple[int, ...]]:
        out = tmp_path / "-".join((str(num), *flags))
        argv = ["selfplay", "--weights", weights, "--out", str(out), "--games", str(num), *QUICK, *flags]
        assert main(argv) == 0
        return sorted(tuple(moves) for moves in az.open_store(out).to_arrow()["moves"].to_pylist())

    eleven = games(11, "--lanes", "11")
    lengths = sorted(len(moves) for moves in eleven)
    assert len(eleven) == 11 and lengths[0] + 10 < lengths[-1]
    assert games(11, "--lanes", "1") == eleven
    assert games(11, "--lanes", "64") == eleven
    five = set(games(5, "--lanes", "3"))  # the games of a smaller number are among them
    assert len(five) == 5 and five < set(eleven)


@contextlib.contextmanager
def many_games(weights: str, out) -> Iterator[subprocess.Popen[str]]:
    """Self-play on two processes that would not end by itself."""
    command = [sys.executable, "-m", "alphazero", "selfplay", "--weights", weights, "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--games", "1000000", "--device", "cpu", "--gpus", "2", *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def workers_of(process: subprocess.Popen[str], out) -> list[psutil.Process]:
    """The two workers, once games were stored."""
    deadline = time.monotonic() + 60
    while not (out / "manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    return workers


def stored_games(out) -> list[tuple[object, ...]]:
    """All columns of all games, in an order of their own."""
    table = az.open_store(out).to_arrow()
    assert table.num_rows
    return sorted(zip(*(map(str, column.to_pylist()) for column in table.columns), strict=True))


@pytest.mark.slow
def test_two_processes_play_the_games_of_one_to_the_bit(weights, tmp_path, capsys) -> None:
    argv = ["selfplay", "--weights", weights, "--games", "13", "--device", "cpu", "--seed", "5", *QUICK]
    assert main([*argv, "--out", str(tmp_path / "one"), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*argv, "--out", str(tmp_path / "two"), "--gpus", "2", "--json"]) == 0
    together = json.loads(capsys.readouterr().out)
    assert stored_games(tmp_path / "one") == stored_games(tmp_path / "two")
    speeds = {"games_per_hour"}
    assert {name: alone[name] for name in alone.keys() - speeds} == {
        name: together[name] for name in together.keys() - speeds
    }
    for figures in (alone, together):
        assert figures["games"] == 13 and figures["games_per_hour"] > 0


@pytest.mark.slow
def test_a_signal_keeps_the_games_of_all_processes_and_ends_them(weights, tmp_path) -> None:
    out = tmp_path / "games"
    with many_games(weights, out) as process:
        workers = workers_of(process, out)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    store = GameStore.open(out)
    store.verify()
    assert f"{store.num_games} games in {out}" in said and "games/hour" in said
    assert not any(psutil.pid_exists(worker.pid) for worker in workers)


@pytest.mark.slow
def test_a_process_that_is_killed_is_named_and_the_games_of_both_are_kept(weights, tmp_path) -> None:
    out = tmp_path / "games"
    with many_games(weights, out) as process:
        workers = workers_of(process, out)
        workers[1].kill()
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    (line,) = (line for line in errors.splitlines() if "error" in line)
    assert re.fullmatch(
        rf"alphazero: error: process [12] of 2 of this command \(pid {workers[1].pid}\) "
        r"was killed by SIGKILL.*; expected it to do its share",
        line,
    )
    assert "Traceback" not in errors
    store = GameStore.open(out)
    store.verify()
    assert f"{store.num_games} games in {out}" in said
    assert not psutil.pid_exists(workers[0].pid)


@pytest.mark.slow
def test_the_processes_of_a_killed_command_end_with_it(weights, tmp_path) -> None:
    with many_games(weights, tmp_path / "games") as process:
        workers = workers_of(process, tmp_path / "games")
        process.kill()
        assert not psutil.wait_procs(workers, timeout=20)[1]


def test_more_processes_than_cores_are_refused_and_no_store_is_made(weights, tmp_path, capsys) -> None:
    out = tmp_path / "games"
    argv = ["selfplay", "--weights", weights, "--out", str(out), "--device", "cpu", *QUICK]
    assert main([*argv, "--gpus", "1000"]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(
        r"alphazero: error: --gpus 1000: this machine has ([\d,]+) cores? in use; expected at most \1\n",
        said,
    )
    assert main([*argv, "--gpus", "0"]) == 2
    assert "--gpus: '0'" in capsys.readouterr().err
    assert not out.exists()


def test_what_a_process_cannot_do_is_the_error_of_the_command(weights, tmp_path, capsys) -> None:
    argv = ["selfplay", "--weights", weights, "--out", str(tmp_path / "games"), "--device", "cpu", *QUICK]
    assert main([*argv, "--gpus", "2", "--leaves", "9"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("alphazero: error: --leaves 9: ")
    assert not (tmp_path / "games").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ("--mode", "supervised"),
        ("--generations", "5", "--lanes", "2"),
        ("--gate-games=3",),
        ("--evaluation-precision", "int8"),
    ],
)
def test_settings_of_training_are_refused_by_name(weights, tmp_path, capsys, flags: tuple[str, ...]) -> None:
    out = tmp_path / "games"
    assert main(["selfplay", "--weights", weights, "--out", str(out), "--games", "1", *flags]) == 2
    flag = flags[0].partition("=")[0].replace("_", "-")
    assert flag in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(SystemExit):
        build_parser("selfplay").parse_args(["--help"])
    assert flag not in capsys.readouterr().out


@pytest.mark.parametrize("locked", ["games", "."])
def test_a_store_that_another_process_writes_to_is_refused_and_left_as_it_is(
    weights, tmp_path, capsys, locked: str
) -> None:
    """The store's own lock, or that of the run that it belongs to."""
    stray = tmp_path / "games" / "shard-00000.arrow"
    for name in ("games", "checkpoints"):
        (tmp_path / name).mkdir()
    stray.write_bytes(b"being written")
    argv = ["selfplay", "--weights", weights, "--out", str(tmp_path / "games"), "--games", "1", *QUICK]
    with only_writer(tmp_path / locked, "training", print):
        assert main(argv) == 2
    assert "in use (training, process" in capsys.readouterr().err
    assert stray.exists()


def test_an_interrupt_keeps_the_games_that_have_ended(weights, tmp_path) -> None:
    out = tmp_path / "games"
    command = [sys.executable, "-m", "alphazero", "selfplay", "--weights", weights, "--out", str(out)]
    process = subprocess.Popen([*command, "--games", "1000000", *QUICK], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (out / "manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    store = GameStore.open(out)
    store.verify()
    assert f"{store.num_games} games in {out}" in said.decode()


@pytest.mark.slow
def test_a_kill_keeps_the_games_of_the_rounds_before(weights, tmp_path) -> None:
    out = tmp_path / "games"
    command = [sys.executable, "-m", "alphazero", "selfplay", "--weights", weights, "--out", str(out)]
    process = subprocess.Popen([*command, "--games", "1000000", *QUICK])
    deadline = time.monotonic() + 60
    while not (out / "manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait(timeout=60)
    store = GameStore.open(out)
    store.verify()
    assert store.num_games > 0


def test_a_match_against_random_moves_has_all_its_games(weights, capsys) -> None:
    argv = ["match", "--weights", weights, "--against", "random", "--games", "20", "--simulations", "60"]
    assert main([*argv, "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert score["wins"] + score["draws"] + score["losses"] == 20
    assert score["wins"] > 12, "even a network that knows nothing sees wins and losses near by searching"
    low, high = score["elo_95"]
    assert low < score["elo"] < high
    assert sum(score["pairs"]) == 10 and score["superiority"] > 0.9 and score["sprt"] is None


def test_a_network_against_itself_is_even(weights, capsys) -> None:
    argv = ["match", "--weights", weights, "--against", weights, "--games", "20", "--simulations", "8"]
    assert main(argv) == 0
    assert "(50.0%)" in capsys.readouterr().out
    assert main([*argv, "--sprt", "0", "200", "--json"]) == 0
    test = json.loads(capsys.readouterr().out)["sprt"]
    assert test["elo"] == [0, 200] and test["decision"] == "H0"
    assert test["log_likelihood_ratio"] < test["bounds"][0] == -test["bounds"][1]
    assert main([*argv, "--sprt", "5", "0"]) == 2
    assert "--sprt 5 0: " in capsys.readouterr().err
