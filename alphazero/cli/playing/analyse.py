"""`alphazero analyse`: the evaluation of one position by a network, and by a search."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError, GameInputError
from alphazero.base.text import table
from alphazero.cli.flags import add_device_flag, add_number, add_weights_flag
from alphazero.games.core_types import Line
from alphazero.games.drawing import Style, draw
from alphazero.games.notation import move_text, play_moves
from alphazero.games.registry import history_fill, make_line
from alphazero.play.search_text import (
    add_screen_flags,
    chances_text,
    effort_text,
    lines_text,
    search_json,
    style_of,
    value_text,
)
from alphazero.search.snapshot import Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSettings
from alphazero.settings.flags import count, seconds, whole
from alphazero.settings.self_play import MOST_SIMULATIONS

if TYPE_CHECKING:
    from alphazero.play.net import Evaluation, Net

BAR_WIDTH = 40
LINES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser)
    parser.add_argument("--fen", help="start position (default: the start of the game)")
    parser.add_argument(
        "--moves",
        nargs="*",
        default=[],
        metavar="MOVE",
        help="moves from there, as SAN or UCI in chess: e4 e7e5 Nf3 ...",
    )
    add_number(
        parser, "--simulations", whole(1, MOST_SIMULATIONS), "search with N simulations (default: no search)"
    )
    parser.add_argument("--seconds", type=seconds(0.01), metavar="S", help="search for S seconds")
    add_number(parser, "--lines", count, f"moves of a search to show (default: {LINES})")
    parser.add_argument("--json", action="store_true", help="print JSON: policy, wdl, value, and the search")
    parser.add_argument(
        "--history-fill",
        choices=("no", "fen_only"),
        default="fen_only",
        help="what stands for positions before the first: nothing, or (from a FEN) the first again",
    )
    add_device_flag(parser, default="cpu")
    add_screen_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate the position, search it if requested, print the result."""
    from alphazero.play.net import load

    searches = args.simulations is not None or args.seconds is not None
    if args.lines is not None and not searches:
        raise ConfigError("--lines: only with a search, --simulations N or --seconds S")
    num_lines = args.lines or LINES
    net = load(args.weights, device=args.device, flag="--weights")
    line = make_line(net.game, args.fen)
    play_moves(line, args.moves, "--moves, number")
    (analysis,) = net.evaluate_lines([line], fill=args.history_fill)
    found = search(net, line, args, num_lines) if searches else None
    if args.json:
        print(to_json(analysis, found, num_lines))
    else:
        print(to_text(analysis, found, line, num_lines, style_of(args)))
    return 0


def search(net: Net, line: Line, args: argparse.Namespace, num_lines: int) -> Snapshot:
    """Search the line's current position. Raises GameInputError if the game is over."""
    from alphazero.play.net import search_line

    if line.outcome().over:
        raise GameInputError(f"{line}: the game is over ({line.outcome().termination.name.lower()})")
    limits = SearchLimits(nodes=args.simulations, seconds=args.seconds)
    with closing(net.tree(TreeSettings(fill=history_fill(args.history_fill)))) as tree:
        return search_line(tree, line, limits, num_lines)


def to_json(analysis: Evaluation, found: Snapshot | None, count: int) -> str:
    """The analysis as a JSON object: policy, wdl, value, position; moves_left and search where known."""
    body = {name: getattr(analysis, name) for name in ("position", "policy", "wdl", "value")}
    if analysis.moves_left is not None:
        body["moves_left"] = analysis.moves_left
    if found is not None:
        body["search"] = search_json(found, count)
    return json.dumps(body)


def to_text(analysis: Evaluation, found: Snapshot | None, line: Line, count: int, style: Style) -> str:
    """The analysis for people: the board, the value, then each move with a bar, or the best lines of play."""
    head = [draw(line, style), "", analysis.position]
    alone = f"{chances_text(analysis.wdl)}  value {analysis.value:+.4f}"
    if analysis.moves_left is not None:
        alone += f"  plies left {analysis.moves_left:.0f}"
    if found is not None:
        value = value_text(found.q, found.mate)
        searched = f"for the side to move: {chances_text(found.wdl)}  value {value}"
        both = [f"{searched}  ({effort_text(found)})", f"the network alone: {alone}"]
        return "\n".join([*head, *both, "", *lines_text(found, count)])
    largest = max(analysis.policy.values())
    rows = [
        (
            f"  {move_text(line, line.text_to_move(move))}",
            f"{share:.2%}",
            "#" * round(share / largest * BAR_WIDTH),
        )
        for move, share in analysis.policy.items()
    ]
    return "\n".join([*head, f"for the side to move: {alone}", "", *table(rows, "lr")])
