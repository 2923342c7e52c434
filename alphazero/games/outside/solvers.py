"""Exact values of positions of games whose rules lie outside the core: by a search, or by code of the user's.

exact                      ExactSearch, for games small enough
solver.py:Solver(depth=3)  a function or class in a Python file, as runs record a game's class: it is run only
                           where the user names it in this process

Values are of player 0 with best play of both: 1, 0 or -1.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, quoted
from alphazero.games.outside.names import class_of, is_outside, name_class, named_class, version_now
from alphazero.games.outside.python_file import defined
from alphazero.games.outside.rules import (
    AnswerError,
    Explainer,
    Rules,
    State,
    actions_of,
    as_floats,
    returns_of,
    watched,
)

EXACT = "exact"
FORMS = "exact or FILE.py:NAME, a function or class in Python"
SOLVER_HELP = (
    "games of OpenSpiel and Python files: what solves the positions of validation, so that it counts the "
    "moves that err; exact (small games), or FILE.py:NAME with a function or class in Python"
)
LIMIT_S = 300.0  # of a search, over all positions that it is asked for
MOST_KEYS = 8_000_000  # positions that a search remembers, in some 1 GB
DEEPEST = 400  # plies: each is a call of Python
WATCHED = 2000  # positions, the first ones, and later one in 256, that are looked at each time they come
TICK = 1024  # positions between two looks at the clock

# Few objects stand for all bounds of a table.
_BOUNDS = {(least, most): (least, most) for least in (-1, 0, 1) for most in (-1, 0, 1)}

Solve: TypeAlias = Callable[[State], int]


def position_key(state: State) -> bytes:
    """128 bits of all that the rules show of a position whose game is not over.

    That is the player to move, what this player observes, the legal actions and the text. Positions that
    equal each other in these count as one, whatever moves led there.
    """
    player = int(state.current_player())
    shown = repr((player, actions_of(state), str(state))).encode()
    seen = as_floats(state.observation_tensor(player)).tobytes()
    return hashlib.blake2b(shown + b"\0" + seen, digest_size=16).digest()


class ExactSearch:
    """Alpha-beta to the ends of the game, with a table of positions by position_key.

    Values are kept for player 0 throughout, so it does not matter who moves how often in a row. limit_s: for
    all positions that it is asked for together. tick: called with the number of positions searched so far,
    every so often.
    """

    def __init__(
        self, rules: Rules, limit_s: float = LIMIT_S, tick: Callable[[int], None] = lambda searched: None
    ) -> None:
        self._name = rules.name
        self._copy = rules.copy
        self._limit_s = limit_s
        self._tick = tick
        self._began = time.monotonic()
        self._bounds: dict[bytes, tuple[int, int]] = {}
        self._path: set[bytes] = set()
        self._after: dict[bytes, bytes] = {}  # of watched positions: what comes after them
        self._cutoffs: Counter[tuple[int, int]] = Counter()  # by player and action, to try good ones first
        self.searched = 0

    def __call__(self, state: State) -> int:
        """Raises ConfigError for a game that is too large, or where positions are not their keys alone."""
        self._path.clear()
        return self._search(state, -1, 1)

    def _search(self, state: State, low: int, high: int) -> int:
        """The value where it lies between low and high, else a bound on its side of them."""
        if state.is_terminal():
            return int(returns_of(state)[0])
        key = position_key(state)
        if len(self._bounds) < WATCHED or key[0] == 0:
            self._watch(key, state)
        least, most = self._bounds.get(key, (-1, 1))
        if least == most or least >= high:
            return least
        if most <= low:
            return most
        self._enter(key)
        low, high = max(low, least), min(high, most)
        begin, end = low, high
        player, legal = int(state.current_player()), actions_of(state)
        sign = 1 if player == 0 else -1
        best = -sign
        for action in sorted(legal, key=lambda move: -self._cutoffs[player, move]):
            after = self._copy(state)
            after.apply_action(action)
            best = sign * max(sign * best, sign * self._search(after, low, high))
            low, high = (max(low, best), high) if player == 0 else (low, min(high, best))
            if low >= high:
                self._cutoffs[player, action] += len(legal) ** 2  # those near the root save most
                break
        self._bounds[key] = _BOUNDS[least if best <= begin else best, most if best >= end else best]
        self._path.remove(key)
        return best

    def _watch(self, key: bytes, state: State) -> None:
        """A position that comes by other moves must have the same ones after it."""
        after = []
        for action in actions_of(state):
            child = self._copy(state)
            child.apply_action(action)
            is_over = child.is_terminal()
            after.append(bytes([1 + int(returns_of(child)[0])]) if is_over else position_key(child))
        digest = hashlib.blake2b(b"".join(after), digest_size=16).digest()
        if self._after.setdefault(key, digest) != digest:
            raise self._refused("moves have other results in positions that look the same")

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(
            f"--solver {EXACT}: {self._name}: {why}, so that values depend on the moves before; expected a "
            "solver of yours, FILE.py:NAME"
        )

    def _enter(self, key: bytes) -> None:
        if key in self._path:
            raise self._refused("positions come back")
        self._path.add(key)
        self.searched += 1
        if self.searched % TICK == 0:
            self._tick(self.searched)
        seconds = time.monotonic() - self._began
        if seconds > self._limit_s or len(self._bounds) >= MOST_KEYS or len(self._path) > DEEPEST:
            raise ConfigError(
                f"--solver {EXACT}: {self._name} is too large: {counted(self.searched, 'position')} "
                f"searched in {seconds:.0f} s without an end; expected a smaller game, or a solver of yours, "
                "FILE.py:NAME"
            )


def read_solver(source: str, text: str) -> str:
    """The name of a solver as a flag or a settings file gives it, or as recorded; "" is none.

    A Python file counts as named by the user from now on; a recorded name stays as it is. Raises ConfigError.
    """
    if text in ("", EXACT):
        return text
    asked = class_of(text)
    if asked is None:
        raise ConfigError(f"{source}: {quoted(text)}: expected {FORMS}")
    return version_now(text) if asked.digest else name_class(asked, source)


def check_solver(name: str, game: str) -> None:
    """Raises ConfigError for a solver of a game whose rules are the core's."""
    if name and not is_outside(game):
        raise ConfigError(
            f"--solver {name}: is for games of OpenSpiel and Python files; {game} is this program's own"
        )


def solver_of(name: str, rules: Rules, tick: Callable[[int], None] = lambda searched: None) -> Solve:
    """The solver of a recorded name: our search, or a function or class of a file that the user named.

    The user's own gets a copy of each state; RulesError where it fails, or its answer is not a value.
    Raises ConfigError, and RulesError where the file fails at once.
    """
    if name == EXACT:
        return ExactSearch(rules, tick=tick)
    named = named_class(name, "--solver")
    explain = Explainer(f"{named.file}:{named.of}", named.file)
    with explain.faults(), watched():
        made = defined(named)
        value_of: Any = made() if isinstance(made.func, type) else made
    if not callable(value_of):
        raise ConfigError(f"{explain.name}: has no method __call__; expected one that gets a state")

    def solve(state: State) -> int:
        with explain.faults():
            value = value_of(rules.copy(state))
            if float(value) not in (-1.0, 0.0, 1.0):
                raise AnswerError(
                    f"gives {quoted(str(value))} for the position {quoted(str(state))}; expected 1, 0 or -1, "
                    "the result of player 0"
                )
            return int(value)

    return solve
