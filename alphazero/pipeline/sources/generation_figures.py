"""The figures of a generation: counted on each rank, told by rank 0."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import torch

from alphazero.health.gpu_usage import Doing
from alphazero.selfplay.figures import describe, figures_of
from alphazero.selfplay.worker import Played
from alphazero.training.loop.services import RankServices
from alphazero.training.usage.gpu_board import gpu_figures, utilisation


@dataclass
class Totals:
    """What this rank did in a generation."""

    moves: int = 0
    simulations: int = 0
    evaluations: int = 0
    cached: int = 0
    batches: int = 0
    games: int = 0

    def add(self, played: Played) -> None:
        """One more round."""
        self.moves += played.moves
        self.simulations += played.simulations
        self.evaluations += played.evaluations
        self.cached += played.cached
        self.batches += played.batches
        self.games += len(played.finished)

    def numbers(self) -> list[int]:
        """What ranks add up, in the order of the fields."""
        return [self.moves, self.simulations, self.evaluations, self.cached, self.batches]


@dataclass(frozen=True)
class GenerationFigures:
    """What people are told of a generation. batch_size: of an evaluation.

    has_cache: of evaluations; the share of the positions whose evaluation it knew is told.
    """

    generation: int
    finished: pa.RecordBatch
    window_positions: int
    batch_size: int
    has_cache: bool
    seconds: float

    def tell(self, step: int, totals: Totals, services: RankServices) -> None:
        """Add up all ranks' totals; write, say and judge them on rank 0. Collective."""
        own, board = torch.tensor(totals.numbers(), dtype=torch.float64), services.gpus
        sums = services.exchange.sum(torch.cat([own, board.message(Doing.SELF_PLAY)]) if board else own)
        if services.exchange.rank:
            return
        moves, simulations, evaluations, cached, batches = sums[: len(own)].tolist()
        gpus = board.read(sums[len(own) :]) if board else []
        busy = utilisation(gpus)
        figures = figures_of(self.finished) if self.finished.num_rows else {}
        figures |= {f"gpu/{name}": value for name, value in gpu_figures(gpus).items()}
        figures |= {
            "generation": float(self.generation),
            "window_positions": float(self.window_positions),
            "seconds": self.seconds,
            "games_per_hour": self.finished.num_rows * 3600 / self.seconds,
            "moves_per_s": moves / self.seconds,
            "simulations_per_s": simulations / self.seconds,
            "evaluations_per_s": evaluations / self.seconds,
            "batch_fill": evaluations / max(1.0, batches * self.batch_size),
        }
        if self.has_cache:
            figures["cached_share"] = cached / max(1.0, cached + evaluations)
        services.metrics.write("self_play", step, figures)
        text = describe(figures) if self.finished.num_rows else "no game has ended yet"
        services.console.say(
            f"generation {self.generation} | {text} | {self.seconds:.0f} s, "
            f"{figures['games_per_hour']:,.0f} games/hour, {evaluations / self.seconds:,.0f} evaluations/s"
            + (f", {figures['cached_share']:.0%} of the positions from the cache" if self.has_cache else "")
            + " | "
            + ("" if busy is None else f"GPUs busy {busy:.0%} | ")
            + f"window {self.window_positions:,} positions"
        )
        services.alarms.look_at_generation(figures, busy)
