"""Tree search with random playouts in any game: UCT (Kocsis and Szepesvari 2006).

An opponent that knows the rules alone.
"""

from __future__ import annotations

import math
import random

from alphazero.games.core_types import Line

C = 2.0  # of results from -1 to 1; open_spiel/python/examples/mcts.py has the same


class _Node:
    """A move in the tree. by_first: who made it. total: of its results for that player."""

    __slots__ = ("by_first", "children", "move", "total", "untried", "visits")

    def __init__(self, move: int, by_first: bool) -> None:
        self.move = move
        self.by_first = by_first
        self.visits = 0
        self.total = 0.0
        self.children: list[_Node] = []
        self.untried: list[int] | None = None  # None until the node is first left


def uct_move(line: Line, simulations: int, draw: random.Random) -> int:
    """The move that was tried most often. The line is not over, and stays as it is."""
    root = _Node(-1, False)
    for _ in range(max(1, simulations)):
        _simulate(root, line.copy(), draw)
    return max(root.children, key=lambda child: (child.visits, child.total)).move


def _simulate(root: _Node, line: Line, draw: random.Random) -> None:
    """Down the tree to a move that was not tried, and at random to the end of the game.

    A playout of more plies than the rules allow is drawn.
    """
    node, path = root, []
    is_new = False
    while not is_new and not line.outcome().over:
        if node.untried is None:
            node.untried = line.legal()
            draw.shuffle(node.untried)
        is_new = bool(node.untried)
        if is_new:
            child = _Node(node.untried.pop(), line.first_player_to_move)
            node.children.append(child)
        else:
            # UCB1: the mean result and C sqrt(ln n / n_i). All children have been visited.
            reach = C * math.sqrt(math.log(node.visits))
            child = max(
                node.children, key=lambda each: each.total / each.visits + reach / math.sqrt(each.visits)
            )
        line.push(child.move)
        node = child
        path.append(node)
    for _ in range(line.MAX_PLIES):
        if (outcome := line.outcome()).over:
            break
        legal = line.legal()
        line.push(legal[int(draw.random() * len(legal))])
    of_first = outcome.value if line.first_player_to_move else -outcome.value
    root.visits += 1
    for node in path:
        node.visits += 1
        node.total += of_first if node.by_first else -of_first
