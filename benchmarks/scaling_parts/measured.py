"""Weak and strong scaling as it is here, beside what the model says from the parts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scaling_parts.model import OwnSteps, interpolated_s, step_s
from benchmarks.scaling_parts.start import ALONE, TOGETHER, RunRanks

BYTES_OF_A_GRADIENT = 4


@dataclass(frozen=True)
class Job:
    """What is trained: weak scaling has `positions` a rank, strong scaling as many over all."""

    blocks: int
    filters: int
    precision: str
    positions: int
    micro_batch: int
    steps: int
    rounds: int
    threads: int
    num_parameters: int

    @property
    def gradient_bytes(self) -> int:
        """What ranks exchange in a step."""
        return self.num_parameters * BYTES_OF_A_GRADIENT

    def sizes(self, counts: Sequence[int]) -> list[int]:
        """Positions a rank has in any of the runs, and one size between for the model."""
        return sorted({self.positions, *(self.positions // count for count in (*counts, 2 * counts[-1]))})


def measure(job: Job, device: str, counts: Sequence[int], run: RunRanks) -> dict[str, Any]:
    """Parts and whole steps for each number of ranks (the first is 1), turn and turn about in rounds."""
    order = {
        "device": device,
        "blocks": job.blocks,
        "filters": job.filters,
        "precision": job.precision,
        "micro_batch": job.micro_batch,
        "steps": job.steps,
        "threads": job.threads,
        "gradient_bytes": job.gradient_bytes,
    }
    found: dict[str, Any] = {"parts": [], "scaling": []}
    for ranks in counts:
        batches = sorted({job.positions * ranks, job.positions})
        lone, groups = [], []
        for _ in range(job.rounds):
            lone += run({**order, "what": ALONE, "sizes": job.sizes(counts)}, ranks)
            groups.append(run({**order, "what": TOGETHER, "batches": batches}, ranks)[0])
        found.setdefault("machine", lone[0]["machine"])
        own, group = own_steps(lone, job.positions), medians(groups)
        found["parts"].append(parts(ranks, own, group))
        found["scaling"] += compare(job, ranks, own, group)
    add_speedups(found["scaling"])
    return found


def medians(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the same figures of several rounds."""

    def by_size(name: str) -> list[tuple[int, float]]:
        rows = zip(*(one[name] for one in groups), strict=True)
        return [(row[0][0], statistics.median(seconds for _, seconds in row)) for row in rows]

    return {
        "all_reduce": by_size("all_reduce"),
        "message_s": statistics.median(one["message_s"] for one in groups),
        "steps": dict(by_size("steps")),
    }


def own_steps(lone: Sequence[Mapping[str, Any]], positions: int) -> OwnSteps:
    """Of ranks that trained side by side and exchanged nothing; their spread at the usual size."""
    by_size: dict[int, list[float]] = {}
    spreads = []
    for rank in lone:
        for step in rank["steps"]:
            by_size.setdefault(step["positions"], []).append(step["seconds"])
            if step["positions"] == positions:
                spreads.append(step["spread"])
    seconds = {size: statistics.median(times) for size, times in by_size.items()}
    return OwnSteps(seconds, statistics.median(spreads))


def parts(ranks: int, own: OwnSteps, group: Mapping[str, Any]) -> dict[str, Any]:
    """What the model is given for so many ranks."""
    return {
        "ranks": ranks,
        "own_steps_s": {str(size): seconds for size, seconds in sorted(own.seconds_by_positions.items())},
        "spread": own.spread,
        "launch_floor_s": min(own.seconds_by_positions.values()),
        "all_reduce_s": {str(size): seconds for size, seconds in group["all_reduce"]},
        "message_s": group["message_s"],
    }


def compare(job: Job, ranks: int, own: OwnSteps, group: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Weak and strong steps: predicted from the parts of so many ranks, and measured."""
    exchange_s = 0.0
    if ranks > 1:
        sizes = sorted((int(size), seconds) for size, seconds in group["all_reduce"])
        exchange_s = interpolated_s(sizes, job.gradient_bytes) + group["message_s"]
    measured = group["steps"]
    rows = []
    for kind, batch in (("weak", job.positions * ranks), ("strong", job.positions)):
        predicted_s = step_s(own, batch // ranks, ranks, exchange_s)
        rows.append(
            {
                "kind": kind,
                "ranks": ranks,
                "batch": batch,
                "positions_per_rank": batch // ranks,
                "measured_s": measured[batch],
                "predicted_s": predicted_s,
                "measured_to_predicted": measured[batch] / predicted_s,
                "positions_per_s": batch / measured[batch],
            }
        )
    return rows


def add_speedups(rows: Sequence[dict[str, Any]]) -> None:
    """Positions/s against one rank's in the same kind of scaling, as measured and as predicted."""
    for row in rows:
        single = next(other for other in rows if other["kind"] == row["kind"] and other["ranks"] == 1)
        row["speedup"] = row["positions_per_s"] / single["positions_per_s"]
        predicted = row["batch"] / row["predicted_s"]
        row["predicted_speedup"] = predicted / (single["batch"] / single["predicted_s"])
