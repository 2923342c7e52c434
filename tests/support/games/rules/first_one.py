"""Who says 1 first wins; nobody does for twelve moves: a draw.

Whoever looks one move ahead wins when it begins, and half of the time after a player that moves at random:
3/4 of the points against random moves, 190.85 Elo, and half of them against any other that looks ahead.
"""


class FirstOne:
    num_distinct_actions = 2
    max_game_length = 12

    def __init__(self) -> None:
        self.said: list[int] = []

    def current_player(self):
        return len(self.said) % 2

    def legal_actions(self):
        return [0, 1]

    def apply_action(self, action):
        self.said.append(action)

    def is_terminal(self):
        return 1 in self.said or len(self.said) == self.max_game_length

    def returns(self):
        if 1 not in self.said:
            return [0, 0]
        return [-1, 1] if self.current_player() == 0 else [1, -1]

    def observation_tensor(self, player):
        return [len(self.said) / self.max_game_length, float(player)]

    def action_to_string(self, player, action):
        return str(action)

    def clone(self):
        other = type(self)()
        other.said = list(self.said)
        return other

    def __str__(self):
        return "".join(map(str, self.said))
