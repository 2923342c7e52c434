"""`alphazero solve`: the exact value of a Connect Four position."""

from __future__ import annotations

import argparse
import json
import threading
from typing import TYPE_CHECKING, cast

from alphazero.base.errors import GameInputError
from alphazero.base.text import counted
from alphazero.cli.flags import add_number, make_solver
from alphazero.games.notation import play_moves
from alphazero.games.registry import make_line
from alphazero.settings.flags import MOST_COUNT, whole
from alphazero.show.console import showing

if TYPE_CHECKING:
    import alphazero._core as _core

STONES_PER_SIDE = 21
PROGRESS_INTERVAL_S = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "moves",
        nargs="?",
        default="",
        help="columns 1-7 played from the empty board, as 4453; few of them can take many minutes "
        "(default: the empty board)",
    )
    parser.add_argument(
        "--moves", dest="each", action="store_true", help="print the score of each move as well"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_number(parser, "--table-mib", whole(1, MOST_COUNT), "memory of the solver", 512, metavar="MIB")


def run(args: argparse.Namespace) -> int:
    """Print the score and what it means (words_of). Raises GameInputError for an illegal move."""
    played = make_line("connect4")
    play_moves(played, args.moves)
    if played.outcome().over:
        raise GameInputError(f"{args.moves!r}: the game is over; expected a game in progress")
    line = cast("_core.Connect4Line", played)
    solver = make_solver(args.table_mib)
    scores: list[list[int]] = []

    def solve() -> None:
        scores.append([solver.score(line), *(solver.move_scores(line) if args.each else ())])

    thread = threading.Thread(target=solve, daemon=True)  # so that Ctrl-C ends it
    thread.start()
    with showing("solving", 0, "position") as work:
        while thread.is_alive():
            thread.join(PROGRESS_INTERVAL_S)
            work.done = solver.num_nodes
    score, *moves = scores[0]
    named = {str(column): value for column, value in enumerate(moves, start=1) if value != solver.ILLEGAL}
    if args.json:
        print(
            json.dumps({"moves": args.moves, "score": score, **({"move_scores": named} if args.each else {})})
        )
    else:
        side = "x" if line.first_player_to_move else "o"
        print(f"{score}: {side}, to move, {words_of(score, len(args.moves))}")
        for column, value in named.items():
            print(f"column {column}: {value}, {words_of(value, len(args.moves))}")
    return 0


def words_of(score: int, num_stones: int) -> str:
    """What a score means for the side to move, with this many stones on the board.

    score: 0 is a draw, k a win with the side's k-th last stone of 21, -k a loss to such a stone.
    """
    if score == 0:
        return "draws"
    own = num_stones // 2
    placed = own if score > 0 else num_stones - own
    moves = counted(STONES_PER_SIDE + 1 - abs(score) - placed, "move")
    return f"{'wins' if score > 0 else 'loses'} in {moves}"
