"""A bot for a game of your own: Nim of nim.py against random moves. `python examples/bot.py runs/nim`"""

import random
import sys
from pathlib import Path

from nim import Nim

import alphazero as az

GAME = f"{Path(__file__).with_name('nim.py')}:Nim(piles=4)"


def main(weights=""):
    net = az.load(weights, game=GAME) if weights else az.new_net(GAME, blocks=1, filters=16)
    tree = net.tree()
    state = Nim(piles=4)  # the program's own object
    tree.set_line(state)
    while not state.is_terminal():
        if state.current_player() == 0:
            found = tree.search(az.SearchLimits(nodes=400))
            action = found.best_action
            print(f"bot {action} ({found.q:+.2f}); share of each action: {found.actions}")
        else:
            action = random.choice(state.legal_actions())
        state.apply_action(action)
        tree.push(action)  # what is known of the position after it stays
    tree.close()
    print("the bot won" if state.returns()[0] > 0 else "the bot lost")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:2])
    except az.AlphaZeroError as error:
        sys.exit(str(error))
