"""When a job stands still, and which rank holds it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.cluster.agent.protocol import RankState
from alphazero.cluster.plan.launch_plan import Limits

# A stopped process, then one that waits for a device or disk that does not answer, then any other.
SUSPICION = {"T": 0, "D": 1}


@dataclass(frozen=True)
class Hang:
    """The rank that holds the others up, and how long nothing has moved."""

    state: RankState
    limit_s: float

    @property
    def fate(self) -> str:
        """For people."""
        if self.state.phase == "end" and not self.state.pid:
            return f"has ended, but its launcher still waits for other hosts after {self.state.age_s:.0f} s"
        where = f"step {self.state.step} ({self.state.phase})" if self.state.phase else "start"
        process = {"T": ", its process is stopped", "D": ", its process hangs in the system"}
        how = process.get(self.state.state, "")
        return f"(pid {self.state.pid}) stands still in {where} for {self.state.age_s:.0f} s{how}"


def find_hang(states: Sequence[RankState], limits: Limits) -> Hang | None:
    """The rank to blame when some rank is beyond its limit; None while all move.

    Ranks wait for each other, so all stand still when one does: blamed is the one whose process is stopped,
    else the one that is behind, else the one that has been silent for longest.
    """
    median_s = max((state.median_step_s for state in states), default=0.0)
    exceeded = [limit for state in states if state.age_s > (limit := _limit(state, median_s, limits))]
    if not exceeded:
        return None
    culprit = min(states, key=lambda state: (SUSPICION.get(state.state, 2), state.step, -state.age_s))
    return Hang(culprit, min(exceeded))


def _limit(state: RankState, median_s: float, limits: Limits) -> float:
    if state.phase in ("validate", "checkpoint"):
        limit = limits.pause_s
    elif state.phase == "end":
        limit = limits.shutdown_s if state.pid else limits.exit_s
    elif state.phase in ("step", "data") and median_s:
        limit = max(limits.step_s, limits.step_medians * median_s)
    else:
        limit = limits.start_s
    return min(limit, max(limits.step_s, limits.step_medians * median_s)) if state.state == "T" else limit
