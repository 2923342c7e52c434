"""Dots and boxes on `size` by `size` boxes: who closes a box moves again. It has no `clone`."""

import numpy as np


class Boxes:
    """An action is an edge: first the horizontal ones, row by row, then the vertical ones."""

    def __init__(self, size: int = 2) -> None:
        self.size = size
        self.num_distinct_actions = 2 * size * (size + 1)
        self.max_game_length = self.num_distinct_actions
        self.drawn = [False] * self.num_distinct_actions
        self.boxes = [0, 0]
        self.player = 0

    def current_player(self):
        return self.player

    def legal_actions(self):
        return [edge for edge, is_drawn in enumerate(self.drawn) if not is_drawn]

    def edges_of(self, row, column):
        size, across = self.size, self.size * (self.size + 1)
        left = across + row * (size + 1) + column
        return (row * size + column, (row + 1) * size + column, left, left + 1)

    def closed(self):
        size = self.size
        return sum(
            all(self.drawn[edge] for edge in self.edges_of(row, column))
            for row in range(size)
            for column in range(size)
        )

    def apply_action(self, action):
        before = self.closed()
        self.drawn[action] = True
        won = self.closed() - before
        self.boxes[self.player] += won
        if not won:
            self.player = 1 - self.player

    def is_terminal(self):
        return all(self.drawn)

    def returns(self):
        lead = self.boxes[0] - self.boxes[1]
        first = (lead > 0) - (lead < 0)
        return (first, -first)

    def observation_tensor(self, player):
        lead = self.boxes[player] - self.boxes[1 - player]
        return np.array([*self.drawn, lead / self.size**2], dtype=np.float64)

    def action_to_string(self, player, action):
        return f"e{action}"

    def __str__(self):
        return f"{''.join('-' if edge else '.' for edge in self.drawn)} {self.boxes}"
