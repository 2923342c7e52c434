"""Tree search with random playouts over the states of any rules: UCT (Kocsis and Szepesvari 2006).

What OpenSpiel's search is in its games, this one is in all others: an opponent that knows the rules alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TypeVar

from alphazero.games.outside.rules import Playable, returns_of

C = 2.0  # of results from -1 to 1; open_spiel/python/examples/mcts.py has the same

T = TypeVar("T", bound=Playable)


class _Node:
    """An action in the tree. player: who made it. total: of its results for that player."""

    __slots__ = ("action", "children", "player", "total", "untried", "visits")

    def __init__(self, action: int, player: int) -> None:
        self.action = action
        self.player = player
        self.visits = 0
        self.total = 0.0
        self.children: list[_Node] = []
        self.untried: list[int] | None = None  # None until the node is first left


def uct_action(
    state: T, copy: Callable[[T], T], simulations: int, most_plies: int, draw: random.Random
) -> int:
    """The action that was tried most often. The state is not over, and stays as it is.

    most_plies: of a playout, which is drawn if it is longer.
    """
    root = _Node(-1, -1)
    for _ in range(max(1, simulations)):
        _simulate(root, copy(state), most_plies, draw)
    return max(root.children, key=lambda child: (child.visits, child.total)).action


def _simulate(root: _Node, state: Playable, most_plies: int, draw: random.Random) -> None:
    """Down the tree to an action that was not tried, and at random to the end of the game."""
    node, path = root, [root]
    while not state.is_terminal():
        if node.untried is None:
            node.untried = list(map(int, state.legal_actions()))
            draw.shuffle(node.untried)
        is_new = bool(node.untried)
        if is_new:
            child = _Node(node.untried.pop(), state.current_player())
            node.children.append(child)
        else:
            # UCB1: the mean result and C sqrt(ln n / n_i). All children have been visited.
            reach = C * math.sqrt(math.log(node.visits))
            child = max(
                node.children, key=lambda each: each.total / each.visits + reach / math.sqrt(each.visits)
            )
        state.apply_action(child.action)
        node = child
        path.append(node)
        if is_new:
            _play_out(state, most_plies, draw)
            break
    returns = returns_of(state) if state.is_terminal() else (0.0, 0.0)
    root.visits += 1
    for node in path[1:]:
        node.visits += 1
        node.total += returns[node.player]


def _play_out(state: Playable, most_plies: int, draw: random.Random) -> None:
    for _ in range(most_plies):
        if state.is_terminal():
            return
        legal = list(state.legal_actions())
        state.apply_action(int(legal[int(draw.random() * len(legal))]))
