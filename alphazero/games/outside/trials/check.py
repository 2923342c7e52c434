"""Random games by rules that lie outside the core: faults of the rules, lengths of games, speed."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from alphazero.games.outside.rules import Rules, State, answered, as_floats, watched
from alphazero.games.outside.trials.hidden import AlikePositions

MOST_PLIES = 100_000  # of a game that is given up as endless


@dataclass
class Findings:
    """faults: one line each, at most one of a kind. again: plies of a player who had moved just before.

    notes: where the network sees one position and the rules have two, as many games have it on purpose.
    out_of_time: whether the limit of time ended the games.
    """

    games: int = 0
    plies: int = 0
    longest: int = 0
    most_legal: int = 0
    again: int = 0
    first_wins: int = 0
    draws: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    out_of_time: bool = False


@dataclass
class _Game:
    """One random game. deadline: of time.perf_counter."""

    rules: Rules
    found: Findings
    alike: AlikePositions
    deadline: float
    moves: list[int] = field(default_factory=list)

    def fault(self, kind: str, what: str) -> None:
        if not any(line.startswith(f"{kind}: ") for line in self.found.faults):
            after = ",".join(map(str, self.moves)) or "none"
            self.found.faults.append(f"{kind}: {what} (the moves so far: {after})")

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
            self.alike.compare_legal(seen, legal, place)
            self.found.again += player == last
            last = player
            action = draw.choice(legal)
            if len(self.moves) % 8 == 0:
                self.look_at_copy(state, action, player, legal)
            state.apply_action(action)
            self.moves.append(action)
            returns = tuple(map(float, state.returns())) if state.is_terminal() else ()
            self.alike.compare_end(seen, action, returns, place)
        return state

    def look(self, state: State, player: int, legal: list[int]) -> bytes:
        """Whatever the core would refuse or a person could not use. A digest of what the network sees."""
        if player not in (0, 1):
            raise ValueError(f"current_player() is {player}; expected 0 or 1 while is_terminal() is false")
        if not legal:
            self.fault("legal_actions", "is empty while is_terminal() is false")
            raise ValueError("legal_actions() is empty while is_terminal() is false")
        self.found.most_legal = max(self.found.most_legal, len(legal))
        if len(set(legal)) < len(legal):
            self.fault("legal_actions", "names an action twice")
        if not 0 <= legal[0] <= legal[-1] < self.rules.num_actions:
            self.fault(
                "legal_actions", f"{legal[0]} to {legal[-1]}; expected 0 to {self.rules.num_actions - 1}"
            )
        seen = as_floats(state.observation_tensor(player))
        if seen.size != np.prod(self.rules.shape) or not np.isfinite(seen).all():
            self.fault(
                "observation_tensor", f"{seen.size} numbers; expected {np.prod(self.rules.shape)}, finite"
            )
        elif not np.array_equal(seen, as_floats(state.observation_tensor(player))):
            self.fault("observation_tensor", "is another one when it is asked for again")
        texts = [state.action_to_string(player, action) for action in legal]
        if len(set(texts)) < len(texts):
            self.fault("action_to_string", "two legal actions have one text; people will type their numbers")
        return hashlib.blake2b(seen.tobytes(), digest_size=16, salt=bytes([player])).digest()

    def look_at_copy(self, state: State, action: int, player: int, legal: list[int]) -> None:
        """A move in a copy must not change the original, and both must continue alike."""
        before = as_floats(state.observation_tensor(player)).copy()
        after = self.rules.copy(state)
        after.apply_action(action)
        is_same = sorted(state.legal_actions()) == legal and state.current_player() == player
        if not is_same or not np.array_equal(before, as_floats(state.observation_tensor(player))):
            self.fault("clone", "a move in the copy changes the original")


def check(
    rules: Rules,
    num_games: int,
    seed: int,
    most_seconds: float = math.inf,
    on_game: Callable[[], None] = lambda: None,
) -> Findings:
    """Play so many random games, as far as the time suffices. Whatever the rules raise is raised."""
    found, draw, alike = Findings(), random.Random(seed), AlikePositions()
    began = time.perf_counter()
    while found.games < num_games and not found.out_of_time:
        game = _Game(rules, found, alike, began + most_seconds)
        with watched():
            end = game.play(draw)
        found.plies += len(game.moves)
        if not found.out_of_time:
            _look_at_end(game, end)
            on_game()
    found.seconds = time.perf_counter() - began
    found.notes = alike.lines()
    return found


def _look_at_end(game: _Game, end: State) -> None:
    """Add a game that was played to its end, or to MOST_PLIES."""
    found, length = game.found, len(game.moves)
    found.games += 1
    found.longest = max(found.longest, length)
    if not end.is_terminal():
        game.fault("is_terminal", f"no end within {MOST_PLIES:,} plies")
        return
    returns = [float(value) for value in end.returns()]
    if returns not in ([1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]):
        game.fault("returns", f"{returns}; expected [1, -1], [0, 0] or [-1, 1]")
    found.first_wins += returns[:1] == [1.0]
    found.draws += returns[:1] == [0.0]
    if length > game.rules.max_plies:
        game.fault("max_game_length", f"a game of {length} plies; expected {game.rules.max_plies}")
