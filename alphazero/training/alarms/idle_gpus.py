"""GPUs that are idle, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping

from alphazero.training.alarms.alarm import Alarm
from alphazero.training.usage.time_shares import Cause

CAUSE = "idle-gpus"
BUSY_ENOUGH = 0.8

ADVICE = {
    Cause.DATA: "more loader threads (--num-workers), a faster disk for the data, or fewer ranks per host",
    Cause.COMMUNICATION: "a larger --batch-size, and the preflight's table of slow links",
    Cause.HOST: "larger micro-batches (--micro-batch-size) or --compile, and nothing else on these cores",
    Cause.CHECKPOINT: "a longer --checkpoint-interval",
    Cause.SELF_PLAY: "more games at a time (--lanes), a larger --evaluation-batch, more cores per GPU",
}


def look_at_gpus(busy: float, waits: Mapping[Cause, float], where: str = "") -> list[Alarm]:
    """Judge an interval: `busy` of it the GPUs computed, and `waits` took these shares of it.

    where: whose shares these are, as " on rank 3".
    """
    if busy >= BUSY_ENOUGH:
        return []
    longest = max(waits, key=lambda one: waits[one])
    return [
        Alarm(
            CAUSE,
            f"the GPUs were busy {busy:.0%} of the time, below {BUSY_ENOUGH:.0%}: they wait for "
            f"{longest.value} ({waits[longest]:.0%} of the time{where})",
            ADVICE[longest],
            reason=longest.value,
        )
    ]
