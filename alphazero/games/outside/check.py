"""Random games by rules that lie outside the core: faults of the rules, lengths of games, speed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from alphazero.games.outside.rules import Rules, State, answered, as_floats, watched

MOST_PLIES = 100_000  # of a game that is given up as endless


@dataclass
class Findings:
    """faults: one line each, at most one of a kind. again: plies of a player who had moved just before."""

    games: int = 0
    plies: int = 0
    longest: int = 0
    most_legal: int = 0
    again: int = 0
    first_wins: int = 0
    draws: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


@dataclass
class _Game:
    """One random game. copy: of a state."""

    rules: Rules
    copy: Callable[[State], State]
    found: Findings
    moves: list[int] = field(default_factory=list)

    def fault(self, kind: str, what: str) -> None:
        if not any(line.startswith(f"{kind}: ") for line in self.found.faults):
            after = ",".join(map(str, self.moves)) or "none"
            self.found.faults.append(f"{kind}: {what} (the moves so far: {after})")

    def play(self, draw: random.Random) -> State:
        state = self.copy(self.rules.start)
        last = None
        while not state.is_terminal() and len(self.moves) < MOST_PLIES:
            answered()
            player, legal = state.current_player(), sorted(state.legal_actions())
            self.look(state, player, legal)
            self.found.again += player == last
            last = player
            action = draw.choice(legal)
            if len(self.moves) % 8 == 0:
                self.look_at_copy(state, action, player, legal)
            state.apply_action(action)
            self.moves.append(action)
        return state

    def look(self, state: State, player: int, legal: list[int]) -> None:
        """Whatever the core would refuse or a person could not use."""
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

    def look_at_copy(self, state: State, action: int, player: int, legal: list[int]) -> None:
        """A move in a copy must not change the original, and both must continue alike."""
        before = as_floats(state.observation_tensor(player)).copy()
        after = self.copy(state)
        after.apply_action(action)
        is_same = sorted(state.legal_actions()) == legal and state.current_player() == player
        if not is_same or not np.array_equal(before, as_floats(state.observation_tensor(player))):
            self.fault("clone", "a move in the copy changes the original")


def check(rules: Rules, num_games: int, seed: int) -> Findings:
    """Play so many random games. Whatever the rules raise is raised."""
    found, draw = Findings(), random.Random(seed)
    copy: Callable[[State], State] = rules.clone or (lambda state: state.clone())
    began = time.perf_counter()
    for _ in range(num_games):
        game = _Game(rules, copy, found)
        with watched():
            end = game.play(draw)
        found.games += 1
        found.plies += len(game.moves)
        found.longest = max(found.longest, len(game.moves))
        if not end.is_terminal():
            game.fault("is_terminal", f"no end within {MOST_PLIES:,} plies")
            continue
        returns = [float(value) for value in end.returns()]
        if returns not in ([1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]):
            game.fault("returns", f"{returns}; expected [1, -1], [0, 0] or [-1, 1]")
        found.first_wins += returns[:1] == [1.0]
        found.draws += returns[:1] == [0.0]
        if len(game.moves) > rules.max_plies:
            game.fault("max_game_length", f"a game of {len(game.moves)} plies; expected {rules.max_plies}")
    found.seconds = time.perf_counter() - began
    return found
