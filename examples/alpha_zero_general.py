"""Games of alpha-zero-general (github.com/suragnair/alpha-zero-general): their Game classes as they are."""

import copy
import importlib

import numpy as np


class Game:
    """game: where Python finds the class, 'othello.OthelloGame.OthelloGame'; others are its parameters."""

    def __init__(self, game, **parameters):
        module, _, name = game.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        if not hasattr(kind, "getCanonicalForm"):  # the name may come from a file: nothing else is called
            raise TypeError(f"{game}: expected a Game class of alpha-zero-general")
        self.game = kind(**parameters)
        self.board, self.player, self.actions = self.game.getInitBoard(), 1, []
        self.num_distinct_actions = self.game.getActionSize()

    def current_player(self):
        return 0 if self.player == 1 else 1

    def legal_actions(self):
        return np.flatnonzero(self.game.getValidMoves(self.seen(), 1)).tolist()

    def apply_action(self, action):
        self.board, self.player = self.game.getNextState(self.board, self.player, action)
        self.actions = [*self.actions, action]

    def is_terminal(self):
        return self.game.getGameEnded(self.board, self.player) != 0

    def returns(self):
        result = int(self.game.getGameEnded(self.board, 1))  # a small number is a draw
        return [result, -result]

    def observation_tensor(self, player):
        planes = np.asarray(self.seen(), np.float32)
        return planes[None] if planes.ndim == 2 else planes

    def seen(self):
        return self.game.getCanonicalForm(self.board, self.player)

    def symmetries(self):
        squares = np.arange(self.board.size).reshape(self.board.shape)
        turned = self.game.getSymmetries(squares, np.arange(self.num_distinct_actions))
        return [(np.argsort(board, axis=None), np.argsort(policy)) for board, policy in turned]

    def action_to_string(self, player, action):
        return str(action)

    def history(self):
        return self.actions

    def clone(self):
        return copy.copy(self)

    def __str__(self):
        signs = {0: ".", 1: "x", -1: "o"}
        rows = np.asarray(self.board).reshape(-1, np.shape(self.board)[-1]).tolist()
        return "\n".join("".join(signs.get(piece, str(piece)) for piece in row) for row in rows)
