"""`alphazero play`: a game against a network in the terminal."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from alphazero.base.text import escaped
from alphazero.cli.flags import add_device_flag, add_number, add_paths, add_weights_flag, network_of
from alphazero.games.notation import split_moves
from alphazero.games.registry import make_line
from alphazero.play.search_text import style_of_terminal
from alphazero.play.session import SIDES, PlaySession, require_chess
from alphazero.run.find import NETWORK
from alphazero.search.tree_search import SearchLimits
from alphazero.settings.flags import seconds, whole
from alphazero.settings.self_play import MOST_SIMULATIONS

DEFAULT_SIMULATIONS = 400
INTERRUPTED = 130  # 128 + SIGINT


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser)
    parser.add_argument(
        "--side",
        choices=SIDES,
        default="first",
        help="your side: first (white), second (black) or random (default: first)",
    )
    strength = parser.add_mutually_exclusive_group()
    add_number(
        strength,
        "--simulations",
        whole(1, MOST_SIMULATIONS),
        f"simulations of the network for a move (default: {DEFAULT_SIMULATIONS})",
    )
    add_number(strength, "--seconds", seconds(0.01), "seconds of the network for a move instead", metavar="S")
    parser.add_argument("--fen", help="start position (default: the start of the game)")
    parser.add_argument(
        "--moves",
        nargs="*",
        default=[],
        metavar="MOVE",
        help="moves already played, in chess as SAN or UCI: 1. e4 e7e5 2. Nf3 ...",
    )
    add_paths(parser, "--pgn", "append every game to this PGN file (chess)")
    add_device_flag(parser)
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")


def run(args: argparse.Namespace) -> int:
    """Play until `quit`, Ctrl-D or Ctrl-C."""
    from alphazero.play.net import load

    args.weights = network_of(args)
    net = load(args.weights, device=args.device, flag=NETWORK)
    if args.pgn is not None:
        require_chess(net.game, "--pgn")
    moves = tuple(split_moves(make_line(net.game, args.fen), args.moves))
    shape = f"{net.game} {net.config.blocks}x{net.config.filters}"
    print(escaped(f"{net.source}: {shape} (help lists the commands)"))
    simulations = args.simulations or (None if args.seconds else DEFAULT_SIMULATIONS)
    session = PlaySession(
        net,
        style_of_terminal(ascii_only=args.ascii),
        read_line,
        partial(print, flush=True),
        side=SIDES[args.side],
        limits=SearchLimits(nodes=simulations, seconds=args.seconds),
        start=args.fen,
        moves=moves,
        pgn=args.pgn,
    )
    try:
        session.run()
    except KeyboardInterrupt:
        print()
        return INTERRUPTED
    return 0


def read_line(prompt: str) -> str | None:
    """Read a line with the terminal's line editing; None at the end of the input."""
    if sys.stdin.isatty():
        import readline  # noqa: F401 - input() uses it: arrows and history
    try:
        return input(prompt)
    except EOFError:
        return None
    except UnicodeDecodeError:
        return "?"
