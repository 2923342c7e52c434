"""Symmetries of games whose rules lie outside the core: those that a game names, else those of its board.

Both are tried on random play: a game and its image are played side by side, and at every ply each must be the
image of the other in what the player to move sees, whose turn it is, the legal actions, the end and the
returns.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import RulesError
from alphazero.games.outside.rules import (
    Rules,
    State,
    actions_of,
    answered,
    as_floats,
    returns_of,
    text_of_moves,
    watched,
)
from alphazero.games.outside.use import rules_of, use_rules

Images: TypeAlias = npt.NDArray[np.int32]

MOST_NAMED = 255  # as in foreign.hpp
# Every rank must find the same: work is bounded by counts, and never by time.
SEED = 1
MOST_PLIES = 1_000  # on which one symmetry is tried
MOST_NUMBERS = 1 << 22  # of the observations of these plies
LEAST_PLIES = 16  # that must have been compared


class Symmetry(NamedTuple):
    """One beside the identity. numbers: where each of an observation goes. actions: the image of each."""

    numbers: Images
    actions: Images


@cache
def symmetries_of(name: str) -> tuple[Symmetry, ...]:
    """Those of a game by its recorded name, beside the identity; every process finds the same.

    Raises RulesError where the rules fail, and for a symmetry that the game names and that is none.
    """
    rules = rules_of(name)
    with rules.explain.faults(), watched():
        named = getattr(rules.start, "symmetries", None)
        named = named() if callable(named) else named
        return _of_board(rules) if named is None else _named(rules, named)


def use_symmetries(name: str) -> int:
    """Have the core turn positions of this game; how many symmetries it has, with the identity."""
    import alphazero._core as _core

    use_rules(name)
    symmetries = symmetries_of(name)
    count = 1 + len(symmetries)
    if count != _core.ForeignLine.NUM_SYMMETRIES:  # else they are in use, perhaps by other threads
        _core.use_symmetries(list(symmetries))
    return count


def _named(rules: Rules, pairs: Iterable[Sequence[object]]) -> tuple[Symmetry, ...]:
    """Those that the game names but for the identity."""
    game = rules.explain.name
    squares, size = math.prod(rules.shape[1:]), math.prod(rules.shape)
    symmetries = []
    for index, pair in enumerate(pairs):
        name = f"symmetries[{index}]"
        moved, *others = (np.asarray(images).reshape(-1) for images in pair)
        actions = others[0] if len(others) == 1 else moved[:0]
        numbers = _in_each_plane(rules, moved, range(rules.shape[0])) if moved.size == squares else moved
        if not (_is_permutation(numbers, size) and _is_permutation(actions, rules.num_actions)):
            raise RulesError(
                f"{game}: {name}: expected a pair, a permutation of the {squares} squares or of all {size} "
                f"numbers of an observation, and one of the {rules.num_actions} actions"
            )
        if not (np.array_equal(numbers, np.sort(numbers)) and np.array_equal(actions, np.sort(actions))):
            symmetry = Symmetry(numbers.astype(np.int32), actions.astype(np.int32))
            fault, _ = _tried(rules, symmetry, np.eye(rules.shape[0], dtype=bool))
            if fault:
                raise RulesError(f"{game}: {name}: {fault}")
            symmetries.append(symmetry)
    if len(symmetries) > MOST_NAMED:
        raise RulesError(f"{game}: {len(symmetries)} symmetries; expected {MOST_NAMED} at most")
    return tuple(symmetries)


def _is_permutation(images: npt.NDArray[Any], size: int) -> bool:
    return images.dtype.kind in "iu" and np.array_equal(np.sort(images), np.arange(size))


def _in_each_plane(rules: Rules, squares: npt.NDArray[Any], planes: Sequence[int]) -> npt.NDArray[Any]:
    """Numbers that move with their squares, each plane to its place in `planes`."""
    numbers: npt.NDArray[Any] = (np.array(planes)[:, None] * len(squares) + squares).reshape(-1)
    return numbers


def _of_board(rules: Rules) -> tuple[Symmetry, ...]:
    """The turns and reflections of the board that random play does not contradict.

    A move must be of a square, with one more as a pass, or of a column.
    """
    _, height, width = rules.shape
    grid = np.arange(height * width, dtype=np.int32).reshape(height, width)
    turned = grid[::-1, ::-1]
    sources = (np.rot90(grid), turned, grid[:, ::-1], grid[::-1], np.rot90(grid, 3), grid.T, turned.T)
    seen = {grid.tobytes()}  # a board of one row has fewer
    symmetries = []
    for source in sources:
        squares = np.argsort(source, axis=None).astype(np.int32)
        actions = _actions_of(rules, squares)
        if source.shape != grid.shape or actions is None or squares.tobytes() in seen:
            continue
        seen.add(squares.tobytes())
        symmetry = Symmetry(_in_each_plane(rules, squares, range(rules.shape[0])), actions)
        # Planes may be of one side of the board: then a plane of the image is another one.
        fits = np.ones((rules.shape[0],) * 2, bool)
        fault, plies = _tried(rules, symmetry, fits)
        # Of planes that always looked the same each stays.
        planes = [plane if row[plane] else int(row.argmax()) for plane, row in enumerate(fits)]
        if not fault and plies >= LEAST_PLIES and len(set(planes)) == len(planes):
            numbers = _in_each_plane(rules, squares, planes).astype(np.int32)
            symmetries.append(Symmetry(numbers, actions))
    return tuple(symmetries)


def _actions_of(rules: Rules, squares: Images) -> Images | None:
    """The images of the actions where squares move so; None where actions are something else."""
    width = rules.shape[2]
    if len(squares) == 1:
        return None
    if rules.num_actions == width:  # columns
        images = squares[:width] % width
        return images if len(np.unique(images)) == width else None
    if rules.num_actions not in (len(squares), len(squares) + 1):
        return None
    passes = np.arange(len(squares), rules.num_actions, dtype=np.int32)
    return np.concatenate([squares, passes])


def _tried(rules: Rules, symmetry: Symmetry, fits: npt.NDArray[np.bool_]) -> tuple[str, int]:
    """Why a symmetry is none, with the first position that shows it, or ""; and the plies it was tried on.

    fits: [from, to] of planes; those of the image that look otherwise are cleared.
    """
    source, image, draw = np.argsort(symmetry.numbers), symmetry.actions.tolist(), random.Random(SEED)
    most = min(MOST_PLIES, MOST_NUMBERS // math.prod(rules.shape))
    plies = 0
    while plies < most:
        moves: list[int] = []
        game, turned = (rules.copy(rules.start) for _ in range(2))
        while True:
            plies += 1
            if differ := _difference(game, turned, image, source, fits):
                return (
                    f"the turned game differs in {differ} (the moves so far: {text_of_moves(moves)})",
                    plies,
                )
            if game.is_terminal() or plies >= most:
                break
            answered()
            moves.append(draw.choice(actions_of(game)))
            game.apply_action(moves[-1])
            turned.apply_action(image[moves[-1]])
    return "", plies


def _difference(
    game: State, turned: State, image: Sequence[int], source: npt.NDArray[Any], fits: npt.NDArray[np.bool_]
) -> str:
    """The method that shows it, else "". What is seen at the end of a game proves nothing."""
    if (is_over := game.is_terminal()) != turned.is_terminal():
        return "is_terminal()"
    if is_over:
        return "returns()" if returns_of(game) != returns_of(turned) else ""
    if (player := game.current_player()) != turned.current_player():
        return "current_player()"
    if sorted(image[action] for action in actions_of(game)) != actions_of(turned):
        return "legal_actions()"
    planes = as_floats(turned.observation_tensor(player)).reshape(len(fits), -1)
    expected = as_floats(game.observation_tensor(player))[source].reshape(planes.shape)
    for row, plane in zip(fits, expected, strict=True):
        row[row] = (planes[row] == plane).all(axis=1)
    return "" if fits.any(axis=1).all() else "observation_tensor()"
