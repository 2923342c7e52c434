"""Search with random playouts: moves on exact positions, and tic-tac-toe against every reply."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

import pytest

from alphazero.games.outside.uct import uct_action
from tests.support.games.exact import exact_value

ROWS = tuple(
    sum(1 << square for square in row)
    for row in ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
)


@dataclass
class TicTacToe:
    """marks: of each player, a bit for each square."""

    marks: tuple[int, int] = (0, 0)
    player: int = 0
    free: tuple[int, ...] = tuple(range(9))
    won: bool = False  # by whoever moved last

    def current_player(self) -> int:
        return self.player

    def legal_actions(self) -> tuple[int, ...]:
        return self.free

    def apply_action(self, action: int) -> None:
        own = self.marks[self.player] | 1 << action
        self.marks = (self.marks[0], own) if self.player else (own, self.marks[1])
        self.free = tuple(square for square in self.free if square != action)
        self.won = any(own & row == row for row in ROWS)
        self.player = 1 - self.player

    def is_terminal(self) -> bool:
        return self.won or not self.free

    def returns(self) -> list[float]:
        value = float(self.won) * (1 if self.player else -1)
        return [value, -value]

    def clone(self) -> TicTacToe:
        return TicTacToe(self.marks, self.player, self.free, self.won)

    def __str__(self) -> str:
        return str(self.marks)


class Player:
    """Searches each position once."""

    def __init__(self, simulations: int) -> None:
        self.simulations = simulations
        self.known: dict[str, int] = {}
        self.draw = random.Random(1)

    def __call__(self, state: TicTacToe) -> int:
        if str(state) not in self.known:
            self.known[str(state)] = uct_action(state, TicTacToe.clone, self.simulations, 9, self.draw)
        return self.known[str(state)]


def worst(state: TicTacToe, side: int, player: Player) -> float:
    """The player's worst result over every play of the other side."""
    if state.is_terminal():
        return state.returns()[side]
    is_own = state.current_player() == side
    results = []
    for action in [player(state)] if is_own else state.legal_actions():
        after = state.clone()
        after.apply_action(action)
        results.append(worst(after, side, player))
    return min(results)


# As the first player, and after a corner or the middle.
@pytest.mark.parametrize(("moves", "side"), [((), 0), ((0,), 1), ((4,), 1)])
def test_two_thousand_simulations_never_lose_at_tic_tac_toe(moves: tuple[int, ...], side: int) -> None:
    state = TicTacToe()
    for move in moves:
        state.apply_action(move)
    assert worst(state, side, Player(2000)) >= 0.0


def test_moves_keep_the_exact_value_of_positions_drawn_at_random() -> None:
    draw, known, player = random.Random(5), {}, Player(1000)
    for _ in range(30):
        state = TicTacToe()
        for _ in range(draw.randint(3, 6)):
            if not state.is_terminal():
                state.apply_action(draw.choice(state.legal_actions()))
        if state.is_terminal():
            continue
        before = str(state)
        chosen = copy.deepcopy(state)
        chosen.apply_action(player(state))
        assert str(state) == before
        assert exact_value(chosen, known) == exact_value(state, known), before


class Endless(TicTacToe):
    """Nobody wins, and it has no end; who answers 1 moves again."""

    def apply_action(self, action: int) -> None: ...
    def legal_actions(self) -> tuple[int, ...]:
        return (0, 1)

    def is_terminal(self) -> bool:
        return False


def test_a_playout_without_an_end_is_given_up() -> None:
    state = Endless()
    assert uct_action(state, lambda one: one, 20, 50, random.Random(0)) in (0, 1)
