"""Symmetries of games whose rules lie outside the core: those that a game names, else those of its board that
random play does not contradict (twins.py)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import RulesError
from alphazero.base.text import counted
from alphazero.games.outside.rules import Rules, watched
from alphazero.games.outside.trials.twins import Images, Symmetry, Trial, order_of_planes
from alphazero.games.outside.use import explainer_of, rules_of, use_rules

MOST_NAMED = 255  # as in foreign.hpp


def found(rules: Rules) -> tuple[Symmetry, ...]:
    """The symmetries of a game beside the identity; every process finds the same.

    Raises RulesError where the rules fail, and for a symmetry that the game names and that is none.
    """
    try:
        with watched():
            named = _named(rules)
            return _of_board(rules) if named is None else named
    except RulesError:
        raise
    except Exception as error:
        raise RulesError(explainer_of(rules.name)(error)) from error


def described(symmetries: Sequence[Symmetry]) -> str:
    """For people: '1 beside the identity (turned by 180 degrees), found by random play'."""
    if not symmetries:
        return "none beside the identity"
    if not symmetries[0].name:
        return f"{len(symmetries)} beside the identity, named by the game"
    names = ", ".join(symmetry.name for symmetry in symmetries)
    what = names if len(symmetries) < 7 else "all turns and reflections of the board"
    return f"{len(symmetries)} beside the identity ({what}), found by random play"


@cache
def symmetries_of(name: str) -> tuple[Symmetry, ...]:
    """Those of the game of a recorded name, looked for once in a process. Raises RulesError."""
    return found(rules_of(name))


def use_symmetries(name: str) -> int:
    """Have the core turn positions of this game; how many symmetries it has, with the identity."""
    import alphazero._core as _core

    use_rules(name)
    symmetries = symmetries_of(name)
    count = 1 + len(symmetries)
    if count != _core.ForeignLine.NUM_SYMMETRIES:  # else they are in use, perhaps by other threads
        _core.use_symmetries([(one.numbers, one.actions) for one in symmetries])
    return count


def _named(rules: Rules) -> tuple[Symmetry, ...] | None:
    """Those that the game names, tried on random play; None where it names none."""
    pairs = getattr(rules.start, "symmetries", None)
    pairs = pairs() if callable(pairs) else pairs
    if pairs is None:
        return None
    symmetries = []
    for index, pair in enumerate(pairs):
        place = f"{rules.place}: symmetries[{index}]"
        if len(pair) != 2:
            raise RulesError(f"{place}: expected a pair, squares and actions")
        numbers, actions = _numbers_of(rules, place, pair[0]), _permutation(pair[1], rules.num_actions)
        if actions is None:
            raise RulesError(f"{place}: expected a permutation of the {counted(rules.num_actions, 'action')}")
        if _is_identity(numbers) and _is_identity(actions):
            continue
        symmetry = Symmetry("", numbers, actions)
        if fault := Trial(rules, symmetry).fault():
            raise RulesError(f"{place}: {fault}")
        symmetries.append(symmetry)
    if len(symmetries) > MOST_NAMED:
        raise RulesError(f"{rules.place}: {len(symmetries)} symmetries; expected {MOST_NAMED} at most")
    return tuple(symmetries)


def _permutation(images: object, size: int) -> Images | None:
    """What a game names as a permutation of so many; None for anything else."""
    array: npt.NDArray[np.generic] = np.asarray(images)
    if array.dtype.kind not in "iu" or not np.array_equal(np.sort(array, axis=None), np.arange(size)):
        return None
    return array.reshape(-1).astype(np.int32)


def _is_identity(images: Images) -> bool:
    return np.array_equal(images, np.arange(len(images)))


def _numbers_of(rules: Rules, place: str, images: object) -> Images:
    """Where each number of an observation goes, from a permutation of them or of the squares."""
    planes, height, width = rules.shape
    squares = height * width
    moved = _permutation(images, squares)
    if moved is not None and squares > 1:
        return _in_each_plane(rules, moved)
    numbers = _permutation(images, planes * squares)
    if numbers is None:
        either = f"{squares} squares or of all {planes * squares}" if squares > 1 else f"{planes}"
        raise RulesError(f"{place}: expected a permutation of the {either} numbers of an observation")
    return numbers


def _in_each_plane(rules: Rules, squares: Images) -> Images:
    starts = np.arange(rules.shape[0], dtype=np.int32)[:, None] * np.int32(len(squares))
    numbers: Images = (starts + squares).reshape(-1)
    return numbers


def _candidates(rules: Rules) -> dict[str, Images]:
    """The turns and reflections of the board, as where each number of an observation goes."""
    _, height, width = rules.shape
    grid = np.arange(height * width, dtype=np.int32).reshape(height, width)
    sources = {
        "turned by 180 degrees": grid[::-1, ::-1],
        "left and right swapped": grid[:, ::-1],
        "top and bottom swapped": grid[::-1],
    }
    if height == width:
        sources = {"turned by 90 degrees": np.rot90(grid), **sources}
        sources["turned by 270 degrees"] = np.rot90(grid, 3)
        sources["mirrored at a diagonal"] = grid.T
        sources["mirrored at the other diagonal"] = grid[::-1, ::-1].T
    by_squares = {grid.tobytes(): ("", grid)}  # a board of one row has fewer
    for name, source in sources.items():
        squares = np.argsort(source, axis=None).astype(np.int32)
        by_squares.setdefault(squares.tobytes(), (name, squares))
    return {name: _in_each_plane(rules, squares) for name, squares in by_squares.values() if name}


def _of_board(rules: Rules) -> tuple[Symmetry, ...]:
    """The candidates that random play does not contradict."""
    symmetries: list[Symmetry] = []
    for name, numbers in _candidates(rules).items():
        # What is two others, one after the other, needs no play.
        symmetry = _composed(rules, name, numbers, symmetries) or _tried(rules, name, numbers)
        if symmetry is not None:
            symmetries.append(symmetry)
    while sum(_fill(one, symmetries) for one in symmetries):
        pass
    return tuple(symmetries)


def _composed(rules: Rules, name: str, numbers: Images, known: Sequence[Symmetry]) -> Symmetry | None:
    squares = math.prod(rules.shape[1:])
    for second, first in itertools.product(known, known):
        of_both = second.numbers[first.numbers]
        if np.array_equal(of_both % squares, numbers % squares):
            return Symmetry(name, of_both, second.after(first))
    return None


def _tried(rules: Rules, name: str, numbers: Images) -> Symmetry | None:
    """With the planes in their places, else in others: a plane may be of one side of the board."""
    unknown = np.full(rules.num_actions, -1, np.int32)
    symmetry = Symmetry(name, numbers, unknown.copy())
    trial = Trial(rules, symmetry)
    if not trial.fault():
        return symmetry if trial.is_enough else None
    order = order_of_planes(rules, Symmetry(name, numbers, unknown.copy()))
    if order is None:
        return None
    planes = np.array(order, np.int32)[:, None]
    squares = math.prod(rules.shape[1:])
    numbers = (planes * squares + numbers[:squares]).astype(np.int32).reshape(-1)
    symmetry = Symmetry(name, numbers, unknown)
    trial = Trial(rules, symmetry)
    return None if trial.fault() or not trial.is_enough else symmetry


def _fill(symmetry: Symmetry, known: Sequence[Symmetry]) -> bool:
    """Fill in images that follow from those of known symmetries, and of their ways back; whether any did."""
    same = np.arange(len(symmetry.numbers), dtype=np.int32), np.arange(len(symmetry.actions), dtype=np.int32)
    ways = [Symmetry("", *same), *known, *(one.inverse() for one in known)]
    before = symmetry.actions.copy()
    for second, first in itertools.product(ways, ways):
        if np.array_equal(second.numbers[first.numbers], symmetry.numbers):
            follow = second.after(first)
            is_new = (symmetry.actions < 0) & (follow >= 0)
            if not np.isin(follow[is_new], symmetry.actions).any():
                symmetry.actions[is_new] = follow[is_new]
    return not np.array_equal(before, symmetry.actions)
