"""What a network says in each precision beside fp32, and how fast: its policies, values and best moves.

The network is the example's unless W is another one; the positions
are those of games that it plays against itself without a search, each move drawn from its policy.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from alphazero.base.text import table
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line
from alphazero.network.inference.evaluator import BatchEvaluation, NetworkEvaluator
from alphazero.network.model.precision import EVALUATION_PRECISIONS, choose_device
from alphazero.network.weights.open_network import open_network
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "chess_4x32.pb.gz"
GAMES_AT_ONCE = 64
MOST_PLIES = 400
EXACT = "fp32"


@dataclass(frozen=True)
class Positions:
    """packed u8 [B, N], legal_index i32 [K], legal_offset i32 [B + 1]."""

    packed: npt.NDArray[np.uint8]
    legal_index: npt.NDArray[np.int32]
    legal_offset: npt.NDArray[np.int32]


def run(arguments: list[str]) -> dict[str, object]:
    """By precision: evaluations_per_s, and what differs from fp32, see `compared`."""
    parser = Parser(prog="alphazero bench precision", description=__doc__)
    parser.add_argument("--weights", default=str(EXAMPLE))
    parser.add_argument("--positions", type=count, default=1024)
    parser.add_argument("--batch", type=batch_size, default=128)
    parser.add_argument(
        "--precisions", nargs="+", choices=EVALUATION_PRECISIONS, default=["fp32", "bf16", "int8"]
    )
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--seconds", type=seconds(), default=2.0)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="cpu")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    device = choose_device(args.device, 0, os.environ)
    network, _ = open_network(args.weights, device)
    exact = NetworkEvaluator(network, device, EXACT, args.batch)
    positions = played(exact, args.positions)
    truth = exact(positions.packed, positions.legal_index, positions.legal_offset)
    figures: dict[str, object] = {"positions": len(positions.packed)}
    for precision in args.precisions:
        evaluator = NetworkEvaluator(network, device, precision, args.batch)
        found = evaluator(positions.packed, positions.legal_index, positions.legal_offset)
        beside = compared(truth, found, positions.legal_offset) if precision != EXACT else {}
        speed = evaluations_per_s(evaluator, positions, args.seconds)
        figures[precision] = {"evaluations_per_s": speed, "how": evaluator.description, **beside}
    return figures


def played(evaluator: NetworkEvaluator, number: int) -> Positions:
    """Of the network's own games, each position once."""
    draw, lines = np.random.default_rng(0), [make_line(evaluator.spec.name) for _ in range(GAMES_AT_ONCE)]
    seen: dict[int, Line] = {}
    while len(seen) < number:
        positions = positions_of(lines)
        policies = policies_of(
            evaluator(positions.packed, positions.legal_index, positions.legal_offset),
            positions.legal_offset,
        )
        for place, (line, policy) in enumerate(zip(lines, policies, strict=True)):
            seen.setdefault(line.key, line.copy())
            line.push(line.index_to_move(int(draw.choice(line.legal_indices(), p=policy))))
            if line.outcome().over or line.num_plies >= MOST_PLIES:
                lines[place] = make_line(evaluator.spec.name)
    return positions_of(list(seen.values())[:number])


def positions_of(lines: list[Line]) -> Positions:
    """As an evaluator takes them."""
    legal = [line.legal_indices() for line in lines]
    offset = np.cumsum([0, *map(len, legal)], dtype=np.int32)
    return Positions(np.stack([line.packed() for line in lines]), np.concatenate(legal), offset)


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


def evaluations_per_s(evaluator: NetworkEvaluator, positions: Positions, least_s: float) -> float:
    """On full batches, the fastest of three."""
    size = min(evaluator.batch_size, len(positions.packed))
    stop = positions.legal_offset[size]
    batch = (positions.packed[:size], positions.legal_index[:stop], positions.legal_offset[: size + 1])
    best = 0.0
    for _ in range(3):
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < least_s / 3:
            evaluator.submit(*batch).result()
            done += size
        best = max(best, done / (time.perf_counter() - begin))
    return best


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
