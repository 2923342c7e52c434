"""When a job stands still, and which rank holds it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alphazero.cluster.agent.protocol import RankState
from alphazero.cluster.plan.launch_plan import Limits
from alphazero.run.heartbeat import Phase

# A stopped process, then one that waits for a device or disk that does not answer, then any other.
STOPPED = "T"
SUSPICION = {STOPPED: 0, "D": 1}
# How long a phase may last, or, where its progress is told, stand still. Steps and the end have rules of
# their own below.
LIMITS: dict[Phase, Callable[[Limits], float]] = {
    Phase.START: lambda limits: limits.start_s,
    Phase.PLAN: lambda limits: limits.start_s,
    Phase.DATA: lambda limits: limits.pause_s,
    Phase.VALIDATE: lambda limits: limits.pause_s,
    Phase.CHECKPOINT: lambda limits: limits.pause_s,
    Phase.SELF_PLAY: lambda limits: limits.games_s,
    Phase.GATE: lambda limits: limits.games_s,
}


@dataclass(frozen=True)
class Hang:
    """The rank that holds the others up."""

    state: RankState

    @property
    def fate(self) -> str:
        """For people."""
        state = self.state
        if state.phase is Phase.END and not state.pid:
            return f"has ended, but its launcher still waits for other hosts after {state.age_s:.0f} s"
        how_far = f", progress {state.progress}" if state.progress else ""
        where = f"step {state.step} ({state.phase.value}{how_far})" if state.step >= 0 else "start"
        process = {STOPPED: ", its process is stopped", "D": ", its process hangs in the system"}
        how = process.get(state.state, "")
        return f"(pid {state.pid}) stands still in {where} for {state.age_s:.0f} s{how}"


def find_hang(states: Sequence[RankState], limits: Limits) -> Hang | None:
    """The rank to blame when no rank is within its limit, or a stopped one is not; None while the job moves.

    Ranks wait for each other: all stand still when one does, and a rank beyond its limit may have every
    right to wait for one that is not, such as one that still plays its games or writes a checkpoint. Blamed
    is the one whose process is stopped, else the one that is behind, else the one silent for longest.
    """
    median_s = max((state.median_step_s for state in states), default=0.0)
    limit_of = {state.rank: _limit(state, median_s, limits) for state in states}
    exceeded = [state for state in states if state.age_s > limit_of[state.rank]]
    is_stopped = any(state.state == STOPPED for state in exceeded)
    if not exceeded or (len(exceeded) < len(states) and not is_stopped):
        return None
    culprit = min(exceeded, key=lambda state: (SUSPICION.get(state.state, 2), state.step, -state.age_s))
    return Hang(culprit)


def _limit(state: RankState, median_s: float, limits: Limits) -> float:
    step_s = max(limits.step_s, limits.step_medians * median_s)
    if state.phase is Phase.END:
        limit = limits.shutdown_s if state.pid else limits.exit_s
    elif state.phase is Phase.START and not state.pid:
        # Its launcher waits for other nodes as long as that, and says for whom.
        limit = limits.start_s + limits.shutdown_s
    elif state.phase is Phase.STEP:
        limit = step_s if median_s else limits.start_s
    else:
        limit = LIMITS[state.phase](limits)
    return min(limit, step_s) if state.state == STOPPED else limit
