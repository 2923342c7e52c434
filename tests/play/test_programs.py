"""The engine as a process: `alphazero uci` with a network of one block, driven by another program."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import chess
import chess.engine
import pytest
import torch

from alphazero.cli.main import main
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig
from tests.support.paths import REPOSITORY


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "a net.pt"
    save_weights(path, AlphaZeroNet(NetworkConfig(blocks=1, filters=8), get_spec("chess")), {})
    return path


@pytest.fixture(scope="module")
def command(weights: Path) -> list[str]:
    return [sys.executable, "-m", "alphazero", "uci", "--weights", str(weights), "--device", "cpu"]


def test_python_chess_plays_two_games_with_it(command: list[str]) -> None:
    with chess.engine.SimpleEngine.popen_uci(command, timeout=60) as engine:
        assert engine.id["name"].startswith("alphazero ")
        engine.configure({"Hash": 16, "Threads": 1, "Move Overhead": 5})
        for limit in (chess.engine.Limit(nodes=20), chess.engine.Limit(white_clock=1, black_clock=1)):
            board = chess.Board()
            while not board.is_game_over() and board.ply() < 30:
                played = engine.play(board, limit, info=chess.engine.INFO_SCORE | chess.engine.INFO_PV)
                assert played.move in board.legal_moves and played.info["pv"][0] == played.move
                board.push(played.move)
        board = chess.Board("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
        lines = engine.analyse(board, chess.engine.Limit(nodes=200), multipv=2)
        assert lines[0]["score"].white() == chess.engine.Mate(1)
        fischer = chess.Board.from_chess960_pos(5)
        assert engine.play(fischer, chess.engine.Limit(nodes=10)).move in fischer.legal_moves


def test_it_answers_before_the_network_is_read_and_ends_with_its_input(command: list[str]) -> None:
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("uci\n")
    process.stdin.flush()
    while process.stdout.readline() != "uciok\n":
        pass
    answered = time.monotonic() - began
    process.stdin.write("isready\ngo infinite\n")
    process.stdin.flush()
    while process.stdout.readline() != "readyok\n":
        pass
    assert answered < time.monotonic() - began
    process.stdin.close()
    process.wait(10)
    assert process.returncode == 0


def test_every_go_is_answered(command: list[str]) -> None:
    """Where memory is short, counters of a FEN are at their end and a game is longer than any is."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()

    def ask(*lines: str, until: str) -> list[str]:
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        answers = [process.stdout.readline()]
        while not answers[-1].startswith(until):
            assert answers[-1], f"no {until}"  # the watchdog killed it
            answers.append(process.stdout.readline())
        return answers

    ask("uci", until="uciok")
    ask("isready", "go nodes 5", until="bestmove")
    lowered, *_ = ask("setoption name Hash value 1048576", "isready", until="readyok")
    assert re.fullmatch(r"info string option Hash: 1048576 MB are not free; \d+ MB used\n", lowered)
    assert (
        chess.Move.from_uci(ask("go nodes 10", until="bestmove")[-1].split()[1]) in chess.Board().legal_moves
    )
    ask("setoption name Hash value 2048", "isready", until="readyok")
    began = time.monotonic()
    ask("ucinewgame", "go movetime 100", until="bestmove")
    assert time.monotonic() - began < 1.0  # memory of the hash is not filled with zeros first
    fen = "4k3/8/8/8/8/8/8/R3K3 w - - 32767 32767"
    ask(f"position fen {fen} moves a1a2 e8e7 a2a3", "go nodes 50", until="bestmove")
    there_and_back = " ".join(["g1f3 g8f6 f3g1 f6g8"] * 20_000)
    ask(f"position startpos moves {there_and_back}", "go nodes 10", until="bestmove")
    process.stdin.close()
    assert process.wait(20) == 0
    watchdog.cancel()


def test_no_network_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALPHAZERO_WEIGHTS", raising=False)
    assert main(["uci"]) == 2
    assert (
        "no network was named: runs/ holds no run; expected W, $ALPHAZERO_WEIGHTS or one run"
        in capsys.readouterr().err
    )


def test_a_network_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "alphazero", "uci", "--weights", str(tmp_path / "none.pt")]
    read, write = os.pipe()  # an input that stays open
    try:
        done = subprocess.run(command, stdin=read, capture_output=True, text=True, timeout=60)
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 2
    assert "none.pt: no such file" in done.stderr and done.stderr.count("\n") == 1


def test_the_recipe_for_lichess_bot_is_accepted_by_what_it_uses(weights: Path, tmp_path: Path) -> None:
    """lichess-bot runs abspath(dir/name) through python-chess (lib/engine_wrapper.py)."""
    yaml = pytest.importorskip("yaml")
    page = (REPOSITORY / "docs" / "play.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```\n(engine:\n.*?)```", page, re.DOTALL)
    engine = yaml.safe_load(text)["engine"]
    script = tmp_path / engine["dir"] / engine["name"]
    script.parent.mkdir()
    python, program = sys.executable, f"-m alphazero uci --weights '{weights}'"
    script.write_text(f"#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {python} {program} --device cpu\n")
    script.chmod(0o755)
    assert engine["protocol"] == "uci" and engine["ponder"] is True
    with chess.engine.SimpleEngine.popen_uci(str(script.resolve()), timeout=60) as player:
        player.configure(engine["uci_options"])
        board = chess.Board()
        limit = chess.engine.Limit(white_clock=2, black_clock=2)
        assert player.play(board, limit, ponder=True).move in board.legal_moves
