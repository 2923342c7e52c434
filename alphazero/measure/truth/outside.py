"""Positions of a game of OpenSpiel or of a Python file with the exact value of every move.

They come from random games. A run keeps those of its validations in a file.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from alphazero.base.errors import AlphaZeroError, ConfigError
from alphazero.base.files import read_text, write_json
from alphazero.base.records import from_table
from alphazero.games.outside.rules import Rules, State, actions_of, returns_of
from alphazero.games.outside.solvers import Solve, position_key, solver_of
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import make_line
from alphazero.measure.truth.positions import ExactPosition
from alphazero.run.directory import RunDirectory

NUM_POSITIONS = 200  # of a validation
SEED = 1  # of the random games
FRUITLESS_GAMES = 500  # in a row: after them no further position is expected
FILE = "solved_positions.json"

# Called with the number of positions known, and of those searched for the next one.
Tick: TypeAlias = Callable[[int, int], None]


def _no_tick(known: int, searched: int) -> None:
    pass


@dataclass(frozen=True)
class KnownPosition:
    """A position that is not over, by the moves to it, with player 0's value after each legal move."""

    moves: tuple[int, ...]
    values: tuple[int, ...]

    def exact(self, game: str) -> ExactPosition:
        """Raises GameInputError and ValueError for a position that is none of this game's."""
        line = make_line(game, ",".join(map(str, self.moves)) or "start")
        side = 1 if line.first_player_to_move else -1
        scores = {move: side * value for move, value in zip(line.legal(), self.values, strict=True)}
        return ExactPosition(line, max(scores.values()), scores)


@dataclass(frozen=True)
class OutsideTruth:
    """What is known of a game, as a run keeps it. game, solver: recorded names."""

    game: str
    solver: str
    positions: tuple[KnownPosition, ...]

    def exact(self) -> list[ExactPosition]:
        """All of them."""
        return [position.exact(self.game) for position in self.positions]


def truth_of_run(run: RunDirectory, game: str, solver: str, tick: Tick) -> OutsideTruth:
    """Positions in which moves err, from the run's file, or solved now and kept there.

    Raises as positions_to_err_in.
    """
    path = run.path / FILE
    if (known := _read(run, game, solver)) is not None:
        return known
    truth = OutsideTruth(game, solver, tuple(positions_to_err_in(game, solver, NUM_POSITIONS, tick)))
    if not truth.positions:
        raise ConfigError(f"--solver {solver}: in random games of {game} no move errs; expected some")
    write_json(path, dataclasses.asdict(truth))
    return truth


def _read(run: RunDirectory, game: str, solver: str) -> OutsideTruth | None:
    """None where there is no such file, or one of other rules or another solver."""
    try:
        truth = from_table(OutsideTruth, json.loads(read_text(run.path / FILE)))
        if any({*position.exact(game).move_scores.values()} - {-1, 0, 1} for position in truth.positions):
            return None
    except (OSError, ValueError, RecursionError, AlphaZeroError):
        return None
    return truth if (truth.game, truth.solver) == (game, solver) and truth.positions else None


def positions_to_err_in(
    game: str, solver: str, count: int, tick: Tick = _no_tick, *, only_errors: bool = True, seed: int = SEED
) -> list[KnownPosition]:
    """Up to `count` different positions of random games, solved: those in which moves err, or any.

    Raises ConfigError for a game that is too large for the solver, RulesError where rules or solver fail.
    """
    rules = rules_of(game)
    positions: list[KnownPosition] = []
    with rules.explain.faults():
        solve = solver_of(solver, rules, lambda searched: tick(len(positions), searched))
        for moves, state in random_positions(rules, seed):
            known = KnownPosition(moves, values_of_moves(rules, solve, state))
            if len(set(known.values)) > 1 or not only_errors:
                positions.append(known)
            tick(len(positions), 0)
            if len(positions) == count:
                break
    return positions


def random_positions(rules: Rules, seed: int) -> Iterator[tuple[tuple[int, ...], State]]:
    """One of each random game that no game before had, until FRUITLESS_GAMES in a row have none."""
    draw, copy = random.Random(seed), rules.copy
    seen: set[bytes] = set()
    fruitless = 0
    while fruitless < FRUITLESS_GAMES:
        moves: list[int] = []
        state = copy(rules.start)
        while not state.is_terminal():
            moves.append(draw.choice(actions_of(state)))
            state.apply_action(moves[-1])
        chosen = tuple(moves[: draw.randrange(len(moves))])
        state = copy(rules.start)
        for action in chosen:
            state.apply_action(action)
        key = position_key(state)
        fruitless = fruitless + 1 if key in seen else 0
        if key not in seen:
            seen.add(key)
            yield chosen, state


def values_of_moves(rules: Rules, solve: Solve, state: State) -> tuple[int, ...]:
    """Of the legal moves in ascending order, for player 0."""
    values = []
    for action in actions_of(state):
        after = rules.copy(state)
        after.apply_action(action)
        values.append(int(returns_of(after)[0]) if after.is_terminal() else solve(after))
    return tuple(values)
