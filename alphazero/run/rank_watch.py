"""How far the ranks of a host are by their heartbeats and processes, and which one holds up the job.

`RankWatch` is used by the node agent of a host, and by the ranks themselves where no agent watches them.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from alphazero.run.checkpoint_files import PREFIX, checkpoints_in
from alphazero.run.rank import Heartbeat, Phase, read_heartbeats

NUM_TIMED = 20
STATE_LETTERS = {"stopped": "T", "tracing-stop": "T", "disk-sleep": "D", "zombie": "Z", "dead": "X"}


@dataclass(frozen=True)
class RankState:
    """A rank as its host sees it: its last heartbeat (step -1, START before the first), its process.

    age_s: since step, phase or progress last changed, by the agent's clock. median_step_s: 0 until steps have
    been timed. state: of the process, a letter as in ps ("T" stopped, "D" in an uninterruptible call, "" gone
    or not yet there).
    """

    rank: int
    step: int
    phase: Phase
    progress: int
    age_s: float
    median_step_s: float
    pid: int
    state: str


@dataclass
class _Progress:
    """A rank as its heartbeats show it, timed by the clock of this process alone."""

    beat: Heartbeat  # the last one
    changed_at: float
    stepped_at: float | None = None
    step_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_TIMED))
    was_seen: bool = False

    def update(self, beat: Heartbeat, now: float) -> None:
        if (beat.pid, beat.changes) == (self.beat.pid, self.beat.changes):  # nothing has moved
            return
        if beat.phase is Phase.PLAN:
            # Steps of another plan took other times, and the first of this plan is not representative.
            self.step_times_s.clear()
            self.stepped_at = None
        if beat.step > self.beat.step:
            # The time between checkpoints or validations does not measure a step.
            if self.stepped_at is not None and beat.phase is self.beat.phase is Phase.STEP:
                self.step_times_s.append((now - self.stepped_at) / (beat.step - self.beat.step))
            self.stepped_at = now
        self.beat, self.changed_at = beat, now


class RankWatch:
    """Follows the ranks first_rank ... first_rank + num_ranks - 1 of one start of a job."""

    def __init__(
        self,
        run_directory: Path,
        first_rank: int,
        num_ranks: int,
        token: str,
        clock: Callable[[], float],
        find_ranks: Callable[[], Mapping[int, psutil.Process]] | None = None,
    ) -> None:
        """token: of the job (JOB_VARIABLE), "" for ranks that no launcher of ours started.

        find_ranks: the processes by local rank, also of ranks that have not reported yet; by default those
        that have.
        """
        self._heartbeats = run_directory / "heartbeat"
        self._checkpoints = run_directory / "checkpoints"
        self._first_rank = first_rank
        self._token = token
        self._find_ranks = find_ranks
        self._clock = clock
        nothing = Heartbeat(0, "", 0, token, -1, Phase.START, 0, 0)
        ranks = range(first_rank, first_rank + num_ranks)
        self._progress = {rank: _Progress(nothing, clock()) for rank in ranks}

    def look(self) -> tuple[RankState, ...]:
        """The ranks as they are now."""
        now = self._clock()
        processes: dict[int, psutil.Process] = {}
        for beat in read_heartbeats(self._heartbeats):
            if beat.rank not in self._progress or beat.job != self._token:  # what an earlier start left
                continue
            self._progress[beat.rank].update(beat, now)
            with contextlib.suppress(psutil.Error):  # it has ended
                processes[beat.rank - self._first_rank] = psutil.Process(beat.pid)
        if self._find_ranks is not None:
            processes = dict(self._find_ranks())
        states = []
        for rank, progress in self._progress.items():
            process = processes.get(rank - self._first_rank)
            letter = ""
            if process is not None:
                if not progress.was_seen:
                    progress.changed_at = now  # until now its launcher waited for other nodes
                progress.was_seen = True
                with contextlib.suppress(psutil.Error):
                    letter = STATE_LETTERS.get(process.status(), "S")
            times = progress.step_times_s
            states.append(
                RankState(
                    rank=rank,
                    step=progress.beat.step,
                    phase=progress.beat.phase,
                    progress=progress.beat.progress,
                    age_s=round(now - progress.changed_at, 3),
                    # The first step compiles and tunes: a few say little.
                    median_step_s=statistics.median_high(times) if times else 0.0,
                    pid=process.pid if process else 0,
                    state=letter,
                )
            )
        return tuple(states)

    def all_have_ended(self) -> bool:
        """True where every rank's last word was that its work is over and saved."""
        self.look()
        return all(progress.beat.phase is Phase.END for progress in self._progress.values())

    def newest_checkpoint(self) -> int:
        """Step of the newest one whose directory has its final name; -1 where there is none."""
        with contextlib.suppress(OSError):
            names = [path.name for path in checkpoints_in(self._checkpoints)]
            return max((int(name.removeprefix(PREFIX)) for name in names), default=-1)
        return -1


@dataclass(frozen=True)
class Limits:
    """How long a rank may go without a sign of progress, in seconds.

    step_s: between steps, or step_medians median step times where that is more. start_s: until steps have
    been timed (imports, compilation, another plan). pause_s: validation, checkpoint, data made or brought
    together. games_s: between two batches of self-play or of the gate's games, which take seconds on the
    slowest CPU. shutdown_s: from a rank's last message to the end of its process, which waits for uploads.
    exit_s: from there to the end of the launcher above it, which waits for other hosts. silence_s: until a
    silent host or head counts as lost.
    """

    step_s: float = 60.0
    step_medians: float = 10.0
    start_s: float = 1800.0
    pause_s: float = 600.0
    games_s: float = 300.0
    shutdown_s: float = 60.0
    exit_s: float = 20.0
    silence_s: float = 10.0


# A stopped process, then one that waits for a device or disk that does not answer, then any other.
STOPPED = "T"
SUSPICION = {STOPPED: 0, "D": 1}
# How long a phase may last, or, where it reports progress, stand still: the flag that lengthens it, and the
# limit. Steps and the end have rules of their own below.
LIMITS: dict[Phase, tuple[str, str]] = {
    **dict.fromkeys((Phase.START, Phase.PLAN), ("--start-timeout", "start_s")),
    **dict.fromkeys((Phase.DATA, Phase.VALIDATE, Phase.CHECKPOINT), ("--hang-timeout", "pause_s")),
    **dict.fromkeys((Phase.SELF_PLAY, Phase.GATE), ("--hang-timeout", "games_s")),
}


@dataclass(frozen=True)
class Hang:
    """The rank that holds the others up. flag: of the limit that it went beyond."""

    state: RankState
    flag: str

    @property
    def fate(self) -> str:
        """The end of a line of the log: what the rank was doing and for how long nothing moved."""
        state = self.state
        if state.phase is Phase.END and not state.pid:
            return f"has ended, but its launcher still waits for other hosts after {state.age_s:.0f} s"
        how_far = f", progress {state.progress}" if state.progress else ""
        where = f"step {state.step} ({state.phase.value}{how_far})" if state.step >= 0 else f"start{how_far}"
        process = {STOPPED: ", its process is stopped", "D": ", its process hangs in the system"}
        how = process.get(state.state, "")
        return f"(pid {state.pid}) stands still in {where} for {state.age_s:.0f} s{how}"

    @property
    def expected(self) -> str:
        """What would have kept the job alive; "" where that is clear."""
        if self.state.state == STOPPED or (self.state.phase is Phase.END and not self.state.pid):
            return ""
        is_start = self.state.phase is Phase.START
        advice = ", or `alphazero data import` before the job" if is_start else ""
        return f"; expected a sign of progress, or a larger {self.flag}{advice}"


def find_hang(states: Sequence[RankState], limits: Limits) -> Hang | None:
    """The rank to blame when no rank is within its limit, or a stopped one is not; None while the job moves.

    Ranks wait for each other: all stand still when one does, and a rank beyond its limit may have every
    right to wait for one that is not, such as one that still plays its games or writes a checkpoint. Blamed
    is the rank whose process is stopped, else that which is behind, else that silent for longest.
    """
    median_s = max((state.median_step_s for state in states), default=0.0)
    limit_of = {state.rank: _limit(state, median_s, limits) for state in states}
    exceeded = [state for state in states if state.age_s > limit_of[state.rank][1]]
    is_stopped = any(state.state == STOPPED for state in exceeded)
    if not exceeded or (len(exceeded) < len(states) and not is_stopped):
        return None
    culprit = min(exceeded, key=lambda state: (SUSPICION.get(state.state, 2), state.step, -state.age_s))
    return Hang(culprit, limit_of[culprit.rank][0])


def _limit(state: RankState, median_s: float, limits: Limits) -> tuple[str, float]:
    """The limit of a rank in seconds, and its flag."""
    step_s = max(limits.step_s, limits.step_medians * median_s)
    if state.phase is Phase.END:
        limit = "--hang-timeout", limits.shutdown_s if state.pid else limits.exit_s
    elif state.phase is Phase.START and not state.pid:
        # Its launcher waits for other nodes as long as that, and reports which.
        limit = "--start-timeout", limits.start_s + limits.shutdown_s
    elif state.phase is Phase.STEP:
        limit = ("--hang-timeout", step_s) if median_s else ("--start-timeout", limits.start_s)
    else:
        flag, name = LIMITS[state.phase]
        limit = flag, getattr(limits, name)
    return ("--hang-timeout", min(limit[1], step_s)) if state.state == STOPPED else limit
