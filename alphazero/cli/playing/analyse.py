"""`alphazero analyse`: one position by a network and by a search, queries of JSON, or games annotated."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError, DataError, GameInputError
from alphazero.base.log import LAYOUT, program_line
from alphazero.base.section import flag_of
from alphazero.base.text import counted, escaped, table
from alphazero.cli.flags import add_device_flag, add_number, add_paths, add_weights_flag, network_of
from alphazero.games.core_types import Line
from alphazero.games.drawing import Style, draw
from alphazero.games.notation import move_text, play_moves, split_moves
from alphazero.games.registry import make_line
from alphazero.play.search_text import (
    analysis_json,
    chances_text,
    effort_text,
    lines_text,
    style_of_terminal,
    value_text,
)
from alphazero.run.find import NETWORK
from alphazero.search.snapshot import Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSettings
from alphazero.settings.flags import count, seconds, whole
from alphazero.settings.self_play import MOST_SIMULATIONS
from alphazero.show.console import Console

if TYPE_CHECKING:
    from alphazero.base.log import Work
    from alphazero.play.net import Evaluation, Net
    from alphazero.play.pgn.annotation import Assessment

BAR_WIDTH = 40
LINES = 5
MOST_IN_FLIGHT = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser)
    parser.add_argument("--fen", help="start position (default: the start of the game)")
    parser.add_argument(
        "--moves",
        nargs="*",
        default=[],
        metavar="MOVE",
        help="moves from there, in chess as SAN or UCI: 1. e4 e7e5 2. Nf3 ...",
    )
    add_number(
        parser, "--simulations", whole(1, MOST_SIMULATIONS), "search with N simulations (default: no search)"
    )
    parser.add_argument("--seconds", type=seconds(0.01), metavar="S", help="search for S seconds")
    add_number(parser, "--lines", count, f"moves of a search to show (default: {LINES})")
    parser.add_argument("--json", action="store_true", help="print JSON: policy, wdl, value, and the search")
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="answer queries from standard input, a JSON object each, many at a time (docs/analysis.md)",
    )
    add_number(
        parser,
        "--positions-in-flight",
        whole(1, MOST_IN_FLIGHT),
        "of --json-lines: positions searched at a time (default: a batch of the network, 64, on a GPU 256)",
    )
    add_device_flag(parser, default="cpu")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    group = parser.add_argument_group("games instead of one position (chess)")
    add_paths(
        group, "--pgn", "annotate the games of a PGN file: evaluations, ?!, ? and ?? with a better line"
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate or search the position, print the result; or serve queries, or annotate games."""
    if args.json_lines:
        return serve(args)
    if args.positions_in_flight is not None:
        raise ConfigError("--positions-in-flight: only with --json-lines")
    searches = args.simulations is not None or args.seconds is not None
    if args.pgn is not None:
        return annotate_games(args, searches)
    if args.lines is not None and not searches:
        raise ConfigError("--lines: only with a search, --simulations N or --seconds S")
    num_lines = args.lines or LINES
    net = opened(args)
    line = make_line(net.game, args.fen)
    moves = split_moves(line, args.moves)
    play_moves(line, moves, "--moves, number")
    (analysis,) = net.evaluate_lines([line])
    limits = {"simulations": args.simulations, "seconds": args.seconds}
    snapshot = net.search((args.fen, moves), **limits, lines=num_lines) if searches else None
    if args.json:
        print(json.dumps(analysis_json(analysis, snapshot, num_lines)))
    else:
        print(to_text(analysis, snapshot, line, num_lines, style_of_terminal(ascii_only=args.ascii)))
    return 0


def opened(args: argparse.Namespace) -> Net:
    """The network that the command names, which args.weights has from here on."""
    from alphazero.play.net import load

    args.weights = network_of(args)
    return load(args.weights, device=args.device, flag=NETWORK)


def serve(args: argparse.Namespace) -> int:
    """Answer queries until standard input ends and all are answered."""
    from alphazero.network.inference.purpose import (
        CPU_FOREST_BATCH,
        CUDA_BATCH_SIZE,
        evaluator_for_forest,
        largest_tree_batch,
    )
    from alphazero.play.analysis import AnalysisServer, QueryReader

    given = {"--fen": args.fen, "--moves": args.moves, "--seconds": args.seconds, "--json": args.json}
    given |= {"--pgn": args.pgn}
    if other := [flag for flag, value in given.items() if value]:
        raise ConfigError(f"{other[0]}: not with --json-lines, whose queries name positions and simulations")
    net = opened(args)
    most = CUDA_BATCH_SIZE if net.device.type == "cuda" else CPU_FOREST_BATCH
    evaluator = evaluator_for_forest(net.module, net.device, "fp32", most)
    server = AnalysisServer(
        net,
        evaluator,
        TreeSettings(minibatch_size=largest_tree_batch(net.device)),
        QueryReader(net.game, args.simulations or 0, args.lines or LINES),
        args.positions_in_flight or evaluator.batch_size,
        partial(print, flush=True),
    )
    done = server.run(sys.stdin.buffer)
    print(program_line(done, has_time=False), file=sys.stderr)
    return 0


def to_text(analysis: Evaluation, snapshot: Snapshot | None, line: Line, count: int, style: Style) -> str:
    """The analysis for people: the board, the value, then each move with a bar, or the best lines of play."""
    head = [draw(line, style), "", analysis.position]
    alone = f"{chances_text(analysis.wdl)}  value {analysis.value:+.4f}"
    if analysis.moves_left is not None:
        alone += f"  plies left {analysis.moves_left:.0f}"
    if snapshot is not None:
        value = value_text(snapshot.q, snapshot.mate)
        searched = f"for the side to move: {chances_text(snapshot.wdl)}  value {value}"
        both = [f"{searched}  ({effort_text(snapshot)})", f"the network alone: {alone}"]
        return "\n".join([*head, *both, "", *lines_text(snapshot, count)])
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


def annotate_games(args: argparse.Namespace, searches: bool) -> int:
    """Annotate each game of --pgn that can be read, report the others. Raises ConfigError and DataError."""
    from alphazero.play.pgn.annotation import MoveMark, annotate, assess, pgn_of, title
    from alphazero.play.pgn.reading import games_of_file
    from alphazero.play.session import require_chess

    for name in ("fen", "moves", "lines", "json"):
        if getattr(args, name):
            raise ConfigError(f"{flag_of(name)}: not with --pgn, which annotates all positions of its games")
    if not searches:
        raise ConfigError("--pgn: expected a search, --simulations N or --seconds S (of each position)")
    net = opened(args)
    require_chess(net.game, "--pgn")
    limits = SearchLimits(nodes=args.simulations, seconds=args.seconds)
    words = [] if args.simulations is None else [counted(args.simulations, "simulation")]
    words += [] if args.seconds is None else [f"{args.seconds:g} s"]
    annotator = f"{Path(args.weights).name} ({', '.join(words)})"
    annotated, number = 0, 0
    tree = net.tree()
    with closing(Console(True)) as console, closing(tree):
        for number, read in enumerate(games_of_file(args.pgn), start=1):
            location, players = f"{args.pgn}:{read.line}", title(read.game)
            try:
                if read.fault:
                    raise GameInputError(read.fault)
                plies = read.game.end().ply() - read.game.ply()
                with console.working(f"game {number}, {players}", plies + 1, "position") as work:

                    def assessed(line: Line, work: Work = work) -> Assessment:
                        assessment = assess(tree, line, limits)
                        work.done += 1
                        return assessment

                    marks = annotate(read.game, assessed, annotator)
            except GameInputError as error:
                console.warn(f"{location}: game {number}, {players}, is left out: {error}")
                continue
            print(escaped(pgn_of(read.game), LAYOUT), end="", flush=True)
            kinds = ", ".join(f"{marks[each]} {each.mark}" for each in reversed(MoveMark))
            console.say(f"game {number}, {players}: {counted(plies, 'ply', 'plies')}, {kinds}")
            annotated += 1
            tree.forget()
        if not annotated:
            raise DataError(f"{args.pgn}: no game could be annotated, of {number}; expected PGN games")
    if annotated < number:
        console.warn(f"{counted(number - annotated, 'game')} of {number} left out, {annotated} annotated")
    return 0
