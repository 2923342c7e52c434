"""Search with random playouts: tic-tac-toe against every reply, moves on exact positions, endless games."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from alphazero.games.core_types import Line
from alphazero.games.registry import make_line, read_game
from alphazero.games.uct import uct_move
from tests.settings.test_measured_games import ENDLESS


class Player:
    """Searches each position once."""

    def __init__(self, simulations: int) -> None:
        self.simulations = simulations
        self.known: dict[str, int] = {}
        self.draw = random.Random(1)

    def __call__(self, line: Line) -> int:
        if str(line) not in self.known:
            self.known[str(line)] = uct_move(line, self.simulations, self.draw)
        return self.known[str(line)]


def after(line: Line, move: int) -> Line:
    line = line.copy()
    line.push(move)
    return line


def value_of(line: Line, known: dict[str, int]) -> int:
    """The exact value for the side to move."""
    if str(line) not in known:
        outcome = line.outcome()
        values = (-value_of(after(line, move), known) for move in line.legal())
        known[str(line)] = outcome.value if outcome.over else max(values)
    return known[str(line)]


def worst(line: Line, by_first: bool, player: Player) -> int:
    """The player's worst result over every play of the other side."""
    outcome, is_own = line.outcome(), line.first_player_to_move == by_first
    if outcome.over:
        return outcome.value if is_own else -outcome.value
    moves = [player(line)] if is_own else line.legal()
    return min(worst(after(line, move), by_first, player) for move in moves)


# As the first player, and after a corner or the middle.
@pytest.mark.parametrize(("moves", "by_first"), [((), True), ((0,), False), ((4,), False)])
def test_two_thousand_simulations_never_lose_at_tic_tac_toe(moves: tuple[int, ...], by_first: bool) -> None:
    line = make_line("tictactoe")
    for move in moves:
        line.push(move)
    assert worst(line, by_first, Player(2000)) >= 0


def test_moves_keep_the_exact_value_of_positions_drawn_at_random() -> None:
    draw, known, player = random.Random(5), {}, Player(1000)
    for _ in range(30):
        line = make_line("tictactoe")
        for _ in range(draw.randint(3, 6)):
            if not line.outcome().over:
                line.push(draw.choice(line.legal()))
        if line.outcome().over:
            continue
        before = str(line)
        chosen = after(line, player(line))
        assert str(line) == before
        assert -value_of(chosen, known) == value_of(line, known), before


def test_a_playout_without_an_end_is_a_draw(tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS.replace("1000000", "50"), encoding="utf-8")
    assert uct_move(make_line(read_game("--game", f"{path}:Game")), 20, random.Random(0)) in (0, 1)
