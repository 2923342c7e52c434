"""What a network says in each precision beside fp32, and how fast: its policies, values and best moves.

The positions are those of games that the network plays against itself without a search, each move drawn from
its policy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from alphazero.base.text import table
from alphazero.games.core_types import BatchEvaluation, Line
from alphazero.games.lines import leaves_of
from alphazero.games.registry import make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.precision import EVALUATION_PRECISIONS, INT8, choose_device, why_not_int8
from alphazero.network.weights.open_network import open_network
from alphazero.settings.flags import Parser, batch_size, count, seconds
from benchmarks.measuring.clock import rate

if TYPE_CHECKING:
    from alphazero.games.core_types import Leaves

# Shapes: B positions, K legal moves over all B positions; an evaluator's input as leaves_of has it.

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "chess_4x32.pb.gz"
GAMES_AT_ONCE = 64
MOST_PLIES = 400
EXACT = "fp32"


def run(arguments: list[str]) -> dict[str, object]:
    """By precision: evaluations_per_s, and what differs from fp32, see `compared`."""
    parser = Parser(prog="alphazero bench precision", description=__doc__)
    parser.add_argument("--weights", default=str(EXAMPLE))
    parser.add_argument("--positions", type=count, default=1024)
    parser.add_argument("--batch", type=batch_size, default=128)
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=EVALUATION_PRECISIONS,
        help="fp32, bf16, int8 if there is one",
    )
    parser.add_argument("--seconds", type=seconds(), default=2.0)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="cpu")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    device = choose_device(args.device, 0, os.environ)
    network, _ = open_network(args.weights, device)
    exact = NetworkEvaluator(network, device, EXACT, args.batch)
    positions = played(exact, args.positions)
    packed, _, legal_offset = positions
    truth = exact(*positions)
    figures: dict[str, object] = {"positions": len(packed)}
    for precision in args.precisions or default_precisions(device, network.config.body):
        evaluator = NetworkEvaluator(network, device, precision, args.batch)
        beside = compared(truth, evaluator(*positions), legal_offset) if precision != EXACT else {}
        speed = evaluations_per_s(evaluator, positions, args.seconds)
        figures[precision] = {"evaluations_per_s": speed, "how": evaluator.description, **beside}
    return figures


def default_precisions(device: torch.device, body: str) -> list[str]:
    """Those that are compared unless others are asked for."""
    return [EXACT, "bf16", *([] if why_not_int8(device, body) else [INT8])]


def played(evaluator: NetworkEvaluator, number: int) -> Leaves:
    """Of the network's own games, each position once."""
    draw, lines = np.random.default_rng(0), [make_line(evaluator.spec.name) for _ in range(GAMES_AT_ONCE)]
    seen: dict[int, Line] = {}
    while len(seen) < number:
        leaves = leaves_of(lines)
        policies = policies_of(evaluator(*leaves), leaves[2])
        for place, (line, policy) in enumerate(zip(lines, policies, strict=True)):
            seen.setdefault(line.key, line.copy())
            line.push(line.index_to_move(int(draw.choice(line.legal_indices(), p=policy))))
            if line.outcome().over or line.num_plies >= MOST_PLIES:
                lines[place] = make_line(evaluator.spec.name)
    return leaves_of(list(seen.values())[:number])


def policies_of(
    evaluation: BatchEvaluation, legal_offset: npt.NDArray[np.int32]
) -> list[npt.NDArray[np.float64]]:
    """Each position's, over its legal moves."""
    logits = np.split(evaluation.legal_logits.astype(np.float64), legal_offset[1:-1])
    shares = [np.exp(each - each.max()) for each in logits]
    return [each / each.sum() for each in shares]


def compared(
    truth: BatchEvaluation, found: BatchEvaluation, legal_offset: npt.NDArray[np.int32]
) -> dict[str, float]:
    """Divergence of policies in nats, distance of values (win minus loss), the share of other best moves."""
    pairs = list(zip(policies_of(truth, legal_offset), policies_of(found, legal_offset), strict=True))
    divergence = [float((p * np.log(p / q)).sum()) for p, q in pairs]
    distance = np.abs((truth.wdl - found.wdl) @ np.array([1.0, 0.0, -1.0]))
    return {
        "divergence_mean": float(np.mean(divergence)),
        "divergence_largest": max(divergence),
        "value_distance_mean": float(distance.mean()),
        "value_distance_p99": float(np.quantile(distance, 0.99)),
        "other_best_move": float(np.mean([p.argmax() != q.argmax() for p, q in pairs])),
    }


def evaluations_per_s(evaluator: NetworkEvaluator, positions: Leaves, least_s: float) -> float:
    """On full batches, the fastest of three."""
    packed, legal_index, legal_offset = positions
    size = min(evaluator.batch_size, len(packed))
    batch = (packed[:size], legal_index[: legal_offset[size]], legal_offset[: size + 1])

    def evaluated() -> float:
        evaluator.submit(*batch).result()
        return size

    return max(rate(evaluated, least_s / 3) for _ in range(3))


def text(figures: dict[str, object]) -> str:
    """For people."""
    names = {"divergence_mean": "{:.5f}", "divergence_largest": "{:.4f}", "value_distance_mean": "{:.4f}"}
    names |= {"value_distance_p99": "{:.3f}", "other_best_move": "{:.1%}"}
    lines = [("precision", "evaluations/s", *(name.replace("_", " ") for name in names))]
    for precision, found in figures.items():
        if isinstance(found, dict):
            cells = [form.format(found[name]) if name in found else "" for name, form in names.items()]
            lines.append((precision, f"{found['evaluations_per_s']:,.0f}", *cells))
    return "\n".join([*table(lines, "lrrrrrr"), "", f"{figures['positions']} positions beside fp32"])
