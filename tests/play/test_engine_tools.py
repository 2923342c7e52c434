"""What people debug with: `d`, `go perft`, VerboseMoveStats, LogFile, and moves drawn by temperature."""

import re
import time
from pathlib import Path

import chess
import pytest

from alphazero.base.errors import ConfigError
from alphazero.games.registry import make_line
from tests.games.test_perft import read_counts
from tests.support.uci.driving import DrivenEngine


def perft_of(told: list[str]) -> tuple[dict[str, int], int]:
    """Leaves by move, and their sum, of Stockfish's answer."""
    *rows, blank, total = told
    assert blank == ""
    pairs = [row.split(": ") for row in rows if re.fullmatch(r"[a-h][1-8][a-h][1-8][nbrq]?: \d+", row)]
    assert len(pairs) == len([row for row in rows if ": " in row])
    return {move: int(leaves) for move, leaves in pairs}, int(total.removeprefix("Nodes searched: "))


def test_d_shows_fen_key_and_who_gives_check() -> None:
    moves = "e2e4 e7e5 f1c4 b8c6 a2a3 g8f6 c4f7"
    with DrivenEngine() as engine:
        engine.send(f"position startpos moves {moves}", "d")
        told = engine.until("Checkers:")
        line = make_line("chess")
        for move in moves.split():
            line.push_text(move)
        assert told[-3:] == [f"Fen: {line}", f"Key: {line.key:016X}", "Checkers: f7"]
        # Two pieces give check; none does.
        engine.send("position fen 4k3/8/3N4/8/8/8/8/4RK2 b - - 0 1", "d")
        assert engine.until("Checkers:")[-1] == "Checkers: e1 d6"
        engine.send("position startpos", "d")
        assert engine.until("Checkers:")[-1] == "Checkers:"


def test_d_draws_what_python_chess_has() -> None:
    fen = "1rbk1n2/8/8/3pP3/8/8/8/R3K2r w Q d6 0 30"
    with DrivenEngine() as engine:
        engine.send(f"position fen {fen}", "d")
        told = engine.until("Checkers:")
        board = chess.Board(fen)
        rows = [re.findall(r"\| (.) (?=\|)", row) for row in told if row.startswith(" | ")]
        assert [" ".join(sign.replace(" ", ".") for sign in row) for row in rows] == str(board).split("\n")
        assert [row[-1] for row in told if row.startswith(" | ")] == list("87654321")
        assert f"Fen: {board.fen(en_passant='legal')}" in told and told[-1] == "Checkers: h1"


def test_go_perft_has_the_published_counts(shared_data: Path) -> None:
    tricky = read_counts(shared_data / "perft" / "tricky.perft")
    counts = [count for count in tricky if count.nodes < 3_000_000]
    assert len(counts) > 50
    with DrivenEngine() as engine:
        engine.send("setoption name UCI_Chess960 value true")
        for count in counts:
            engine.send(f"position fen {count.fen}", f"go perft {count.depth}")
            divided, total = perft_of(engine.until("Nodes searched: "))
            assert total == count.nodes == sum(divided.values()), count
            board = chess.Board(count.fen, chess960=True)
            assert set(divided) == {move.uci() for move in board.legal_moves}


def test_go_perft_names_castling_as_the_option_wants() -> None:
    with DrivenEngine() as engine:
        for value, castling in (("false", "e1g1"), ("true", "e1h1")):
            engine.send(f"setoption name UCI_Chess960 value {value}")
            engine.send("position fen r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "go perft 1")
            divided, total = perft_of(engine.until("Nodes searched: "))
            assert (
                total == 26
                and castling in divided
                and divided.keys().isdisjoint({"e1h1", "e1g1"} - {castling})
            )


def test_a_deep_perft_is_stopped_at_once_and_the_engine_is_of_use_meanwhile() -> None:
    with DrivenEngine() as engine:
        # The position of most legal moves, 218: five plies of it in one call would take an hour.
        engine.send(
            "position fen R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1", "go perft 30", "isready"
        )
        engine.until("readyok")
        began = time.monotonic()
        engine.send("stop")
        engine.until("info string perft: stopped before the end")
        assert time.monotonic() - began < 3
        engine.send("position startpos", "go perft 30")
        assert engine.best_move("stop", "go nodes 20")
        assert not any("Nodes searched" in line for line in engine.lines)


def test_several_perfts_and_the_end_of_the_input_in_one_go_are_all_answered() -> None:
    engine = DrivenEngine()
    with engine:
        engine.send("go perft 1", "go perft 2", "position startpos moves e2e4", "go perft 3", "quit")
        engine.join()
    sums = [line for line in engine.lines if line.startswith("Nodes searched")]
    assert sums == ["Nodes searched: 20", "Nodes searched: 400", "Nodes searched: 13160"]
    assert not any(line.startswith("bestmove") for line in engine.lines)


@pytest.mark.parametrize("depth", ["0", "-1", "x", "", "100", "9" * 5000, "1.5", "nodes 5"])
def test_a_perft_of_no_depth_starts_nothing(depth: str) -> None:
    with DrivenEngine() as engine:
        engine.send(f"go perft {depth}", "isready")
        told = engine.until("readyok")
        assert any("go perft: " in line and "expected a whole number from 1 to 99" in line for line in told)
        assert engine.best_move("go nodes 2")


def test_perft_without_a_legal_move_is_0() -> None:
    with DrivenEngine() as engine:
        engine.send("position fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "go perft 3")
        assert engine.until("Nodes searched: ")[-1] == "Nodes searched: 0"


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


def test_the_log_file_has_input_and_output_from_the_start(tmp_path: Path) -> None:
    log, other = tmp_path / "a log.txt", tmp_path / "other.txt"
    with DrivenEngine() as engine:
        engine.send("uci", f"setoption name LogFile value {log}", "position startpos", "go nodes 3")
        engine.until("bestmove")
        engine.send(f"setoption name LogFile value {other}", "isready")
        engine.until("readyok")
        engine.send("setoption name LogFile value <empty>", "isready", "d")
        engine.until("Checkers:")
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} "
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all(re.match(stamp + "(>>|<<) ", line) for line in lines)
    texts = [re.sub(stamp, "", line) for line in lines]
    assert texts[0] == ">> uci" and "<< uciok" in texts
    assert texts.index("<< uciok") < texts.index(">> go nodes 3") < len(texts) - 2
    assert any(text.startswith("<< bestmove ") for text in texts)
    assert [re.sub(stamp, "", line) for line in other.read_text().splitlines()] == [
        ">> isready",
        "<< readyok",
        ">> setoption name LogFile value <empty>",
    ]


@pytest.mark.parametrize("name", ["/nowhere/at/all.log", "/", "/dev/null/x", "a\0b", "x" * 5000])
def test_a_log_file_that_cannot_be_written_is_reported(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with DrivenEngine(LogFile=str(log)) as engine:
        engine.send(f"setoption name LogFile value {name}", "isready")
        told = engine.until("readyok")
        assert told[0].startswith("info string option LogFile: ") and told[0].endswith("; option unchanged")
        assert engine.engine.options.text("LogFile") == str(log)
        assert engine.best_move("go nodes 2")
    assert "bestmove" in log.read_text(encoding="utf-8")
    failing = DrivenEngine(LogFile=name)
    with failing:
        pass
    assert isinstance(failing.error, ConfigError) and "\n" not in str(failing.error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, a disk without room")
def test_a_log_file_on_a_full_disk_is_reported_once() -> None:
    with DrivenEngine(LogFile="/dev/full") as engine:
        engine.send("isready")
        engine.until("readyok")
        for _ in range(2):
            assert engine.best_move("go nodes 2")
        assert sum("option LogFile: '/dev/full': cannot be written: " in line for line in engine.lines) == 1


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
