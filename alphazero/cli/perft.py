"""`alphazero perft`: leaves of the move tree, by first move."""

from __future__ import annotations

import argparse
import time

from alphazero.games.lines import MOST_DEPTH, divide
from alphazero.games.registry import game_names, make_line, read_game
from alphazero.settings.flags import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("position", nargs="+", metavar="FEN|startpos", help="the root; quotes are optional")
    parser.add_argument("depth", type=whole(1, MOST_DEPTH), metavar="DEPTH", help="plies to count")
    parser.add_argument(
        "--game", default="chess", metavar="{" + ",".join(game_names()) + "}", help="default: chess"
    )


def run(args: argparse.Namespace) -> int:
    """Print the count below each first move, the total and the speed."""
    text = " ".join(args.position)
    root = make_line(read_game("--game", args.game), text)
    start_s = time.perf_counter()
    total = 0
    for move, leaves in divide(root, args.depth):
        total += leaves
        print(f"{root.move_to_text(move)}: {leaves}", flush=True)
    elapsed_s = max(time.perf_counter() - start_s, 1e-9)
    print(f"\nnodes {total}   {elapsed_s:.3f} s   {total / elapsed_s:.3g} nodes/s")
    return 0
