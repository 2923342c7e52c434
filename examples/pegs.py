"""A puzzle for one player, for docs/your_own_game.md: peg solitaire. Player 0 always moves."""

STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))
# By action, square * 4 + direction: the squares from which, over which and to which a peg jumps.
JUMPS = {
    square * 4 + direction: [square + far * (4 * down + right) for far in range(3)]
    for square in range(16)
    for direction, (down, right) in enumerate(STEPS)
    if 0 <= square // 4 + 2 * down < 4 and 0 <= square % 4 + 2 * right < 4
}


class Pegs:
    """A peg jumps over another one, which is taken, to a hole. Who has one peg left wins."""

    num_distinct_actions = 64
    max_game_length = 14  # each jump takes one of 15 pegs

    def __init__(self, hole=1):
        self.pegs = [square != hole for square in range(16)]

    def current_player(self):
        return 0

    def legal_actions(self):
        pegs = self.pegs
        return [action for action, (a, b, c) in JUMPS.items() if pegs[a] and pegs[b] and not pegs[c]]

    def apply_action(self, action):
        for square in JUMPS[action]:
            self.pegs[square] = not self.pegs[square]

    def is_terminal(self):
        return not self.legal_actions()

    def returns(self):
        return [1, -1] if sum(self.pegs) == 1 else [-1, 1]

    def observation_tensor(self, player):
        return [[[float(peg) for peg in self.pegs[row : row + 4]] for row in range(0, 16, 4)]]

    def action_to_string(self, player, action):
        return "abcd"[action // 4 % 4] + str(4 - action // 16) + "rldu"[action % 4]

    def clone(self):
        other = Pegs()
        other.pegs = list(self.pegs)
        return other

    def __str__(self):
        return "\n".join("".join(".x"[peg] for peg in self.pegs[row : row + 4]) for row in range(0, 16, 4))
