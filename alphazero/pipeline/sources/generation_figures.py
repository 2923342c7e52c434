"""The figures of a generation: counted on each rank, told by rank 0."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import torch

from alphazero.selfplay.figures import describe, figures_of
from alphazero.selfplay.worker import Played
from alphazero.training.loop.services import RankServices


@dataclass
class Totals:
    """What this rank did in a generation."""

    moves: int = 0
    simulations: int = 0
    evaluations: int = 0
    batches: int = 0

    def add(self, played: Played) -> None:
        """One more round."""
        self.moves += played.moves
        self.simulations += played.simulations
        self.evaluations += played.evaluations
        self.batches += played.batches

    def numbers(self) -> list[int]:
        """In the order of the fields."""
        return [self.moves, self.simulations, self.evaluations, self.batches]


@dataclass(frozen=True)
class GenerationFigures:
    """What people are told of a generation. batch_size: of an evaluation."""

    generation: int
    finished: pa.RecordBatch
    window_positions: int
    batch_size: int
    seconds: float

    def tell(self, step: int, totals: Totals, services: RankServices) -> None:
        """Add up all ranks' totals; write and say them on rank 0. Collective."""
        sums = services.exchange.sum(torch.tensor(totals.numbers(), dtype=torch.float64))
        if services.exchange.rank:
            return
        moves, simulations, evaluations, batches = sums.tolist()
        figures = figures_of(self.finished) if self.finished.num_rows else {}
        figures |= {
            "generation": float(self.generation),
            "window_positions": float(self.window_positions),
            "seconds": self.seconds,
            "moves_per_s": moves / self.seconds,
            "simulations_per_s": simulations / self.seconds,
            "evaluations_per_s": evaluations / self.seconds,
            "batch_fill": evaluations / max(1.0, batches * self.batch_size),
        }
        services.metrics.write("self_play", step, figures)
        text = describe(figures) if self.finished.num_rows else "no game has ended yet"
        services.console.say(
            f"generation {self.generation} | {text} | {self.seconds:.0f} s, "
            f"{evaluations / self.seconds:,.0f} evaluations/s | "
            f"window {self.window_positions:,} positions"
        )
