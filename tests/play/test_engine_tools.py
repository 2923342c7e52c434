"""What people tune an engine with: VerboseMoveStats, and moves drawn by temperature."""

import re
import time

import chess
import pytest

from tests.support.uci.driving import DrivenEngine


def test_verbose_move_stats_list_every_move_and_the_root() -> None:
    with DrivenEngine(VerboseMoveStats="true") as engine:
        engine.send("position startpos moves e2e4", "go nodes 90")
        told = engine.until("bestmove")
        rows = [line for line in told if re.match(r"info string \w+ +\( *\d+ *\) N: ", line)]
        board = chess.Board()
        board.push_uci("e2e4")
        assert {row.split()[2] for row in rows[:-1]} == {move.uci() for move in board.legal_moves}
        visits = [int(re.search(r"N: +(\d+) ", row)[1]) for row in rows]
        assert visits[:-1] == sorted(visits[:-1]) and sum(visits[:-1]) == 89 and visits[-1] == 90
        assert (
            rows[-1].startswith("info string node  (  20) N:      90 ")
            and told.index(rows[-1]) == len(told) - 2
        )
        assert sum(float(re.search(r"P: +([\d.]+)%", row)[1]) for row in rows[:-1]) == pytest.approx(
            100, abs=0.2
        )
        assert told[-1].split()[1] == rows[-2].split()[2]


def test_moves_differ_at_a_temperature_until_the_cutoff_move() -> None:
    with DrivenEngine(Temperature="5", TempCutoffMove="2") as engine:
        games = {engine.best_move("ucinewgame", "position startpos", "go nodes 60") for _ in range(12)}
        assert len(games) > 1
        later = "position startpos moves e2e4 e7e5"
        assert len({engine.best_move("ucinewgame", later, "go nodes 60") for _ in range(6)}) == 1
        engine.send("setoption name Temperature value 0")
        assert (
            len({engine.best_move("ucinewgame", "position startpos", "go nodes 60") for _ in range(6)}) == 1
        )
        engine.send("setoption name Temperature value 100.5")
        engine.until("info string option Temperature: '100.5': expected a number from 0 to 100")


def test_a_drawn_move_is_legal_and_its_ponder_move_too() -> None:
    with DrivenEngine(Temperature="100") as engine:
        for limits in ("nodes 1", "nodes 150", "nodes 30 searchmoves a2a3 h2h4"):
            for _ in range(4):
                engine.send("ucinewgame", "position startpos", f"go {limits}")
                words = engine.until("bestmove")[-1].split()
                board = chess.Board()
                board.push_uci(words[1])
                if "searchmoves" in limits:
                    assert words[1] in ("a2a3", "h2h4")
                if len(words) > 2:
                    board.push_uci(words[3])


def test_with_a_node_limit_every_go_is_one_of_so_many_nodes() -> None:
    with DrivenEngine() as engine:
        position = ("ucinewgame", "position startpos moves e2e4")
        plain = engine.best_move(*position, "go nodes 7")
        engine.send("setoption name NodeLimit value 7")
        for limits in ("nodes 500", "wtime 900000 btime 900000", "movetime 60000", "depth 9", "mate 5"):
            engine.send(*position, f"go {limits}")
            told = engine.until("bestmove")
            assert told[-1].split()[1] == plain and " nodes 7 " in told[-2]
        engine.send(*position, "go infinite")
        engine.until(lambda line: " nodes 7 " in line)
        time.sleep(0.3)
        assert not any(line.startswith("bestmove") for line in engine.lines[-1:])
        engine.send("stop")
        assert engine.until("bestmove")[-1].split()[1] == plain
        engine.send("setoption name NodeLimit value 0", *position, "go nodes 9")
        assert " nodes 9 " in engine.until("bestmove")[-2]
