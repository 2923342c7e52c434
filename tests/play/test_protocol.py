"""Lines of UCI by a table: what is understood, and what is passed over with a remark."""

import pytest

from alphazero.play.uci.protocol import (
    MOST,
    Go,
    Plain,
    SetOption,
    SetPosition,
    best_move_line,
    centipawns,
    info_string,
    parse,
    per_mille,
)
from alphazero.search.snapshot import mate_moves

FEN = "8/8/8/8/8/8/8/K1k5 w - - 0 1"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("uci", Plain("uci")),
        ("  isready \r\n", Plain("isready")),
        ("stop\t", Plain("stop")),
        ("register later", Plain("register")),
        ("debug on", Plain("debug")),
        ("setoption name Hash value 32", SetOption("Hash", "32")),
        ("setoption name Clear Hash", SetOption("Clear Hash", "")),
        ("setoption NAME Move  Overhead VALUE 7", SetOption("Move Overhead", "7")),
        (
            "setoption name WeightsFile value /a b/c  d.pt",
            SetOption("WeightsFile", "/a b/c  d.pt"),
        ),
        (
            "setoption name UCI_Opponent value GM 2800 human A value",
            SetOption("UCI_Opponent", "GM 2800 human A value"),
        ),
        ("setoption name WeightsFile value", SetOption("WeightsFile", "")),
        ("position startpos", SetPosition("", ())),
        ("position startpos moves e2e4 e7e5", SetPosition("", ("e2e4", "e7e5"))),
        (f"position fen {FEN}", SetPosition(FEN, ())),
        (f"position fen {FEN} moves a1a2", SetPosition(FEN, ("a1a2",))),
        ("go", Go()),
        ("go infinite", Go(infinite=True)),
        ("go wtime 100", Go(wtime=100)),
        (
            "go btime 1 wtime 2 binc 3 winc 4 movestogo 5",
            Go(wtime=2, btime=1, winc=4, binc=3, movestogo=5),
        ),
        ("go wtime -30 btime 5", Go(wtime=-30, btime=5)),
        ("go searchmoves e2e4 d2d4 nodes 5 ponder", Go(searchmoves=("e2e4", "d2d4"), nodes=5, ponder=True)),
        ("go depth 3 mate 2 movetime 50", Go(depth=3, mate=2, movetime=50)),
        ("go nodes 99999999999999999999", Go(nodes=MOST)),
        ("go nodes " + "9" * 5000, Go(nodes=MOST)),
        ("go nodes 0", Go(nodes=0)),
    ],
)
def test_a_line_is_understood(line: str, command: object) -> None:
    parsed = parse(line)
    assert parsed.command == command
    assert parsed.remarks == ()


@pytest.mark.parametrize(
    ("line", "command", "remark"),
    [
        ("joho stop", Plain("stop"), "ignored unknown command: 'joho'"),
        ("blah", None, "unknown command: 'blah'"),
        ("setoption Hash 32", None, "setoption: expected setoption name NAME"),
        ("setoption name", None, "setoption: expected setoption name NAME"),
        ("setoption name value 3", None, "setoption: expected setoption name NAME"),
        ("position startpos e2e4", SetPosition("", ()), "position: ignored 'e2e4'"),
        ("go nodes -3 depth 4", Go(depth=4), "go nodes: '-3': expected a whole number from 0; ignored"),
        ("go wtime btime 7", Go(btime=7), "go wtime: '': expected a whole number"),
        ("go wtime x infinite", Go(infinite=True), "go wtime: 'x': expected a whole number"),
        ("go fast depth 2", Go(depth=2), "go: ignored 'fast'"),
        ("stop now", Plain("stop"), "stop: ignored 'now'"),
    ],
)
def test_what_is_not_understood_is_told(line: str, command: object, remark: str) -> None:
    parsed = parse(line)
    assert parsed.command == command
    assert any(told.startswith(remark) for told in parsed.remarks), parsed.remarks


@pytest.mark.parametrize(
    "limits",
    [
        *("nodes many", "nodes -5", "nodes 1_0", "nodes ١٢", "nodes", "movetime", "movetime -1", "depth -1"),
        *("wtime 1e3", "wtime 1.5", "wtime 0x10", "mate 0", "mate -3", "movestogo 40", "winc 100 binc 100"),
        *("node 100", "wtime btime", "ponder nodes x", "nodes +", "nodes -0x1"),
    ],
)
def test_limits_that_are_none_end_after_one_evaluation(limits: str) -> None:
    parsed = parse(f"go {limits}")
    assert isinstance(parsed.command, Go)
    assert parsed.command.nodes == 1 and parsed.command.ponder == ("ponder" in limits)
    assert parsed.remarks[-1].startswith("go: no limit is left")


@pytest.mark.parametrize(
    ("line", "got"),
    [("position", "''"), ("position fen moves e2e4", "'fen'"), ("position e2e4", "'e2e4'")],
)
def test_a_position_that_is_none_is_refused(line: str, got: str) -> None:
    command = parse(line).command
    assert isinstance(command, SetPosition) and command.problem.startswith(got)


def test_an_empty_line_is_nothing() -> None:
    assert parse("  \n").command is None and parse("").remarks == ()


def test_centipawns_are_those_of_lc0() -> None:
    # lc0: 90 * tan(1.5637541897 * q)
    assert [centipawns(q) for q in (0.0, 0.1, 0.5, -0.5)] == [0, 14, 89, -89]
    assert centipawns(1.0) == -centipawns(-1.0) and 12000 < centipawns(1.0) < 13000
    assert centipawns(2.0) == centipawns(1.0)


def test_per_mille_has_a_sum_of_a_thousand() -> None:
    assert per_mille((0.3333, 0.3333, 0.3333)) == (333, 334, 333)
    assert per_mille((0.5005, 0.0, 0.4995)) == (500, 0, 500)
    assert per_mille((1.0, 0.0, 0.0)) == (1000, 0, 0)


def test_plies_to_the_end_are_moves_of_the_winner() -> None:
    assert [mate_moves(1, plies) for plies in (1, 3, 5)] == [1, 2, 3]
    assert [mate_moves(-1, plies) for plies in (0, 2, 4)] == [0, -1, -2]
    assert mate_moves(None, None) is None and mate_moves(0, None) is None


def test_answers_are_one_line() -> None:
    assert best_move_line("e2e4") == "bestmove e2e4"
    assert best_move_line("e2e4", "e7e5") == "bestmove e2e4 ponder e7e5"
    assert info_string("a\nb") == r"info string a\nb"
