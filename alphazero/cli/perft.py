"""`alphazero perft`: leaves of the move tree, by first move."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from alphazero.cli import numbers
from alphazero.errors import GameInputError

if TYPE_CHECKING:
    from alphazero._core import ChessPosition

# Deepest tree counted in one call into the core, which Ctrl-C cannot interrupt: about a second.
MAX_DEPTH_PER_CALL = 5
MAX_DEPTH = 99


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("position", nargs="+", metavar="FEN|startpos", help="the root; quotes are optional")
    parser.add_argument("depth", type=numbers.whole(1, MAX_DEPTH), metavar="DEPTH", help="plies to count")


def run(args: argparse.Namespace) -> int:
    """Print the count below each first move, the total and the speed."""
    from alphazero._core import ChessPosition, GameError

    text = " ".join(args.position)
    try:
        root = ChessPosition(None if text == "startpos" else text)
    except GameError as error:
        raise GameInputError(str(error)) from None
    start_s = time.perf_counter()
    total = 0
    for move in root.legal_moves():
        child = root.copy()
        child.push(move)
        nodes = count_leaves(child, args.depth - 1)
        total += nodes
        print(f"{root.uci(move)}: {nodes}", flush=True)
    elapsed_s = max(time.perf_counter() - start_s, 1e-9)
    print(f"\nnodes {total}   {elapsed_s:.3f} s   {total / elapsed_s:.3g} nodes/s")
    return 0


def count_leaves(position: ChessPosition, depth: int) -> int:
    """Leaves `depth` plies below `position`, in calls short enough for Ctrl-C."""
    if depth <= MAX_DEPTH_PER_CALL:
        return position.perft(depth)
    total = 0
    for move in position.legal_moves():
        child = position.copy()
        child.push(move)
        total += count_leaves(child, depth - 1)
    return total
