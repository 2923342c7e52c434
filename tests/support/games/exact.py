"""Exact values of small games by plain search over states with the methods of OpenSpiel's."""

from __future__ import annotations

import copy
from typing import Any

from alphazero.games.outside.rules import Rules, actions_of
from alphazero.games.outside.solvers import position_key


def exact_value(state: Any, known: dict[str, float] | None = None) -> float:
    """The first player's result with best play of both. str(state) must tell positions apart."""
    known = {} if known is None else known
    if state.is_terminal():
        return float(state.returns()[0])
    player = state.current_player()
    key = f"{player} {state}"
    if key not in known:
        values = []
        for action in state.legal_actions():
            after = state.clone() if hasattr(state, "clone") else copy.deepcopy(state)
            after.apply_action(action)
            values.append(exact_value(after, known))
        known[key] = max(values) if player == 0 else min(values)
    return known[key]


def all_positions(rules: Rules) -> list[tuple[tuple[int, ...], Any]]:
    """Positions that are not over and differ by their keys, with the first moves that lead there."""
    seen = {position_key(rules.start)}
    found: list[tuple[tuple[int, ...], Any]] = [((), rules.start)]
    for moves, state in found:  # grows
        for action in actions_of(state):
            after = rules.copy(state)
            after.apply_action(action)
            if not after.is_terminal() and (key := position_key(after)) not in seen:
                seen.add(key)
                found.append(((*moves, action), after))
    return found
