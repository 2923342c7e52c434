"""A rank for whom all others wait: by its own work for each micro-batch, communication left out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from alphazero.training.alarms.alarm import Alarm

CAUSE = "slow-rank"
# Times the median of the other ranks, as the preflight's straggler_ratio_warn.
MOST_RATIO = 1.5
# Per micro-batch: shorter differences are noise, as the preflight's straggler_floor_ms.
LEAST_SECONDS = 0.002


def look_at_ranks(work_s_R: Sequence[float], passes_R: Sequence[int], hosts_R: Sequence[str]) -> list[Alarm]:
    """The slowest rank where it is much slower than the others.

    work_s_R: seconds of the interval that each rank spent on passes, on its loader and between them.
    passes_R: micro-batches of a rank in it (unequal weights mean unequal numbers).
    """
    if len(work_s_R) < 2 or not all(passes_R):
        return []
    per_pass_R = [seconds / passes for seconds, passes in zip(work_s_R, passes_R, strict=True)]
    slowest = max(range(len(per_pass_R)), key=lambda rank: per_pass_R[rank])
    others = statistics.median(per_pass_R[:slowest] + per_pass_R[slowest + 1 :])
    own = per_pass_R[slowest]
    if own < MOST_RATIO * others or own - others < LEAST_SECONDS:
        return []
    host = hosts_R[slowest]
    return [
        Alarm(
            CAUSE,
            f"rank {slowest} on {host} takes {1000 * own:,.0f} ms per micro-batch, {own / others:.1f} times "
            f"the median of the other ranks ({1000 * others:,.0f} ms), and all of them wait for it",
            f"look at {host}: other programs (top), heat and clocks (alphazero health), a slow disk under "
            "the data; or give its ranks a smaller share with --host-weights",
            subject=f"rank {slowest}",
        )
    ]
