"""`alphazero perft`: leaves of the move tree, by first move."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from alphazero.games.registry import game_names, make_line
from alphazero.settings.flags import whole

if TYPE_CHECKING:
    from alphazero.games.core_types import Line

# Deepest tree counted in one call into the core, which Ctrl-C cannot interrupt: about a second.
MAX_DEPTH_PER_CALL = 5
MAX_DEPTH = 99


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("position", nargs="+", metavar="FEN|startpos", help="the root; quotes are optional")
    parser.add_argument("depth", type=whole(1, MAX_DEPTH), metavar="DEPTH", help="plies to count")
    parser.add_argument("--game", choices=game_names(), default="chess", help="default: chess")


def run(args: argparse.Namespace) -> int:
    """Print the count below each first move, the total and the speed."""
    text = " ".join(args.position)
    root = make_line(args.game, None if text == "startpos" else text)
    start_s = time.perf_counter()
    total = 0
    for move in root.legal():
        child = root.copy()
        child.push(move)
        nodes = count_leaves(child, args.depth - 1)
        total += nodes
        print(f"{root.move_to_text(move)}: {nodes}", flush=True)
    elapsed_s = max(time.perf_counter() - start_s, 1e-9)
    print(f"\nnodes {total}   {elapsed_s:.3f} s   {total / elapsed_s:.3g} nodes/s")
    return 0


def count_leaves(line: Line, depth: int) -> int:
    """Leaves `depth` plies below the end of `line`, in calls short enough for Ctrl-C."""
    if depth <= MAX_DEPTH_PER_CALL:
        return line.perft(depth)
    total = 0
    for move in line.legal():
        child = line.copy()
        child.push(move)
        total += count_leaves(child, depth - 1)
    return total
