"""A symmetry tried on random play: a game and its twin side by side, played in the images of its moves.

At every ply both must look like images of each other: what the player to move sees, whose turn it is, the
legal actions, the end and the returns. Images of actions are found on the way: that of action a is the one
action of the twin that leads to the image of where a leads. Nothing is taken from the names or the order of
actions, so one that never came up has no known image.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from alphazero.games.outside.rules import Rules, State, answered, as_floats

Images: TypeAlias = npt.NDArray[np.int32]
Key: TypeAlias = tuple[bool, tuple[float, ...], bytes]

# Every rank must find the same: work is bounded by counts, and never by time.
SEED = 1
MOST_STATES = 20_000  # that are made to try one symmetry
MOST_NUMBERS = 1 << 23  # of their observations
MOST_PLANES = 64  # that are tried in another order
LEAST_PLIES = 16  # that must have been compared
PATIENCE_PLIES = 300  # without a new image, after which the game under way is the last
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
    """A position. about: the player to move, or the returns. numbers: what is seen, a row for each plane.

    At the end of a game a class need not know what is seen: none where it fails, and no proof of anything.
    """

    state: State
    is_over: bool
    about: tuple[float, ...]
    numbers: npt.NDArray[np.float32] | None


def _without_what_is_seen_at_the_end(keys: Mapping[int, Key]) -> dict[int, Key]:
    return {action: (*key[:2], b"") if key[0] else key for action, key in keys.items()}


@dataclass
class Trial:
    """A symmetry and the games on which it is tried.

    planes: None, or where each plane of an observation may go: then two observations are alike where they
    have the same planes in whatever order, and the trial leaves the places that fit all positions.
    """

    rules: Rules
    symmetry: Symmetry
    planes: list[set[int]] | None = None
    _source: npt.NDArray[np.int64] = field(init=False)
    _image: list[int] = field(init=False)  # -1 where it is not known
    _taken: set[int] = field(init=False)  # as images
    _possible: dict[int, set[int]] = field(default_factory=dict)  # images of actions that have several
    _draw: random.Random = field(default_factory=lambda: random.Random(SEED))
    _left: int = field(init=False)  # states that may still be made
    _since: int = 0  # plies since an image was found
    _played: Counter[int] = field(default_factory=Counter)
    _met: list[list[int]] = field(default_factory=list)  # legal actions of the positions
    _moves: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source = np.argsort(self.symmetry.numbers)
        self._image = self.symmetry.actions.tolist()
        self._taken = {image for image in self._image if image >= 0}
        self._left = min(MOST_STATES, MOST_NUMBERS // math.prod(self.rules.shape))

    def fault(self) -> str:
        """Why it is none, with the first position that shows it, else ""; fills in the symmetry's actions."""
        try:
            while self._left > 0 and self._since < PATIENCE_PLIES:
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
        game = twin = self._seen(self.rules.copy(self.rules.start), 1)
        if self._key_of_image(game) != self._key(twin):
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
            self._since += 1
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
        keys = {action: self._key_of_image(self._after(game, action)) for action in unknown}
        twin_keys = {action: self._key(self._after(twin, action)) for action in rest}
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
            self._since = 0
            for action in self._possible:
                self._possible[action] = self._possible[action] - images

    def _go_on(self, game: _Seen, twin: _Seen, legal: Sequence[int]) -> tuple[_Seen, _Seen]:
        """Compare some successors; one of them and its image."""
        known = [(action, self._image[action]) for action in legal if self._image[action] >= 0]
        if not known:  # any image that fits: the twin looks the same
            action = self._draw.choice(legal)
            known = [(action, min(self._possible[action]))]
        tried = self._draw.sample(known, min(NUM_TRIED, len(known)))
        # What was played least leads to actions that have not come up.
        tried.sort(key=lambda pair: -self._played[pair[0]])
        for action, image in tried:
            next_game, next_twin = self._after(game, action), self._after(twin, image)
            is_alike = (next_game.is_over, next_game.about) == (next_twin.is_over, next_twin.about)
            if is_alike and not next_game.is_over:
                is_alike = self._key_of_image(next_game) == self._key(next_twin)
                is_alike = is_alike and self._planes_fit(next_game, next_twin)
            if not is_alike:
                raise _ContradictionError(
                    f"action {action} and its image {image} do not lead to images of each other"
                )
        self._moves.append(action)
        self._played[action] += 1
        return next_game, next_twin

    def _image_of(self, seen: _Seen) -> _Seen:
        """What is seen, turned."""
        if seen.numbers is None:
            return seen
        turned = seen.numbers.reshape(-1)[self._source]
        return replace(seen, numbers=turned.reshape(seen.numbers.shape))

    def _key_of_image(self, seen: _Seen) -> Key:
        return self._key(self._image_of(seen))

    def _key(self, seen: _Seen) -> Key:
        """Equal where positions look the same."""
        if seen.numbers is None or self.planes is None:
            return seen.is_over, seen.about, b"" if seen.numbers is None else seen.numbers.tobytes()
        return seen.is_over, seen.about, b"".join(sorted(plane.tobytes() for plane in seen.numbers))

    def _planes_fit(self, game: _Seen, twin: _Seen) -> bool:
        """Leave the planes the places that fit this position as well; whether all have one."""
        turned, seen = self._image_of(game).numbers, twin.numbers
        if self.planes is None or turned is None or seen is None:
            return True
        places: dict[bytes, set[int]] = {}
        for place, plane in enumerate(seen):
            places.setdefault(plane.tobytes(), set()).add(place)
        self.planes = [
            fits & places.get(plane.tobytes(), set()) for fits, plane in zip(self.planes, turned, strict=True)
        ]
        return all(self.planes)

    def _after(self, seen: _Seen, action: int) -> _Seen:
        answered()
        state = self.rules.copy(seen.state)
        state.apply_action(action)
        return self._seen(state, int(seen.about[0]))

    def _seen(self, state: State, mover: int) -> _Seen:
        """mover: who moved last."""
        if state.is_terminal():
            returns = tuple(float(value) for value in state.returns())
            try:
                return _Seen(state, True, returns, self._numbers(state, 1 - mover))
            except Exception:
                return _Seen(state, True, returns, None)
        player = state.current_player()
        return _Seen(state, False, (player,), self._numbers(state, player))

    def _numbers(self, state: State, player: int) -> npt.NDArray[np.float32]:
        numbers = as_floats(state.observation_tensor(player))
        if numbers.size != len(self._source):
            raise ValueError(f"observation_tensor: {numbers.size} numbers; expected {len(self._source)}")
        return numbers.reshape(self.rules.shape[0], -1) + np.float32(0)  # -0 as 0


def order_of_planes(rules: Rules, symmetry: Symmetry) -> list[int] | None:
    """Where each plane goes while its squares move so, still to be tried; None: all stay, or nothing fits."""
    count = rules.shape[0]
    trial = Trial(rules, symmetry, [set(range(count)) for _ in range(count)])
    if not 1 < count <= MOST_PLANES or trial.fault() or trial.planes is None:
        return None
    # Of planes that always looked the same each stays where it is.
    order = [plane if plane in fits else min(fits) for plane, fits in enumerate(trial.planes)]
    return order if sorted(order) == list(range(count)) != order else None
