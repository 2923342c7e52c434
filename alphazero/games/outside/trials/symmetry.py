"""Symmetries of games whose rules lie outside the core: those that a game names, else those of its board.

Both are tried on random play: a game and its image are played side by side, and at every ply each must be the
image of the other in what the player to move sees, whose turn it is, the legal actions, the end and the
returns.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import RulesError
from alphazero.base.text import counted
from alphazero.games.outside.rules import Rules, State, answered, as_floats, watched
from alphazero.games.outside.use import rules_of, use_rules

Images: TypeAlias = npt.NDArray[np.int32]

MOST_NAMED = 255  # as in foreign.hpp
# Every rank must find the same: work is bounded by counts, and never by time.
SEED = 1
MOST_PLIES = 1_000  # on which one symmetry is tried
MOST_NUMBERS = 1 << 22  # of the observations of these plies
LEAST_PLIES = 16  # that must have been compared


@dataclass(frozen=True, eq=False)
class Symmetry:
    """One beside the identity.

    name: of one of the board, "" where the game names it. numbers: where each number of an observation goes.
    actions: the image of each action.
    """

    name: str
    numbers: Images
    actions: Images


class _ContradictionError(Exception):
    """What shows that a game and its image are none of each other."""


@cache
def symmetries_of(name: str) -> tuple[Symmetry, ...]:
    """Those of a game by its recorded name, beside the identity; every process finds the same.

    Raises RulesError where the rules fail, and for a symmetry that the game names and that is none.
    """
    rules = rules_of(name)
    with rules.explain.faults(), watched():
        named = _named(rules)
        return _of_board(rules) if named is None else named


def described(symmetries: Sequence[Symmetry]) -> str:
    """For people: '1 beside the identity (turned by 180 degrees), found by random play'."""
    if not symmetries:
        return "none beside the identity"
    if not symmetries[0].name:
        return f"{len(symmetries)} beside the identity, named by the game"
    names = ", ".join(symmetry.name for symmetry in symmetries)
    what = names if len(symmetries) < 7 else "all turns and reflections of the board"
    return f"{len(symmetries)} beside the identity ({what}), found by random play"


def use_symmetries(name: str) -> int:
    """Have the core turn positions of this game; how many symmetries it has, with the identity."""
    import alphazero._core as _core

    use_rules(name)
    symmetries = symmetries_of(name)
    count = 1 + len(symmetries)
    if count != _core.ForeignLine.NUM_SYMMETRIES:  # else they are in use, perhaps by other threads
        _core.use_symmetries([(symmetry.numbers, symmetry.actions) for symmetry in symmetries])
    return count


def _named(rules: Rules) -> tuple[Symmetry, ...] | None:
    """Those that the game names; None where it names none."""
    pairs = getattr(rules.start, "symmetries", None)
    pairs = pairs() if callable(pairs) else pairs
    if pairs is None:
        return None
    place = rules.explain.place
    squares, all_numbers = math.prod(rules.shape[1:]), math.prod(rules.shape)
    symmetries = []
    for index, pair in enumerate(pairs):
        name = f"{place}: symmetries[{index}]"
        if len(pair) != 2:
            raise RulesError(f"{name}: expected a pair, squares and actions")
        moved, actions = _permutation(pair[0], squares), _permutation(pair[1], rules.num_actions)
        if actions is None:
            raise RulesError(f"{name}: expected a permutation of the {counted(rules.num_actions, 'action')}")
        if moved is not None and squares > 1:
            numbers: Images | None = _in_each_plane(rules, moved)
        else:
            numbers = _permutation(pair[0], all_numbers)
        if numbers is None:
            either = f"{squares} squares or of all {all_numbers}" if squares > 1 else f"{all_numbers}"
            raise RulesError(f"{name}: expected a permutation of the {either} numbers of an observation")
        if not (np.array_equal(numbers, np.sort(numbers)) and np.array_equal(actions, np.sort(actions))):
            symmetry = Symmetry("", numbers, actions)
            if fault := _Trial(rules, symmetry).fault():
                raise RulesError(f"{name}: {fault}")
            symmetries.append(symmetry)
    if len(symmetries) > MOST_NAMED:
        raise RulesError(f"{place}: {len(symmetries)} symmetries; expected {MOST_NAMED} at most")
    return tuple(symmetries)


def _permutation(images: object, size: int) -> Images | None:
    """What a game names as a permutation of so many; None for anything else."""
    array: npt.NDArray[np.generic] = np.asarray(images)
    if array.dtype.kind not in "iu" or not np.array_equal(np.sort(array, axis=None), np.arange(size)):
        return None
    return array.reshape(-1).astype(np.int32)


def _in_each_plane(rules: Rules, squares: Images, planes: Sequence[int] | None = None) -> Images:
    """Numbers that move with their squares, each plane to its place in `planes` or where it is."""
    places = np.array(planes or range(rules.shape[0]), np.int32)[:, None]
    numbers: Images = (places * np.int32(len(squares)) + squares).reshape(-1)
    return numbers


def _of_board(rules: Rules) -> tuple[Symmetry, ...]:
    """The turns and reflections of the board that random play does not contradict.

    A move must be of a square, with one more as a pass, or of a column.
    """
    _, height, width = rules.shape
    grid = np.arange(height * width, dtype=np.int32).reshape(height, width)
    sources = {
        "turned by 90 degrees": np.rot90(grid),
        "turned by 180 degrees": grid[::-1, ::-1],
        "left and right swapped": grid[:, ::-1],
        "top and bottom swapped": grid[::-1],
        "turned by 270 degrees": np.rot90(grid, 3),
        "mirrored at a diagonal": grid.T,
        "mirrored at the other diagonal": grid[::-1, ::-1].T,
    }
    seen = {grid.tobytes()}  # a board of one row has fewer
    symmetries = []
    for name, source in sources.items():
        squares = np.argsort(source, axis=None).astype(np.int32)
        actions = _actions_of(rules, squares)
        if source.shape != grid.shape or actions is None or squares.tobytes() in seen:
            continue
        seen.add(squares.tobytes())
        trial = _Trial(rules, Symmetry(name, _in_each_plane(rules, squares), actions), may_move_planes=True)
        if not trial.fault() and trial.plies >= LEAST_PLIES and (planes := trial.order_of_planes()):
            symmetries.append(Symmetry(name, _in_each_plane(rules, squares, planes), actions))
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


class _Trial:
    """Games on which a symmetry is tried.

    may_move_planes: planes may be of one side of the board, so that a plane of the image is another one; the
    trial leaves the places that fit all positions.
    """

    def __init__(self, rules: Rules, symmetry: Symmetry, *, may_move_planes: bool = False) -> None:
        self._rules = rules
        self._source = np.argsort(symmetry.numbers)
        self._image = symmetry.actions.tolist()
        count = rules.shape[0]
        self._fits = np.ones((count, count), bool) if may_move_planes else np.eye(count, dtype=bool)
        self._draw = random.Random(SEED)
        self._moves: list[int] = []
        self.plies = 0

    def fault(self) -> str:
        """Why it is none, with the first position that shows it, else ""."""
        most = min(MOST_PLIES, MOST_NUMBERS // math.prod(self._rules.shape))
        try:
            while self.plies < most:
                self._play(most)
        except _ContradictionError as error:
            return f"{error} (the moves so far: {','.join(map(str, self._moves)) or 'none'})"
        return ""

    def order_of_planes(self) -> list[int] | None:
        """Where each plane goes; of those that always looked the same each stays. None: nothing fits."""
        order = [plane if fits[plane] else int(fits.argmax()) for plane, fits in enumerate(self._fits)]
        return order if len(set(order)) == len(order) else None

    def _play(self, most: int) -> None:
        """One game, to its end or until enough is seen."""
        self._moves.clear()
        game, image = (self._rules.copy(self._rules.start) for _ in range(2))
        self.plies += 1
        while not self._compare(game, image) and self.plies < most:
            legal = sorted(game.legal_actions())
            action = self._draw.choice(legal)
            if sorted(self._image[each] for each in legal) != sorted(image.legal_actions()):
                raise _ContradictionError(f"the legal actions {legal} are not those of the turned game")
            answered()
            game.apply_action(action)
            image.apply_action(self._image[action])
            self._moves.append(action)
            self.plies += 1

    def _compare(self, game: State, image: State) -> bool:
        """Whether both are over. What is seen at the end of a game proves nothing."""
        ended = [bool(state.is_terminal()) for state in (game, image)]
        about = [
            [float(value) for value in state.returns()] if is_over else [state.current_player()]
            for state, is_over in zip((game, image), ended, strict=True)
        ]
        if ended[0] != ended[1] or about[0] != about[1]:
            raise _ContradictionError(f"{about[0]} in the game and {about[1]} in the turned game")
        if not ended[0]:
            player = game.current_player()
            turned, seen = self._seen(game, player)[self._source], self._seen(image, player)
            planes = seen.reshape(len(self._fits), -1)
            for fits, row in zip(self._fits, turned.reshape(planes.shape), strict=True):
                fits[fits] = (planes[fits] == row).all(axis=1)
            if not self._fits.any(axis=1).all():
                raise _ContradictionError("the turned game looks different")
        return ended[0]

    def _seen(self, state: State, player: int) -> npt.NDArray[np.float32]:
        numbers = as_floats(state.observation_tensor(player))
        if numbers.size != len(self._source):
            raise ValueError(f"observation_tensor: {numbers.size} numbers; expected {len(self._source)}")
        return numbers
