"""`alphazero analyse`: what a network says of one position."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alphazero.cli.flags.network import add_weights_flag
from alphazero.errors import GameInputError
from alphazero.text import as_utf8, table

if TYPE_CHECKING:
    from alphazero.games.core_types import Line
    from alphazero.network.inference.evaluator import NetworkEvaluator

BAR_WIDTH = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser)
    parser.add_argument("--fen", help="start position (default: the start of the game)")
    parser.add_argument(
        "--moves", nargs="*", default=[], metavar="MOVE", help="moves from there: e2e4 e7e5 ..."
    )
    parser.add_argument("--json", action="store_true", help="print JSON: policy, wdl, value")
    parser.add_argument(
        "--history-fill",
        choices=("no", "fen_only"),
        default="fen_only",
        help="what stands for positions before the first: nothing, or (from a FEN) the first again",
    )


@dataclass(frozen=True)
class Analysis:
    """policy: share of each legal move by its text, largest first; wdl and value (W - L) for the mover."""

    position: str
    policy: dict[str, float]
    wdl: tuple[float, float, float]
    value: float


def run(args: argparse.Namespace) -> int:
    """Evaluate the position, print it."""
    import torch

    from alphazero.games.registry import make_line
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.training.checkpoint.any_weights import open_network

    device = torch.device("cpu")
    network, _ = open_network(args.weights, device)
    line = make_line(network.config.game, args.fen)
    play(line, args.moves)
    evaluator = NetworkEvaluator(network, network.spec, device, "fp32", batch_size=1)
    analysis = analyse(line, evaluator, args.history_fill)
    print(to_json(analysis) if args.json else to_table(analysis))
    return 0


def play(line: Line, moves: Sequence[str]) -> None:
    """Play the moves on the line. Raises GameInputError for one that is not legal."""
    from alphazero._core import GameError

    number = 0
    try:
        for text in moves:
            number += 1
            line.push_text(as_utf8(text))
    except GameError as error:
        raise GameInputError(f"--moves, number {number}: {error}") from None


def analyse(line: Line, evaluator: NetworkEvaluator, fill: str) -> Analysis:
    """What the network says of the line's current position. Raises GameInputError if the game is over."""
    import numpy as np

    from alphazero.games.registry import history_fill

    legal_index = line.legal_indices()
    if len(legal_index) == 0:
        raise GameInputError(f"{line}: no legal move, the game is over")
    packed = line.packed(history_fill(fill))
    evaluation = evaluator(packed[None], legal_index, np.array([0, len(legal_index)], np.int32))
    shares = np.exp(evaluation.legal_logits - evaluation.legal_logits.max())
    shares /= shares.sum()
    texts = [line.move_to_text(line.index_to_move(int(index))) for index in legal_index]
    by_share = sorted(zip(texts, shares.tolist(), strict=True), key=lambda entry: -entry[1])
    win, draw, loss = evaluation.wdl[0].tolist()
    return Analysis(str(line), dict(by_share), (win, draw, loss), win - loss)


def to_json(analysis: Analysis) -> str:
    """The analysis as a JSON object: policy, wdl, value, position."""
    return json.dumps(
        {
            "position": analysis.position,
            "policy": analysis.policy,
            "wdl": list(analysis.wdl),
            "value": analysis.value,
        }
    )


def to_table(analysis: Analysis) -> str:
    """The analysis for people: value, then each move with a bar, the longest for the likeliest."""
    win, draw, loss = analysis.wdl
    largest = max(analysis.policy.values())
    lines = [
        analysis.position,
        f"for the side to move: win {win:.1%}  draw {draw:.1%}  loss {loss:.1%}  value {analysis.value:+.4f}",
        "",
    ]
    rows = [
        (f"  {move}", f"{share:.2%}", "#" * round(share / largest * BAR_WIDTH))
        for move, share in analysis.policy.items()
    ]
    return "\n".join([*lines, *table(rows, "lr")])
