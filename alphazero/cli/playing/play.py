"""`alphazero play`: a game against a network in the terminal or the browser, or two networks to watch."""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.base.text import escaped
from alphazero.cli.flags import add_device_flag, add_number, add_plain_file, add_weights_flag, network_of
from alphazero.games.notation import split_moves
from alphazero.games.registry import make_line
from alphazero.play.search_text import style_of_terminal
from alphazero.play.session import SIDES, PlaySession, require_chess
from alphazero.run.find import NETWORK
from alphazero.search.tree_search import SearchLimits
from alphazero.settings.flags import seconds, whole
from alphazero.settings.self_play import MOST_SIMULATIONS

if TYPE_CHECKING:
    from alphazero.play.net import Net

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
    add_plain_file(parser, "--pgn", "append every game to this PGN file (chess)", "games.pgn")
    parser.add_argument(
        "--browser",
        action="store_true",
        help="play on a page that is served on this machine (127.0.0.1) until Ctrl-C",
    )
    add_number(parser, "--port", whole(0, 65535), "of --browser (default: a free one)", 0)
    parser.add_argument(
        "--against",
        metavar="WEIGHTS",
        help="with --browser: watch the network play this one, which is given as --weights",
    )
    add_device_flag(parser)
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")


def run(args: argparse.Namespace) -> int:
    """Play until `quit`, Ctrl-D or Ctrl-C."""
    from alphazero.play.net import load

    if not args.browser and (args.port or args.against):
        raise ConfigError(f"{'--port' if args.port else '--against'}: only with --browser")
    args.weights = network_of(args)
    net = load(args.weights, device=args.device, flag=NETWORK)
    if args.pgn is not None:
        require_chess(net.game, "--pgn")
    moves = tuple(split_moves(make_line(net.game, args.fen), args.moves))
    if args.browser:
        return _serve(args, net, moves)
    shape = f"{net.game} {net.config.blocks}x{net.config.filters}"
    print(escaped(f"{net.source}: {shape} (help lists the commands)"))
    session = PlaySession(
        net,
        style_of_terminal(ascii_only=args.ascii),
        read_line,
        partial(print, flush=True),
        side=SIDES[args.side],
        limits=_limits(args),
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


def _limits(args: argparse.Namespace) -> SearchLimits:
    simulations = args.simulations or (None if args.seconds else DEFAULT_SIMULATIONS)
    return SearchLimits(nodes=simulations, seconds=args.seconds)


def _serve(args: argparse.Namespace, net: Net, moves: tuple[str, ...]) -> int:
    """Serve the page until Ctrl-C."""
    from alphazero.play.net import load
    from alphazero.show.play_page.answers import GameAnswers
    from alphazero.show.play_page.page import WATCH, play_page
    from alphazero.show.play_page.server import PlayServer

    if args.pgn is not None:
        raise ConfigError("--pgn: with --browser the page has a button for it")
    nets = [net]
    side = SIDES[args.side]
    if args.against is not None:
        other = load(args.against, device=args.device, flag="--against")
        if other.game != net.game:
            raise ConfigError(f"--against {args.against}: plays {other.game}; expected {net.game}")
        nets, side = [net, other], WATCH
    elif side == "random":
        side = random.choice(("first", "second"))
    board = net.board(args.fen, moves)
    names = [Path(network.source).name for network in nets]
    page = play_page(net.game, names, side, _limits(args), args.fen, board.moves)
    with closing(GameAnswers(nets)) as answers, PlayServer(page, answers, args.port) as server:
        server.serve()
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
