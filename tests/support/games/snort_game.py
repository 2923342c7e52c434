"""A small game with the methods of alpha-zero-general's Game classes, to test its adapter in examples/.

Stones are put on a grid, none beside one of the other player's. Who must move and cannot loses, but it is a
draw where the other player cannot move either.
"""

import numpy as np


class SnortGame:
    def __init__(self, rows=3, columns=4):
        self.shape = (rows, columns)

    def getInitBoard(self):  # noqa: N802
        return np.zeros(self.shape, dtype=int)

    def getBoardSize(self):  # noqa: N802
        return self.shape

    def getActionSize(self):  # noqa: N802
        return self.shape[0] * self.shape[1]

    def getNextState(self, board, player, action):  # noqa: N802
        board = board.copy()
        board.flat[action] = player
        return board, -player

    def getValidMoves(self, board, player):  # noqa: N802
        theirs = np.pad(board == -player, 1)
        beside = theirs[:-2, 1:-1] | theirs[2:, 1:-1] | theirs[1:-1, :-2] | theirs[1:-1, 2:]
        return ((board == 0) & ~beside).ravel().astype(int)

    def getGameEnded(self, board, player):  # noqa: N802
        to_move = 1 if np.count_nonzero(board) % 2 == 0 else -1
        if self.getValidMoves(board, to_move).any():
            return 0
        return -to_move * player if self.getValidMoves(board, -to_move).any() else 1e-4

    def getCanonicalForm(self, board, player):  # noqa: N802
        return player * board

    def getSymmetries(self, board, pi):  # noqa: N802
        policy = np.reshape(pi, self.shape)
        turns = (lambda one: one, np.fliplr, np.flipud, lambda one: np.rot90(one, 2))
        return [(turn(board), list(turn(policy).ravel())) for turn in turns]

    def stringRepresentation(self, board):  # noqa: N802
        return board.tobytes()
