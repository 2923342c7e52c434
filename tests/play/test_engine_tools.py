"""Moves drawn by temperature, so that games differ."""

import chess

from tests.support.uci.driving import DrivenEngine


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
