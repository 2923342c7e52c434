"""Random games by rules that lie outside the core: faults of the rules, lengths of games, speed.

A check of a position belongs to _Game: of each one (look), of a copy (look_at_copy), of what followed where
the network saw the same before (compare), of the end (look_at_end).
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from alphazero.games.outside.rules import Rules, State, answered, as_floats, watched

MOST_PLIES = 100_000  # of a game that is given up as endless
MOST_SHOWN = 40  # moves of a line
# Positions, and moves from them, that are remembered, of some 250 bytes each.
MOST_REMEMBERED = 400_000

# A game's moves, and how many of them led there: the lists are shared by all positions of the game.
Place: TypeAlias = tuple[list[int], int]


@dataclass
class Findings:
    """faults, notes: one line of a kind each. again: plies of a player who had moved just before.

    notes: where the network sees one position and the rules have two, as many games have it on purpose; for
    each kind the shortest pair of lines found, with its length. out_of_time: whether the limit of time ended
    the games.
    """

    games: int = 0
    plies: int = 0
    longest: int = 0
    most_legal: int = 0
    again: int = 0
    first_wins: int = 0
    draws: int = 0
    seconds: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)
    out_of_time: bool = False


@dataclass
class _Game:
    """One random game.

    followed: in all games, by what the network saw (a digest, with the player to move) and an action the
    returns where it ended the game, () where it did not; by -1 for the action a hash of the legal ones.
    deadline: of time.perf_counter.
    """

    rules: Rules
    found: Findings
    followed: dict[tuple[bytes, int], tuple[object, Place]]
    deadline: float
    moves: list[int] = field(default_factory=list)

    def fault(self, kind: str, what: str) -> None:
        self.found.faults.setdefault(kind, f"{kind}: {what} (the moves so far: {_text_of(self.moves)})")

    def play(self, draw: random.Random) -> State:
        state = self.rules.copy(self.rules.start)
        last = None
        while not state.is_terminal() and len(self.moves) < MOST_PLIES:
            if time.perf_counter() > self.deadline:
                self.found.out_of_time = True
                break
            answered()
            player, legal = state.current_player(), sorted(state.legal_actions())
            seen, place = self.look(state, player, legal), (self.moves, len(self.moves))
            self.compare(seen, hash(tuple(legal)), place)
            self.found.again += player == last
            last = player
            action = draw.choice(legal)
            if len(self.moves) % 8 == 0:
                self.look_at_copy(state, action, player, legal)
            state.apply_action(action)
            self.moves.append(action)
            returns = tuple(map(float, state.returns())) if state.is_terminal() else ()
            self.compare(seen, returns, place, action)
        return state

    def look(self, state: State, player: int, legal: list[int]) -> bytes:
        """Whatever the core would refuse or a person could not use. A digest of what the network sees."""
        if player not in (0, 1):
            raise ValueError(f"current_player() is {player}; expected 0 or 1 while is_terminal() is false")
        if not legal:
            raise ValueError("legal_actions() is empty while is_terminal() is false")
        self.found.most_legal = max(self.found.most_legal, len(legal))
        if len(set(legal)) < len(legal):
            self.fault("legal_actions", "names an action twice")
        most = self.rules.num_actions - 1
        if not 0 <= legal[0] <= legal[-1] <= most:
            self.fault("legal_actions", f"{legal[0]} to {legal[-1]}; expected 0 to {most}")
        seen = as_floats(state.observation_tensor(player))
        if seen.size != np.prod(self.rules.shape) or not np.isfinite(seen).all():
            expected = f"expected {np.prod(self.rules.shape)}, finite"
            self.fault("observation_tensor", f"{seen.size} numbers; {expected}")
        elif not np.array_equal(seen, as_floats(state.observation_tensor(player))):
            self.fault("observation_tensor", "is another one when it is asked for again")
        texts = [state.action_to_string(player, action) for action in legal]
        if len(set(texts)) < len(texts):
            self.fault("action_to_string", "two legal actions have one text; people will type their numbers")
        return hashlib.blake2b(seen.tobytes(), digest_size=16, salt=bytes([player])).digest()

    def look_at_copy(self, state: State, action: int, player: int, legal: list[int]) -> None:
        """A move in a copy must not change the original."""
        before = as_floats(state.observation_tensor(player)).copy()
        self.rules.copy(state).apply_action(action)
        is_same = sorted(state.legal_actions()) == legal and state.current_player() == player
        if not is_same or not np.array_equal(before, as_floats(state.observation_tensor(player))):
            self.fault("clone", "a move in the copy changes the original")

    def compare(self, seen: bytes, now: object, place: Place, action: int = -1) -> None:
        """Note where something else followed on what looks the same. place: of the position."""
        key = seen, action
        if key not in self.followed and len(self.followed) < MOST_REMEMBERED:
            self.followed[key] = now, place
        before, first = self.followed.get(key, (now, place))
        kind = "the result" if before and now else "whether the game ends"
        kind, after = ("their legal actions", "") if action < 0 else (kind, f" after action {action}")
        length = first[1] + place[1]
        if before != now and length < self.found.notes.get(kind, (math.inf, ""))[0]:
            moves = " and ".join(_text_of(moves[:ply]) for moves, ply in (first, place))
            what = f"two positions look the same and differ in {kind}{after}"
            self.found.notes[kind] = length, f"observation_tensor: {what} (the moves: {moves})"

    def look_at_end(self, end: State) -> None:
        """Add a game that was played to its end, or to MOST_PLIES."""
        length = len(self.moves)
        self.found.games += 1
        self.found.longest = max(self.found.longest, length)
        if not end.is_terminal():
            self.fault("is_terminal", f"no end within {MOST_PLIES:,} plies")
            return
        returns = [float(value) for value in end.returns()]
        if returns not in ([1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]):
            self.fault("returns", f"{returns}; expected [1, -1], [0, 0] or [-1, 1]")
        self.found.first_wins += returns[:1] == [1.0]
        self.found.draws += returns[:1] == [0.0]
        if length > self.rules.max_plies:
            self.fault("max_game_length", f"a game of {length} plies; expected {self.rules.max_plies}")


def check(
    rules: Rules,
    num_games: int,
    seed: int,
    most_seconds: float = math.inf,
    on_game: Callable[[], None] = lambda: None,
) -> Findings:
    """Play so many random games, as far as the time suffices. Whatever the rules raise is raised."""
    found, draw = Findings(), random.Random(seed)
    followed: dict[tuple[bytes, int], tuple[object, Place]] = {}
    began = time.perf_counter()
    while found.games < num_games and not found.out_of_time:
        game = _Game(rules, found, followed, began + most_seconds)
        with watched():
            end = game.play(draw)
        found.plies += len(game.moves)
        if not found.out_of_time:
            game.look_at_end(end)
            on_game()
    found.seconds = time.perf_counter() - began
    return found


def _text_of(moves: list[int]) -> str:
    """'4,0,8', or how many there are of a long line."""
    if len(moves) > MOST_SHOWN:
        return f"a line of {len(moves)}"
    return ",".join(map(str, moves)) or "none"
