"""A game in Python for docs/your_own_game.md: Nim. Who takes the last object wins."""


class Nim:
    """Piles of 1, 2, 3, ... objects. An action is pile * piles + objects taken - 1."""

    def __init__(self, piles=3):
        self.sizes = list(range(1, piles + 1))
        self.piles = piles
        self.num_distinct_actions = piles * piles
        self.max_game_length = sum(self.sizes)
        self.player = 0

    def current_player(self):
        return self.player

    def legal_actions(self):
        return [pile * self.piles + taken for pile, size in enumerate(self.sizes) for taken in range(size)]

    def apply_action(self, action):
        pile, taken = divmod(action, self.piles)
        self.sizes[pile] -= taken + 1
        self.player = 1 - self.player

    def is_terminal(self):
        return not any(self.sizes)

    def returns(self):
        return [1, -1] if self.player == 1 else [-1, 1]  # the other player took the last object

    def observation_tensor(self, player):
        return [size / self.piles for size in self.sizes]

    def action_to_string(self, player, action):
        pile, taken = divmod(action, self.piles)
        return "abcdefgh"[pile] + str(taken + 1)

    def clone(self):
        other = Nim(self.piles)
        other.sizes, other.player = list(self.sizes), self.player
        return other

    def __str__(self):
        return "  ".join(f"{'abcdefgh'[pile]}:{size}" for pile, size in enumerate(self.sizes))
