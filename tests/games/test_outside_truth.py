"""Our rules and OpenSpiel's: legal moves, who moves and results on 10,000 random positions of each game.

Chess ends alike in both by mate, stalemate, a third repetition, fifty moves without a capture or a move of a
pawn (mate with the last of them counts as mate) and too little material. One rule differs: OpenSpiel counts a
position after a pawn's double step as another one wherever a pawn stands beside it, even where that pawn is
pinned and may not capture. Ours follows FIDE 9.2.3, where only a capture that is legal makes that difference.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import chess
import pytest

from alphazero.games.core_types import Line
from alphazero.games.registry import make_line, read_game
from tests.games.test_chess_agreement import ENDGAMES

pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")

NUM_POSITIONS = 10_000
# Of a white king on e4 and a black one on g6: squares of further pieces that attack neither king.
SQUARES = {
    True: {"N": ("a1", "b1", "c1"), "B": ("f1", "h1", "e1", "g1")},
    False: {"N": ("a8", "b8", "h8"), "B": ("c8", "e8", "d8", "f8")},
}


def result_of(line: Line) -> int:
    """For the first player, of a game that is over."""
    outcome = line.outcome()
    return int(outcome.value if line.first_player_to_move else -outcome.value)


@pytest.mark.parametrize(
    ("own", "theirs"), [("tictactoe", "tic_tac_toe"), ("connect4", "connect_four"), ("othello", "othello")]
)
def test_moves_and_results_are_openspiel_s(own: str, theirs: str) -> None:
    """Squares and columns are counted alike, from either side: mirrored games are the same."""
    game, draw = read_game("--game", f"openspiel:{theirs}"), random.Random(1)
    results: Counter[int] = Counter()
    seen, moved_again = 0, 0
    while seen < NUM_POSITIONS:
        line, other = make_line(own), make_line(game)
        while not line.outcome().over:
            assert line.legal() == other.legal()
            assert line.first_player_to_move == other.first_player_to_move
            move = draw.choice(line.legal())
            line.push(move)
            other.push(move)
            seen += 1
            moved_again += line.legal() == [64]
        assert other.outcome().over and result_of(line) == result_of(other)
        results[result_of(line)] += 1
    assert results[1] and results[-1] and (results[0] or own == "connect4"), (
        results
    )  # draws of which are rare
    assert moved_again > 0 or own != "othello"  # passes
    assert make_line(own).perft(4) == make_line(game).perft(4)


class Pair:
    """A game of chess by both rules."""

    def __init__(self, fen: str = chess.STARTING_FEN, moves: Sequence[str] = ()) -> None:
        self.line = make_line("chess", fen)
        self.state: Any = pyspiel.load_game("chess").new_initial_state(fen)
        for move in moves:
            self.push(move)

    def push(self, uci: str) -> None:
        self.state.apply_action(self.state.parse_move_to_action(uci))
        self.line.push_text(uci)

    @property
    def ends(self) -> tuple[bool, bool]:
        """Whether the game is over: for us, for OpenSpiel."""
        return self.line.outcome().over, self.state.is_terminal()

    def assert_same(self) -> str:
        """How it has ended."""
        outcome = self.line.outcome()
        assert outcome.over == self.state.is_terminal(), (str(self.line), str(self.state))
        if outcome.over:
            assert result_of(self.line) == self.state.returns()[1], str(self.line)  # White is its player 1
        else:
            assert str(self.line) == str(self.state)
            assert self.line.first_player_to_move == (self.state.current_player() == 1)
            texts = [self.line.move_to_text(move) for move in self.line.legal()]
            actions = [self.state.parse_move_to_action(text) for text in texts]
            assert sorted(actions) == self.state.legal_actions(), str(self.line)
        return str(outcome.termination).partition(".")[2]


def test_moves_and_results_of_chess_are_openspiel_s() -> None:
    draw, ends, seen = random.Random(2), Counter[str](), 0
    starts = [fen for fen in ENDGAMES if chess.Board(fen).is_valid()]
    while seen < NUM_POSITIONS:
        pair = Pair(draw.choice([chess.STARTING_FEN, *starts]))
        while (end := pair.assert_same()) == "NONE":
            pair.push(pair.line.move_to_text(draw.choice(pair.line.legal())))
            seen += 1
        ends[end] += 1
    assert set(ends) >= {"WIN", "STALEMATE", "FIFTY_MOVES", "INSUFFICIENT_MATERIAL"}, ends


def test_a_third_repetition_ends_chess_in_both_and_not_before() -> None:
    there_and_back = ("g1f3", "g8f6", "f3g1", "f6g8")
    moves = there_and_back * 2
    assert [Pair(moves=moves[:plies]).ends for plies in (4, 7, 8)] == [
        (False,) * 2,
        (False,) * 2,
        (True,) * 2,
    ]
    # The right to castle makes another position; so does a capture en passant that is possible.
    rooks = ("a1b1", "a8b8", "b1a1", "b8a8") * 3
    castles = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
    assert [Pair(castles, rooks[:plies]).ends for plies in (8, 9, 10)] == [(False,) * 2] * 2 + [(True,) * 2]
    step = ("e2e4", "a7a6", "e4e5", "d7d5", *there_and_back * 2)
    assert Pair(moves=step).ends == (False, False)
    assert Pair(moves=(*step, "g1f3")).ends == (True, True)


def test_a_capture_en_passant_by_a_pinned_pawn_makes_another_position_for_openspiel_alone() -> None:
    start = "8/8/8/8/k3p2Q/8/3P4/3K4 w - - 0 1"
    moves = ("d2d4", *("a4a5", "d1e1", "a5a4", "e1d1") * 2)
    board = chess.Board(start)
    for move in moves:
        board.push_uci(move)
    pair = Pair(start, moves)
    assert pair.ends == (True, False) and board.is_repetition(3)
    pair.state.apply_action(pair.state.parse_move_to_action("a4a5"))
    assert pair.state.is_terminal()  # which it had seen twice


def test_fifty_moves_end_chess_in_both_and_mate_with_the_last_wins() -> None:
    last = "7k/8/5K2/6Q1/8/8/8/8 w - - {} 100"
    assert Pair(last.format(98), ["g5a5"]).ends == (False, False)
    assert Pair(last.format(99), ["g5a5"]).assert_same() == "FIFTY_MOVES"
    mated = Pair(last.format(99), ["g5g7"])
    assert mated.assert_same() == "WIN" and result_of(mated.line) == 1


def test_too_little_material_is_the_same_for_up_to_three_pieces_a_side() -> None:
    """All knights and bishops, these on either colour of squares."""
    sets = [
        [(kind, square) for kind, all_of in squares.items() for square in all_of]
        for squares in (SQUARES[True], SQUARES[False])
    ]
    seen: Counter[bool] = Counter()
    for few, many in itertools.product(range(3), range(4)):
        for white in itertools.combinations(sets[0], many):
            for black in itertools.combinations(sets[1], few):
                board = chess.Board(None)
                board.set_piece_at(chess.E4, chess.Piece(chess.KING, chess.WHITE))
                board.set_piece_at(chess.G6, chess.Piece(chess.KING, chess.BLACK))
                for is_white, pieces in ((True, white), (False, black)):
                    for kind, square in pieces:
                        piece = chess.Piece(chess.KNIGHT if kind == "N" else chess.BISHOP, is_white)
                        board.set_piece_at(chess.parse_square(square), piece)
                if not board.is_valid():
                    continue
                ours, theirs = Pair(board.fen()).ends
                assert ours == theirs == board.is_insufficient_material(), board.fen()
                seen[ours] += 1
    assert min(seen[True], seen[False]) > 10, seen
