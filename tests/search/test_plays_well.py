"""The core's search with a network that knows nothing: mates, tic-tac-toe without a loss, proofs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import chess
import numpy as np
import pytest

from alphazero.games.core_types import Line
from tests.support.games.mates import is_mated, mating_moves
from tests.support.search.driving import (
    Evaluator,
    VariedEvaluator,
    core_search,
    line_of,
    sample_noise,
    search_to_end,
    uniform_evaluator,
)
from tests.support.search.reference import Result
from tests.support.search.reference_rules import Settings

PUCT = Settings(simulations=800, fpu_reduction=0.2)
GUMBEL = Settings(algorithm="gumbel", simulations=200, considered=256)

MATES_IN_ONE = {
    "fool's mate": "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2",
    "scholar's mate": "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4",
    "back rank": "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",
    "smothered": "6rk/6pp/8/6N1/8/8/8/6K1 w - - 0 1",
    "by promotion": "6k1/3P1ppp/8/8/8/8/8/6K1 w - - 0 1",
    "by castling": "8/8/8/8/8/8/7R/1k2K2R w K - 0 1",
}
MATES_IN_TWO = {
    "Morphy's problem": "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1",
    "Morphy in the Paris opera, 1858": "4kb1r/p2n1ppp/4q3/4p1B1/4P3/1Q6/PPP2PPP/2KR4 w k - 1 16",
    "Legal's mate": "rn1qkbnr/ppp2p1p/3p2p1/4N3/2B1P3/2N5/PPPP1PPP/R1BbK2R w KQkq - 0 6",
    "rook and king": "8/8/8/8/8/2k5/7r/K7 b - - 0 1",
}
MATES_IN_THREE = {
    "Reti against Tartakower, 1910": "rnb1kb1r/pp3ppp/2p5/4q3/4n3/3Q4/PPPB1PPP/2KR1BNR w kq - 0 9",
    "Philidor's legacy": "3r2k1/5Npp/8/8/2Q5/8/8/7K w - - 0 1",
}


def search(
    line: Line, settings: Settings, evaluator: Evaluator = uniform_evaluator, seed: int = 1
) -> tuple[Result, int]:
    """What the core finds, and how many evaluations it asked for."""
    core = core_search(line, settings)
    core.start(line, sample_noise(settings, len(line.legal()), seed))
    evaluations = search_to_end(core, evaluator)
    return core.result(0.0, 0.0), evaluations


@pytest.mark.parametrize(
    "settings", [PUCT, replace(PUCT, leaves=16), GUMBEL], ids=["puct", "16 leaves", "gumbel"]
)
@pytest.mark.parametrize("name", MATES_IN_ONE)
def test_mates_in_one_are_found(name: str, settings: Settings) -> None:
    board = chess.Board(MATES_IN_ONE[name])
    line = line_of("chess", MATES_IN_ONE[name])
    result, _ = search(line, settings)
    board.push_uci(line.move_to_text(result.move))
    assert board.is_checkmate()
    assert (result.proven, result.root_q, result.root_d, result.best_q) == (1, 1.0, 0.0, 1.0)
    assert result.policy.max() == 1.0, "every other move throws a proven mate in one away"


@pytest.mark.parametrize("leaves", [1, 16])
@pytest.mark.parametrize("name", MATES_IN_TWO)
def test_mates_in_two_are_found_and_proven(name: str, leaves: int) -> None:
    board = chess.Board(MATES_IN_TWO[name])
    assert not any(mating_moves(board, 1))
    winning = {move.uci() for move in mating_moves(board, 2)}
    assert winning
    line = line_of("chess", MATES_IN_TWO[name])
    result, evaluations = search(line, replace(PUCT, simulations=60_000, leaves=leaves))
    assert result.proven == 1 and result.root_q == 1.0
    assert line.move_to_text(result.move) in winning
    assert evaluations < 60_000, "the proof ends the search"


@pytest.mark.parametrize("name", MATES_IN_THREE)
def test_mates_in_three_are_found_and_proven(name: str) -> None:
    line = line_of("chess", MATES_IN_THREE[name])
    result, _ = search(line, replace(PUCT, simulations=1_000_000, leaves=64))
    assert result.proven == 1
    board = chess.Board(MATES_IN_THREE[name])
    assert not any(mating_moves(board, 2))
    board.push_uci(line.move_to_text(result.move))
    assert board.is_check() and is_mated(board, 2)


@cache
def tictactoe_value(squares: str) -> int:
    """Minimax: the value of a board of the mover's `x`, the opponent's `o` and `.`, for the mover."""
    rows = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
    if any(all(squares[place] == "o" for place in row) for row in rows):
        return -1
    free = [place for place in range(9) if squares[place] == "."]
    return max((-tictactoe_value(play(squares, place)) for place in free), default=0)


def play(squares: str, place: int) -> str:
    """The board after the mover's stone, seen by the other side."""
    return (squares[:place] + "x" + squares[place + 1 :]).translate(str.maketrans("xo", "ox"))


def squares_of(line: Line) -> str:
    """The board of a line as tictactoe_value takes it: bottom row first, as policy indices go."""
    rows = str(line).split()[0].split("/")
    text = "".join("." * int(sign) if sign.isdigit() else sign for row in reversed(rows) for sign in row)
    return text if line.first_player_to_move else text.translate(str.maketrans("xo", "ox"))


def reachable(line: Line, seen: dict[str, Line]) -> dict[str, Line]:
    """A line to every position with moves to play below this one, by its text."""
    if not line.outcome().over and str(line) not in seen:
        seen[str(line)] = line
        for move in line.legal():
            after = line.copy()
            after.push(move)
            reachable(after, seen)
    return seen


def games_against_everything(line: Line, settings: Settings, searcher_moves: bool) -> Iterator[int]:
    """Outcomes for the searcher of all games in which the opponent tries every move each time."""
    outcome = line.outcome()
    if outcome.over:
        yield outcome.value if searcher_moves else -outcome.value
        return
    moves = [search(line, settings, seed=line.num_plies)[0].move] if searcher_moves else line.legal()
    for move in moves:
        after = line.copy()
        after.push(move)
        yield from games_against_everything(after, settings, not searcher_moves)


@pytest.mark.parametrize(
    "settings",
    [
        replace(PUCT, simulations=2000),
        replace(PUCT, simulations=2000, leaves=8),
        replace(PUCT, simulations=2000, noise_epsilon=0.25, forced_playouts=2.0),
        replace(PUCT, simulations=8000, proofs=False),  # means alone find the truth later
        replace(GUMBEL, simulations=2000),
    ],
    ids=["puct", "8 leaves", "noise", "no proofs", "gumbel"],
)
@pytest.mark.parametrize("searcher_begins", [True, False])
def test_tictactoe_is_never_lost_against_any_play(settings: Settings, searcher_begins: bool) -> None:
    outcomes = list(games_against_everything(line_of("tictactoe"), settings, searcher_begins))
    assert len(outcomes) > 60
    assert min(outcomes) >= 0
    assert 1 in outcomes, "bad play is punished"


@pytest.mark.parametrize(
    ("evaluator", "share_proven"),
    [(uniform_evaluator, 0.95), (VariedEvaluator(1), 0.5)],
    ids=["uniform", "misleading"],
)
@pytest.mark.parametrize("settings", [PUCT, GUMBEL], ids=["puct", "gumbel"])
def test_proofs_in_tictactoe_are_the_truth(
    settings: Settings, evaluator: Evaluator, share_proven: float
) -> None:
    lines = [line for line in reachable(line_of("tictactoe"), {}).values() if line.num_plies >= 3][::10]
    num_proven = 0
    for line in lines:
        board = squares_of(line)
        truth = tictactoe_value(board)
        result, _ = search(line, replace(settings, simulations=10_000), evaluator)
        if result.proven == 2:
            continue
        num_proven += 1
        assert result.proven == truth, str(line)
        assert (result.root_q, result.best_q, result.root_d) == (truth, truth, truth == 0)
        for index in np.asarray(line.legal_indices())[result.policy > 0]:
            assert -tictactoe_value(play(board, int(index))) == truth, "a share for a worse move"
    assert len(lines) > 400
    assert num_proven >= share_proven * len(lines)


def test_minimax_of_the_test_knows_tictactoe() -> None:
    assert tictactoe_value("." * 9) == 0
    lines = reachable(line_of("tictactoe"), {})
    assert len(lines) == 4520, (
        "reachable positions with a move to play (5478 with those where the game is over)"
    )
    assert all(len(line.legal()) == squares_of(line).count(".") for line in lines.values())


def test_a_proven_root_ends_the_search() -> None:
    line = line_of("connect4", None, "4 1 4 1 4 1")
    result, evaluations = search(line, replace(PUCT, simulations=100_000))
    assert (result.proven, line.move_to_text(result.move)) == (1, "4")
    assert evaluations < 100 and result.visits < 100
    without_proofs, _ = search(line, replace(PUCT, simulations=2000, proofs=False))
    assert (without_proofs.visits, without_proofs.proven) == (2000, 2), "only the proof ends it"


def test_a_lost_root_is_proven_and_still_has_a_policy() -> None:
    line = line_of("connect4", None, "4 1 3 1 5")  # open on both sides: 2 and 6
    result, evaluations = search(line, replace(PUCT, simulations=100_000))
    assert (result.proven, result.root_q, result.best_q) == (-1, -1.0, -1.0)
    assert result.policy.sum() == pytest.approx(1.0)
    assert evaluations < 1000
