"""Many positions through `alphazero analyse --json-lines`, beside the same ones analysed one at a time.

`alphazero bench analysis [--weights W] [--data STORE|PGN] [--positions N] [--simulations N]`. Both ways write
the same JSON; the time to load the network does not count. One at a time is a loop in one process.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from alphazero.data.open import open_store
from alphazero.games.registry import make_line
from alphazero.machine.environment import CHECKOUT, START
from alphazero.play.net import load, search_line
from alphazero.play.search_text import analysis_json
from alphazero.search.tree_search import SearchLimits
from alphazero.settings.flags import Parser, count

LINES = 5


def run(arguments: list[str]) -> dict[str, object]:
    """Seconds of both ways, and in how many positions their best moves agree."""
    parser = Parser(prog="alphazero bench analysis")
    parser.add_argument("--weights", default="examples/chess_4x32.pb.gz")
    parser.add_argument("--data", default=str(CHECKOUT / "examples/games.pgn.gz"))
    parser.add_argument("--positions", type=count, default=200)
    parser.add_argument("--simulations", type=count, default=100)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(arguments)
    games = positions(args.data, args.positions)
    together, seconds = through_json_lines(games, args)
    alone, seconds_alone = one_at_a_time(games, args)
    pairs = [
        (own["search"]["lines"], other["search"]["lines"]) for own, other in zip(alone, together, strict=True)
    ]
    return {
        "positions": len(games),
        "simulations": args.simulations,
        "json_lines_s": seconds,
        "one_at_a_time_s": seconds_alone,
        "times_faster": seconds_alone / seconds,
        "same_best_move": sum(own[0]["move"] == other[0]["move"] for own, other in pairs),
        "same_lines": sum(own == other for own, other in pairs),
    }


def positions(data: str, number: int) -> list[list[str]]:
    """The moves that lead to positions of games, drawn by a fixed seed; none ends its game."""
    source, store, found = random.Random(1), open_store(data), []
    while len(found) < number:
        moves = store[source.randrange(len(store))].moves
        if len(moves) > 1:
            found.append(list(moves[: source.randrange(len(moves))]))
    return found


def through_json_lines(
    games: Sequence[list[str]], args: argparse.Namespace
) -> tuple[list[dict[str, Any]], float]:
    """The answers in the order of the positions."""
    program = [sys.executable, START, "analyse", "--weights", args.weights, "--json-lines"]
    process = subprocess.Popen(
        [*program, "--device", args.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    queries = [
        {"id": str(number), "moves": moves, "simulations": args.simulations, "lines": LINES}
        for number, moves in enumerate(games)
    ]
    # The first evaluation chooses kernels and takes memory, in both ways before the clock starts.
    process.stdin.write(json.dumps({"id": "ready", "simulations": 2}) + "\n")
    process.stdin.flush()
    process.stdout.readline()
    began = time.perf_counter()
    text = "".join(json.dumps(query) + "\n" for query in queries)
    threading.Thread(target=send, args=(process, text)).start()
    answers = [json.loads(process.stdout.readline()) for _ in queries]
    seconds = time.perf_counter() - began
    process.stdin.close()
    process.wait()
    return sorted(answers, key=lambda answer: int(answer["id"])), seconds


def send(process: subprocess.Popen[str], text: str) -> None:
    """All queries, while the answers are read."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def one_at_a_time(games: Sequence[list[str]], args: argparse.Namespace) -> tuple[list[dict[str, Any]], float]:
    """The same answers by the code of `analyse --json`."""
    net = load(args.weights, device=args.device)

    def analysed(moves: Sequence[str], simulations: int) -> dict[str, Any]:
        line = make_line(net.game)
        for move in moves:
            line.push_text(move)
        (alone,) = net.evaluate_lines([line])
        with closing(net.tree()) as tree:
            found = search_line(tree, line, SearchLimits(nodes=simulations), LINES)
        return json.loads(json.dumps(analysis_json(alone, found, LINES)))  # type: ignore[no-any-return]

    analysed([], 2)
    began = time.perf_counter()
    answers = [analysed(moves, args.simulations) for moves in games]
    return answers, time.perf_counter() - began
