import random
from collections import Counter

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import GameInputError
from alphazero.games.core_types import Line
from alphazero.games.registry import get_spec, make_line

DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


class SlowBoard:
    """Stones in a row on a grid, the slow way: lists, no bits. rows[0] is the bottom row."""

    def __init__(self, height: int, width: int, in_a_row: int, falls: bool) -> None:
        self.rows = [["."] * width for _ in range(height)]
        self.height, self.width, self.in_a_row, self.falls = height, width, in_a_row, falls
        self.turn = "x"

    def at(self, row: int, column: int) -> str:
        inside = 0 <= row < self.height and 0 <= column < self.width
        return self.rows[row][column] if inside else ""

    def winner(self) -> str:
        for row in range(self.height):
            for column in range(self.width):
                for up, right in DIRECTIONS:
                    line = {self.at(row + i * up, column + i * right) for i in range(self.in_a_row)}
                    if line in ({"x"}, {"o"}):
                        return line.pop()
        return ""

    def moves(self) -> list[int]:
        if self.winner():
            return []
        if self.falls:
            return [column for column in range(self.width) if self.rows[-1][column] == "."]
        return [
            i for i in range(self.height * self.width) if self.rows[i // self.width][i % self.width] == "."
        ]

    def play(self, move: int) -> None:
        if self.falls:
            row = next(row for row in range(self.height) if self.rows[row][move] == ".")
            self.rows[row][move] = self.turn
        else:
            self.rows[move // self.width][move % self.width] = self.turn
        self.turn = "o" if self.turn == "x" else "x"

    def text(self) -> str:
        text = "/".join("".join(row) for row in reversed(self.rows))
        for empty in range(self.width, 0, -1):
            text = text.replace("." * empty, str(empty))
        return text

    def planes(self) -> np.ndarray:
        """[4, height, width]: the mover's stones, the others, second player to move, ones."""
        board = np.array(self.rows)
        other = "o" if self.turn == "x" else "x"
        second = np.full(board.shape, self.turn == "o")
        return np.stack([board == self.turn, board == other, second, np.ones_like(second)]).astype(np.uint8)


def slow_board(name: str) -> SlowBoard:
    return SlowBoard(6, 7, 4, falls=True) if name == "connect4" else SlowBoard(3, 3, 3, falls=False)


def unpack(name: str, packed: np.ndarray) -> np.ndarray:
    spec = get_spec(name)
    height, width = spec.board_height, spec.board_width
    bits = np.unpackbits(packed[:16].reshape(2, 8), axis=1, bitorder="little")
    assert bits[:, height * width :].sum() == 0
    scalars = np.broadcast_to(packed[16:, None, None], (2, height, width))
    return np.concatenate([bits[:, : height * width].reshape(2, height, width), scalars])


@pytest.mark.parametrize("name", ["connect4", "tictactoe"])
def test_random_games_equal_a_slow_board(name: str):
    rng = random.Random(name)
    ends: Counter[str] = Counter()
    for _ in range(150):
        line, board = make_line(name), slow_board(name)
        keys = {}
        while True:
            moves, outcome = board.moves(), line.outcome()
            assert sorted(line.legal()) == moves
            assert line.legal_indices().tolist() == moves
            assert str(line) == board.text()
            assert str(make_line(name, board.text())) == board.text() if not board.winner() else True
            assert line.first_player_to_move == (board.turn == "x")
            np.testing.assert_array_equal(unpack(name, line.packed()), board.planes())
            assert keys.setdefault(line.key, board.text()) == board.text()
            expected = "WIN" if board.winner() else "NONE" if moves else "BOARD_FULL"
            assert outcome.termination.name == expected
            assert outcome.value == (-1 if expected == "WIN" else 0)
            if not moves:
                ends[f"{expected} {board.winner()}"] += 1
                break
            assert all(line.index_to_move(line.move_to_index(move)) == move for move in moves)
            move = rng.choice(moves)
            text = line.move_to_text(move)
            assert line.text_to_move(text) == move
            line.push_text(text)
            board.play(move)
    wanted = {"WIN x", "WIN o"} | ({"BOARD_FULL "} if name == "tictactoe" else set())
    assert wanted <= set(ends), ends


def test_a_full_connect_four_board_without_four_in_a_row_is_a_draw():
    # Pairs of columns with colours that alternate by rows: no four in any direction.
    full = "ooxxoox/xxooxxo/ooxxoox/xxooxxo/ooxxoox/xxooxxo"
    drawn = make_line("connect4", full)
    assert drawn.outcome().termination.name == "BOARD_FULL"
    assert drawn.legal() == []


@pytest.mark.parametrize(
    ("depth", "leaves"),
    list(enumerate([1, 7, 49, 343, 2401, 16807, 117649, 823536, 5673234])),
)
def test_connect_four_tree_has_the_known_size(depth: int, leaves: int):
    assert make_line("connect4").perft(depth) == leaves


def test_chess_tree_of_the_generic_count_has_the_known_size():
    assert [make_line("chess").perft(depth) for depth in range(4)] == [1, 20, 400, 8902]


def test_tic_tac_toe_has_255168_games_and_5478_positions():
    positions: set[int] = set()
    games: Counter[str] = Counter()

    def walk(line: Line) -> None:
        positions.add(line.key)
        if line.outcome().over:
            won = line.outcome().termination == _core.Termination.WIN
            games[("o" if line.first_player_to_move else "x") if won else "draw"] += 1
            return
        for move in line.legal():
            line.push(move)
            walk(line)
            line.pop()

    walk(make_line("tictactoe"))
    assert len(positions) == 5478
    assert games == {"x": 131184, "o": 77904, "draw": 46080}
    assert sum(games.values()) == 255168


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("connect4", "7/7/7/7/7", "expected 6 rows of 7"),
        ("connect4", "7/7/7/7/7/8", "longer than 7"),
        ("connect4", "7/7/7/7/7/6z", "'z'"),
        ("connect4", "7/7/7/7/7/oo5", "as many x as o"),
        ("connect4", "7/7/7/7/x6/7", "hangs in the air"),
        ("connect4", "7/7/7/7/ooo4/xxxxo2", "four in a row"),
        ("tictactoe", "3/3", "expected 3 rows of 3"),
        ("tictactoe", "xxx/3/3", "as many x as o"),
        ("tictactoe", "xxx/oo1/1o1", "three in a row"),
        ("tictactoe", "", "expected 3 rows of 3"),
    ],
)
def test_boards_that_cannot_be_are_refused_with_the_reason(name: str, text: str, reason: str):
    with pytest.raises(GameInputError, match=reason):
        make_line(name, text)


@pytest.mark.parametrize(("name", "text"), [("connect4", "8"), ("connect4", ""), ("tictactoe", "d1")])
def test_moves_outside_the_board_are_refused(name: str, text: str):
    with pytest.raises(_core.GameError, match="expected a"):
        make_line(name).push_text(text)


def test_a_full_column_and_a_taken_square_are_refused():
    column = make_line("connect4", "x6/o6/x6/o6/x6/o6")
    with pytest.raises(_core.GameError, match="no legal move"):
        column.push_text("1")
    square = make_line("tictactoe", "3/1x1/3")
    with pytest.raises(_core.GameError, match="no legal move"):
        square.push_text("b2")
