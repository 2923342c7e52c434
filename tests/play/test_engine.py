"""The engine as a GUI meets it: commands in an order that protocols allow, and in some that they do not."""

import threading
import time

import psutil
import pytest

from alphazero.base.errors import WeightsError
from alphazero.games.registry import make_line
from alphazero.play.uci import search
from alphazero.play.uci.engine import LoadedNetwork, NetworkRequest
from alphazero.search.tree_search import TreeSearch
from tests.support.games.mates import forces_mate
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator
from tests.support.uci.driving import DrivenEngine, SlowEvaluator, made_up_network

START_MOVES = [make_line("chess").move_to_text(move) for move in make_line("chess").legal()]


def field(line: str, name: str) -> str:
    words = line.split()
    return words[words.index(name) + 1]


def test_a_session_as_a_gui_has_it() -> None:
    with DrivenEngine() as engine:
        engine.send("uci")
        told = engine.until("uciok")
        assert told[0] == "id name test engine" and told[1].startswith("id author ")
        assert not any(line.startswith("info string") for line in told) and told[-1] == "uciok"
        assert "option name Hash type spin default 64 min 1 max 1048576" in told
        engine.send("setoption name UCI_ShowWDL value true", "isready")
        assert engine.until("readyok") == ["readyok"]
        engine.send("ucinewgame", "position startpos", "go nodes 200")
        *infos, answer = engine.until("bestmove")
        assert infos[0] == "info string made up"
        last = infos[-1]
        assert field(last, "nodes") == "200" and field(last, "cp").lstrip("-").isdigit()
        assert " multipv " not in last
        wdl = [int(word) for word in last.split()[last.split().index("wdl") + 1 :][:3]]
        assert sum(wdl) == 1000
        pv = last.split(" pv ")[1].split()
        assert answer == f"bestmove {pv[0]} ponder {pv[1]}"
        assert engine.best_move(f"position startpos moves {pv[0]} {pv[1]}", "go nodes 300")
        engine.send("quit")
        engine.join()
        assert engine.status == 0


def test_the_tree_is_kept_from_move_to_move_and_a_new_game_forgets_it() -> None:
    with DrivenEngine() as engine:
        engine.send("go nodes 400")
        info, answer = engine.until("bestmove")[-2:]
        moves = " ".join(info.split(" pv ")[1].split()[:2])
        assert answer.split()[1] == moves.split()[0]
        engine.send(f"position startpos moves {moves}", "go nodes 1")
        kept = int(field(engine.until("bestmove")[-2], "nodes"))
        assert kept > 1
        engine.send("ucinewgame", f"position startpos moves {moves}", "go nodes 1")
        assert field(engine.until("bestmove")[-2], "nodes") == "1"


@pytest.mark.parametrize(
    "limits", ["nodes 1", "movetime 1", "wtime 1 btime 1", "depth 1", "movetime 0", "nodes 0"]
)
def test_a_legal_move_always_exists(limits: str) -> None:
    with DrivenEngine() as engine:
        assert engine.best_move("position startpos", f"go {limits}") in START_MOVES


@pytest.mark.parametrize(
    ("position", "score"),
    [
        ("startpos moves f2f3 e7e5 g2g4 d8h4", "mate 0"),
        ("fen 7k/5Q2/8/8/8/8/8/K7 b - - 0 1", "cp 0"),
    ],
)
def test_without_a_legal_move_the_answer_is_the_null_move(position: str, score: str) -> None:
    with DrivenEngine() as engine:
        engine.send(f"position {position}", "go nodes 10")
        info, answer = engine.until("bestmove")[-2:]
        assert answer == "bestmove 0000" and f"score {score}" in info


def test_a_won_position_has_no_lines_of_moves_that_nothing_looked_at() -> None:
    with DrivenEngine(MultiPV="30") as engine:  # every other move draws, by the fifty-move rule
        engine.send("position fen 7k/8/6K1/8/8/8/8/1Q6 w - - 99 80", "go nodes 200")
        lines = [line for line in engine.until("bestmove b1b8") if " multipv " in line]
        assert "score mate 1" in lines[0] and not any("cp 12780" in line for line in lines)


def test_stop_is_answered_within_a_tenth_of_a_second_while_the_network_computes() -> None:
    evaluator = SlowEvaluator(8, 0.0)
    with DrivenEngine(lambda request: LoadedNetwork(evaluator, "slow")) as engine:
        engine.best_move("position startpos", "go nodes 100")
        evaluator.seconds = 1.0
        for _ in range(2):
            engine.send("go infinite")
            time.sleep(0.3)
            began = time.monotonic()
            assert engine.best_move("stop") in START_MOVES
            assert time.monotonic() - began < 0.1
            engine.send("isready")
            engine.until("readyok")
        # Of another position there is no evaluation yet: one is waited for.
        engine.send("position startpos moves e2e4", "go movetime 60")
        assert int(field(engine.until("bestmove")[-2], "nodes")) == 1


def test_nothing_is_played_without_an_evaluation_unless_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = SlowEvaluator(8, 0.6)
    mate = "position fen 6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
    with DrivenEngine(lambda request: LoadedNetwork(evaluator, "slow")) as engine:
        for limits in ("infinite", "ponder wtime 1 btime 1", "wtime 50 btime 50", "movetime 1"):
            engine.send("ucinewgame", mate, f"go {limits}", "stop", "stop")
            *_, info, answer = engine.until("bestmove")
            assert answer == "bestmove a1a8" and "score mate 1" in info
        monkeypatch.setattr(search, "FIRST_EVALUATION_S", 0.2)
        assert engine.best_move("position startpos", "go infinite", "stop") in START_MOVES
        assert any("no evaluation for 0.2 s" in line for line in engine.lines)


@pytest.mark.parametrize("ends_with", ["", "quit\n"])
def test_the_last_search_of_a_script_has_an_evaluation(ends_with: str) -> None:
    engine = DrivenEngine(lambda request: LoadedNetwork(SlowEvaluator(8, 0.5), "slow"))
    with engine:
        engine.send("isready", "position fen 6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", f"go infinite\n{ends_with}")
    assert engine.status == 0
    assert engine.lines[0] == "readyok" and engine.lines[-1] == "bestmove a1a8"


def test_lines_wait_for_the_network() -> None:
    ready = threading.Event()

    def open_late(request: NetworkRequest) -> LoadedNetwork:
        ready.wait(20)
        return made_up_network(request)

    with DrivenEngine(open_late) as engine:
        engine.send("uci", "isready", "position startpos", "go infinite", "isready", "stop", "go nodes 5")
        engine.until("uciok")
        time.sleep(0.2)
        assert engine.lines[-1] == "uciok"
        ready.set()
        assert "readyok" in engine.until("readyok")
        engine.until("readyok")
        assert engine.until("bestmove")[-1].split()[1] in START_MOVES
        # The tree of the search before is kept, and `stop` may have come late.
        assert int(field(engine.until("bestmove")[-2], "nodes")) >= 5
        assert not any("stopped the search" in line for line in engine.lines)


def test_a_search_waits_for_the_one_before_it_unless_that_has_no_end() -> None:
    with DrivenEngine() as engine:
        for number in range(5):
            engine.send(f"position startpos moves {START_MOVES[number]}", "go nodes 60")
        nodes = [field(engine.until("bestmove")[-2], "nodes") for _ in range(5)]
        assert nodes == ["60"] * 5 and not any("stopped" in line for line in engine.lines)
        engine.send("go infinite", "go nodes 70")
        engine.until("bestmove")
        assert int(field(engine.until("bestmove")[-2], "nodes")) >= 70
        assert sum("go: stopped the" in line for line in engine.lines) == 1
        engine.send("position startpos", "go nodes 1000000000", "go infinite", "go nodes 20", "stop")  # all
        for _ in range(3):
            engine.until("bestmove")
        engine.send("go mate 3", "position startpos moves e2e4", "go nodes 30")  # it may have no end
        engine.until("bestmove")
        assert field(engine.until("bestmove")[-2], "nodes") == "30"


def test_infos_come_at_least_about_once_a_second() -> None:
    evaluator = SlowEvaluator(8, 0.4)
    with DrivenEngine(lambda request: LoadedNetwork(evaluator, "slow")) as engine:
        engine.send("go infinite")
        time.sleep(3.5)  # a second more than is needed, for a busy machine
        engine.send("stop")
        told = engine.until("bestmove")
        assert sum(" score " in line for line in told) >= 3


def test_infinite_and_ponder_hold_the_move_back() -> None:
    mate = "position fen 6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
    with DrivenEngine() as engine:
        engine.send(mate, "go infinite")
        engine.until(lambda line: "score mate 1" in line)
        time.sleep(0.1)
        assert "bestmove" not in engine.lines[-1]
        assert engine.best_move("stop") == "a1a8"
        engine.send(mate, "go ponder wtime 1000 btime 1000")
        time.sleep(0.1)
        assert "bestmove" not in engine.lines[-1]
        assert engine.best_move("ponderhit") == "a1a8"
        # A ponder search that has no proof goes on until its clock, which begins at the hit, has run.
        engine.send("position startpos", "go ponder wtime 3000 btime 3000")
        time.sleep(0.3)
        assert sum("bestmove" in line for line in engine.lines) == 2
        began = time.monotonic()
        engine.send("ponderhit")
        engine.until("bestmove")
        assert time.monotonic() - began < 1.0


def test_multipv_has_a_line_for_each_move_best_first() -> None:
    with DrivenEngine(MultiPV="3") as engine:
        engine.send("go nodes 300")
        told = [line for line in engine.until("bestmove") if " multipv " in line][-3:]
        assert [field(line, "multipv") for line in told] == ["1", "2", "3"]
        assert len({line.split(" pv ")[1].split()[0] for line in told}) == 3


def test_searchmoves_are_all_that_is_searched() -> None:
    with DrivenEngine() as engine:
        assert engine.best_move("go nodes 50 searchmoves a2a3 h2h4") in ("a2a3", "h2h4")
        engine.send("go nodes 150 searchmoves e2e5 a2a3")
        told = engine.until("bestmove")
        assert any("searchmoves: 'e2e5'" in line for line in told) and told[-1].split()[1] == "a2a3"


def test_a_mate_is_told_with_the_length_that_is_proven() -> None:
    fen = "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1"
    with DrivenEngine() as engine:
        engine.send(f"position fen {fen}", "go mate 2")
        told = engine.until("bestmove")
        mate = int(field(told[-2], "mate"))
        assert mate >= 2 and forces_mate(make_line("chess", fen), mate)
        assert len(told[-2].split(" pv ")[1].split()) == 2 * mate - 1


@pytest.mark.parametrize("fen", ["KQkq", "AHah", "HAha"])
def test_castling_in_chess960(fen: str) -> None:
    position = f"position fen r3k2r/8/8/8/8/8/8/R3K2R w {fen} - 0 1"
    with DrivenEngine() as engine:
        assert engine.best_move(position, "go nodes 1 searchmoves e1g1") == "e1g1"
        engine.send("setoption name UCI_Chess960 value true")
        assert engine.best_move(f"{position} moves e1h1 e8a8", "go nodes 5 searchmoves f1f8") == "f1f8"
        assert engine.best_move(position, "go nodes 1 searchmoves e1h1") == "e1h1"
        # A king and a rook elsewhere, by X-FEN and Shredder-FEN; king takes rook whatever the option.
        for rights in ("KQ", "GB"):
            start = f"position fen k7/8/8/8/8/8/8/1R3KR1 w {rights} - 0 1"
            assert engine.best_move(start, "go nodes 1 searchmoves f1g1") == "f1g1"
            assert engine.best_move(start, "go nodes 1 searchmoves f1b1") == "f1b1"


@pytest.mark.parametrize(
    "bad",
    [
        "position fen 8/8/8/8/8/8/8/8 w - - 0 1",
        "position startpos moves e2e4 e2e4",
        "position fen x",
        "position",
        "position e2e4",
    ],
)
def test_after_a_refused_position_there_is_none(bad: str) -> None:
    with DrivenEngine() as engine:
        engine.send("position startpos moves e2e4", bad)
        engine.until("info string position: ")
        for limits, *then in (("nodes 3",), ("movetime 10",), ("infinite", "stop"), ("ponder", "ponderhit")):
            engine.send(f"go {limits}")
            engine.until("info string no position")
            if then:  # the answer waits for it
                engine.send("isready")
                assert not any(line.startswith("bestmove") for line in engine.until("readyok"))
            engine.send(*then)
            assert engine.until("bestmove")[-1] == "bestmove 0000"
        assert engine.best_move("position startpos moves e2e4", "go nodes 3 searchmoves e7e5") == "e7e5"


def test_a_bad_option_is_told_and_changes_nothing() -> None:
    with DrivenEngine() as engine:
        for bad in (
            "name Hash value many",
            "name Hash value 0",
            "name Hsah value 3",
            "name SmartPruning value 2",
        ):
            engine.send(f"setoption {bad}")
            engine.until("info string option ")
        engine.send("setoption name hash value 128", "setoption name moveoverhead value 50", "isready")
        engine.until("readyok")
        assert engine.engine.options["Hash"] == 128
        assert engine.engine.options["Move Overhead"] == 50


def test_a_bad_network_is_one_line_and_the_old_one_stays() -> None:
    def open_some(request: NetworkRequest) -> LoadedNetwork:
        if request.weights == "bad":
            raise WeightsError("--weights bad: no such file")
        return LoadedNetwork(made_up_network(request).evaluator, f"network {request.weights}")

    with DrivenEngine(open_some) as engine:
        engine.send("uci", "go nodes 1")
        engine.until("info string network first")
        engine.until("bestmove")
        engine.send("setoption name WeightsFile value bad", "isready")
        told = engine.until("readyok")
        assert told == ["info string --weights bad: no such file; network unchanged", "readyok"]
        engine.send("go nodes 20")
        engine.until("bestmove")
        engine.send("setoption name WeightsFile value other one", "isready")
        assert engine.until("readyok") == ["readyok"]
        engine.send("go nodes 20")
        told = engine.until("bestmove")
        assert told[0] == "info string network other one" and field(told[-2], "nodes") == "20"


def test_a_network_that_fails_while_another_is_wanted_changes_nothing() -> None:
    opened, fails = [], threading.Event()

    def open_some(request: NetworkRequest) -> LoadedNetwork:
        opened.append((request.weights, request.threads))
        if request.weights == "bad":
            fails.wait(20)
            raise WeightsError("bad: no such file")
        return LoadedNetwork(made_up_network(request).evaluator, request.weights)

    with DrivenEngine(open_some) as engine:
        engine.send("isready", "setoption name WeightsFile value bad")
        engine.until("readyok")
        while opened[-1][0] != "bad":
            time.sleep(0.01)
        engine.send("setoption name WeightsFile value other")
        time.sleep(0.1)
        fails.set()
        engine.send("isready", "setoption name Threads value 2", "isready")
        engine.until("readyok")
        engine.until("readyok")
    assert opened == [("first", 0), ("bad", 0), ("other", 0), ("other", 2)]


def test_a_first_network_that_cannot_be_read_ends_the_engine() -> None:
    def open_none(request: NetworkRequest) -> LoadedNetwork:
        raise WeightsError("--weights first: no such file")

    engine = DrivenEngine(open_none)
    with engine:
        pass
    assert isinstance(engine.error, WeightsError)


def test_a_full_tree_is_told() -> None:
    with DrivenEngine(MemoryLimit="1", MinibatchSize="32") as engine:
        engine.send("go infinite")
        engine.until("info string tree full (MemoryLimit 1 MB)")
        assert engine.best_move("stop") in START_MOVES


@pytest.mark.parametrize("broken", ["__init__", "set_line", "start", "wait", "snapshot"])
def test_a_search_that_fails_is_reported_and_answered(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **named: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(TreeSearch, broken, fail)
    with DrivenEngine() as engine:
        for limits in ("nodes 20", "movetime 20", "wtime 500 btime 500"):
            engine.send("isready")
            engine.until("readyok")
            assert engine.best_move("position startpos", f"go {limits}") in START_MOVES
        assert any("std::bad_alloc" in line for line in engine.lines)
        engine.send("go infinite")
        assert engine.best_move("stop") in START_MOVES
        monkeypatch.undo()
        engine.send("ucinewgame", "position startpos", "go nodes 20")
        assert field(engine.until("bestmove")[-2], "nodes") == "20"


def test_an_evaluator_that_fails_is_reported_and_answered() -> None:
    class Lost(MadeUpEvaluator):
        def submit(self, *leaves):
            raise RuntimeError("CUDA error:\nthe device is lost")

    with DrivenEngine(lambda request: LoadedNetwork(Lost("chess", 8), "lost")) as engine:
        assert engine.best_move("position startpos", "go nodes 20") in START_MOVES
        assert any("CUDA error: the device" in line for line in engine.lines)


def test_memory_options_are_lowered_to_what_is_there() -> None:
    with DrivenEngine(Hash="1048576") as engine:
        engine.send("uci", "setoption name MemoryLimit value 1048576", "isready")
        assert not any("info string" in line for line in engine.until("readyok"))
        engine.send("go nodes 1")
        lines = engine.until("bestmove")
        for name in ("Hash", "MemoryLimit"):
            used = engine.engine.options[name]
            assert f"info string option {name}: 1048576 MB are not free; {used} MB used" in lines
            assert 1 <= used < psutil.virtual_memory().total >> 20


def test_commands_out_of_order_are_answered_all_the_same() -> None:
    with DrivenEngine() as engine:
        engine.send("stop", "ponderhit", "go infinite", "go nodes 10")
        engine.until("bestmove")
        engine.until("bestmove")
        engine.send("go infinite", "position startpos moves e2e4", "setoption name MultiPV value 2", "stop")
        assert engine.until("bestmove")[-1].split()[1] in START_MOVES
        engine.send("ucinewgame", "isready", "debug on", "register later", "xyzzy", "", "go nodes 9")
        engine.until("readyok")
        engine.until("info string unknown command: 'xyzzy'")
        engine.until("bestmove")


def test_a_line_of_megabytes_is_passed_over() -> None:
    with DrivenEngine() as engine:
        moves = "g1f3 g8f6 f3g1 f6g8 " * 120_000
        engine.send(f"position startpos moves {moves}", "isready")
        engine.until("info string ignored a line of more than 1,048,576 bytes")
        engine.until("readyok")
        assert engine.best_move("go nodes 2") in START_MOVES


def test_the_end_of_the_input_ends_the_engine_in_the_middle_of_a_search() -> None:
    evaluator = SlowEvaluator(8, 0.0)
    engine = DrivenEngine(lambda request: LoadedNetwork(evaluator, "slow"))
    with engine:
        engine.best_move("go nodes 10")
        evaluator.seconds = 3.0
        engine.send("go infinite")
        time.sleep(0.1)
        began = time.monotonic()
    assert engine.status == 0 and time.monotonic() - began < 1.5
