"""A symmetry tried on random play: a game and its twin side by side, which is played in the images of its moves.

At every ply both must look like images of each other: what the player to move sees, whose turn it is, the legal
actions, the end and the returns. Images of actions that are not known are found on the way: that of action a is
the one action of the twin that leads to the image of where a leads. Nothing is taken from the names or the order
of actions, so an action that never came up has no known image.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from alphazero.games.outside.rules import Rules, State, as_floats

Images: TypeAlias = npt.NDArray[np.int32]
Key: TypeAlias = tuple[bool, tuple[float, ...], bytes]

# Every rank must find the same: work is bounded by counts, and never by time.
SEED = 1
MOST_STATES = 4000  # that are made to try one symmetry
MOST_NUMBERS = 1 << 22  # of their observations
LEAST_PLIES = 16  # that must have been compared
LEAST_SHARE = 0.5  # of the positions met in which the images of all legal actions are known
NUM_TRIED = 3  # actions with known images whose successors are compared at a ply; one of them is played


@dataclass(frozen=True, eq=False)
class Symmetry:
    """One beside the identity.

    name: of one of the board, "" where the game names it. numbers: where each number of an observation goes.
    actions: the image of each action, -1 where it is not known; a trial fills it in.
    """

    name: str
    numbers: Images
    actions: Images

    def after(self, first: Symmetry) -> Images:
        """The images of actions under the symmetry that is `first`, then this one."""
        actions: Images = np.where(first.actions < 0, -1, self.actions[first.actions]).astype(np.int32)
        return actions

    def inverse(self) -> Symmetry:
        """The way back."""
        actions = np.full_like(self.actions, -1)
        is_known = self.actions >= 0
        actions[self.actions[is_known]] = np.flatnonzero(is_known)
        return Symmetry(self.name, np.argsort(self.numbers).astype(np.int32), actions)


class _ContradictionError(Exception):
    """What shows that a game and its twin are no images of each other."""


@dataclass(frozen=True)
class _Seen:
    """A position. about: the player to move, or the returns. numbers: what is seen.

    At the end of a game a class need not know what is seen: none where it fails, and no proof of anything.
    """

    state: State
    is_over: bool
    about: tuple[float, ...]
    numbers: npt.NDArray[np.float32] | None

    def key(self, source: npt.NDArray[np.int64] | None = None) -> Key:
        """Equal where positions look the same. source: of each number of the image."""
        if self.numbers is None:
            return self.is_over, self.about, b""
        numbers = self.numbers if source is None else self.numbers[source]
        return self.is_over, self.about, (numbers + np.float32(0)).tobytes()  # -0 as 0


def _without_what_is_seen_at_the_end(keys: Mapping[int, Key]) -> dict[int, Key]:
    return {action: (*key[:2], b"") if key[0] else key for action, key in keys.items()}


@dataclass
class Trial:
    """A symmetry and the games on which it is tried."""

    rules: Rules
    symmetry: Symmetry
    _source: npt.NDArray[np.int64] = field(init=False)
    _image: list[int] = field(init=False)  # -1 where it is not known
    _taken: set[int] = field(init=False)  # as images
    _possible: dict[int, set[int]] = field(default_factory=dict)  # images of actions that have several
    _copy: Callable[[State], State] = field(init=False)
    _draw: random.Random = field(default_factory=lambda: random.Random(SEED))
    _left: int = field(init=False)  # states that may still be made
    _met: list[list[int]] = field(default_factory=list)  # legal actions of the positions
    _moves: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source = np.argsort(self.symmetry.numbers)
        self._image = self.symmetry.actions.tolist()
        self._taken = {image for image in self._image if image >= 0}
        self._copy = self.rules.clone or (lambda state: state.clone())
        self._left = min(MOST_STATES, MOST_NUMBERS // math.prod(self.rules.shape))

    def fault(self) -> str:
        """Why it is none, with the first position that shows it, else ""; fills in the symmetry's actions."""
        try:
            while self._left > 0:
                self._play()
        except _ContradictionError as found:
            return f"{found} (the moves so far: {','.join(map(str, self._moves)) or 'none'})"
        self.symmetry.actions[:] = self._image
        return ""

    @property
    def is_enough(self) -> bool:
        """Whether so much was seen that a symmetry without a fault counts as one, and is of use."""
        known = sum(all(self._image[action] >= 0 for action in legal) for legal in self._met)
        return len(self._met) >= LEAST_PLIES and known >= LEAST_SHARE * len(self._met)

    def _play(self) -> None:
        """One game, to its end or until no state is left."""
        self._left -= 1
        self._moves.clear()
        game = twin = self._seen(self._copy(self.rules.start), 1)
        if game.key(self._source) != twin.key():
            raise _ContradictionError("the start of the game is not its own image")
        while not game.is_over:
            legal, images = sorted(game.state.legal_actions()), sorted(twin.state.legal_actions())
            unknown, rest = self._without_images(legal, images)
            self._left -= 2 * (len(unknown) + NUM_TRIED)
            if self._left < 0:
                return
            if unknown:
                self._find_images(game, twin, unknown, rest)
            self._met.append(legal)
            game, twin = self._go_on(game, twin, legal)

    def _without_images(self, legal: list[int], images: list[int]) -> tuple[list[int], list[int]]:
        """The legal actions of the game whose images are not known, and those of the twin that are none."""
        unknown = [action for action in legal if self._image[action] < 0]
        rest = set(images)
        for action in legal:
            image = self._image[action]
            if image >= 0 and image not in rest:
                raise _ContradictionError(
                    f"action {action} is legal, and its image {image} is not in the turned game"
                )
            rest.discard(image)
        if len(rest) != len(unknown) or rest & self._taken:
            raise _ContradictionError(
                f"{len(images)} actions are legal in the turned game; expected the images of {len(legal)}"
            )
        return unknown, sorted(rest)

    def _find_images(self, game: _Seen, twin: _Seen, unknown: Sequence[int], rest: Sequence[int]) -> None:
        """Match actions by where they lead; what several images fit waits for later positions."""
        keys = {action: self._after(game, action).key(self._source) for action in unknown}
        twin_keys = {action: self._after(twin, action).key() for action in rest}
        if Counter(keys.values()) != Counter(twin_keys.values()):
            keys, twin_keys = map(_without_what_is_seen_at_the_end, (keys, twin_keys))
        if Counter(keys.values()) != Counter(twin_keys.values()):
            raise _ContradictionError("the actions lead elsewhere in the turned game")
        fits: dict[Key, set[int]] = {}
        for action, key in twin_keys.items():
            fits.setdefault(key, set()).add(action)
        for action, key in keys.items():
            self._possible[action] = self._possible.get(action, fits[key]) & fits[key]
        self._settle()

    def _settle(self) -> None:
        """An action that has one possible image has it, and no other action has."""
        while True:
            if not all(self._possible.values()):
                raise _ContradictionError("an action has no image that fits all positions")
            single = {action: min(fits) for action, fits in self._possible.items() if len(fits) == 1}
            if not single:
                return
            images = set(single.values())
            if len(images) < len(single):
                raise _ContradictionError("two actions have one image")
            for action, image in single.items():
                self._image[action] = image
                del self._possible[action]
            self._taken |= images
            for action in self._possible:
                self._possible[action] = self._possible[action] - images

    def _go_on(self, game: _Seen, twin: _Seen, legal: Sequence[int]) -> tuple[_Seen, _Seen]:
        """Compare some successors; one of them and its image."""
        known = [(action, self._image[action]) for action in legal if self._image[action] >= 0]
        if not known:  # any image that fits: the twin looks the same
            action = self._draw.choice(legal)
            known = [(action, min(self._possible[action]))]
        for action, image in self._draw.sample(known, min(NUM_TRIED, len(known))):
            next_game, next_twin = self._after(game, action), self._after(twin, image)
            is_alike = (next_game.is_over, next_game.about) == (next_twin.is_over, next_twin.about)
            if is_alike and not next_game.is_over:
                is_alike = next_game.key(self._source) == next_twin.key()
            if not is_alike:
                raise _ContradictionError(
                    f"action {action} and its image {image} do not lead to images of each other"
                )
        self._moves.append(action)
        return next_game, next_twin

    def _after(self, seen: _Seen, action: int) -> _Seen:
        state = self._copy(seen.state)
        state.apply_action(action)
        return self._seen(state, int(seen.about[0]))

    def _seen(self, state: State, mover: int) -> _Seen:
        """mover: who moved last."""
        if state.is_terminal():
            returns = tuple(float(value) for value in state.returns())
            try:
                numbers = as_floats(state.observation_tensor(1 - mover))
            except Exception:
                return _Seen(state, True, returns, None)
            return _Seen(state, True, returns, numbers if numbers.size == len(self._source) else None)
        player = state.current_player()
        numbers = as_floats(state.observation_tensor(player))
        if numbers.size != len(self._source):
            raise ValueError(f"observation_tensor: {numbers.size} numbers; expected {len(self._source)}")
        return _Seen(state, False, (player,), numbers)
