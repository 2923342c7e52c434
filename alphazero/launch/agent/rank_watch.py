"""How far the ranks of this host are: heartbeats, process states, the newest checkpoint."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from alphazero.launch.agent.processes import ranks_of
from alphazero.launch.agent.protocol import Beat, RankState
from alphazero.run.checkpoint_files import PREFIX, checkpoints_in
from alphazero.run.rank import Heartbeat, Phase, read_heartbeats

NUM_TIMED = 20
STATE_LETTERS = {"stopped": "T", "tracing-stop": "T", "disk-sleep": "D", "zombie": "Z", "dead": "X"}


@dataclass
class _Progress:
    """A rank as its heartbeats show it, timed by the clock of this process alone."""

    beat: Heartbeat  # the last one
    changed_at: float
    stepped_at: float | None = None
    step_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_TIMED))
    was_seen: bool = False
    gone_at: float | None = None  # when its process was first missed

    def update(self, beat: Heartbeat, now: float) -> None:
        if (beat.pid, beat.changes) == (self.beat.pid, self.beat.changes):  # nothing has moved
            return
        if beat.phase is Phase.PLAN:
            # Steps of another plan took other times, and this one's first is no measure.
            self.step_times_s.clear()
            self.stepped_at = None
        if beat.step > self.beat.step:
            # Time between checkpoints or validations is no measure of a step.
            if self.stepped_at is not None and beat.phase is self.beat.phase is Phase.STEP:
                self.step_times_s.append((now - self.stepped_at) / (beat.step - self.beat.step))
            self.stepped_at = now
        self.beat, self.changed_at = beat, now

    def note_process(self, is_there: bool, now: float) -> None:
        if is_there and not self.was_seen:
            self.changed_at = now  # until now its launcher waited for other nodes
        self.was_seen = self.was_seen or is_there
        if self.was_seen and not is_there and self.gone_at is None:
            self.gone_at = now


class RankWatch:
    """Follows the ranks first_rank ... first_rank + num_ranks - 1 of one start of a job."""

    def __init__(
        self,
        run_directory: Path,
        first_rank: int,
        num_ranks: int,
        token: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """token: of the job (JOB_VARIABLE), "" for ranks that no launcher of ours started."""
        self._heartbeats = run_directory / "heartbeat"
        self._checkpoints = run_directory / "checkpoints"
        self._first_rank = first_rank
        self._token = token
        self._clock = clock
        nothing = Heartbeat(0, "", 0, token, -1, Phase.START, 0, 0)
        ranks = range(first_rank, first_rank + num_ranks)
        self._progress = {rank: _Progress(nothing, clock()) for rank in ranks}

    def look(self) -> Beat:
        """The ranks as they are now."""
        now = self._clock()
        pids = {}
        for beat in read_heartbeats(self._heartbeats):
            if beat.rank not in self._progress or beat.job != self._token:  # what an earlier start left
                continue
            self._progress[beat.rank].update(beat, now)
            pids[beat.rank - self._first_rank] = beat.pid
        processes = ranks_of(self._token) if self._token else alive(pids)
        states = []
        for rank, progress in self._progress.items():
            process = processes.get(rank - self._first_rank)
            progress.note_process(process is not None, now)
            letter = ""
            if process is not None:
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
        return Beat(tuple(states), self.newest_checkpoint())

    def all_have_ended(self) -> bool:
        """True where every rank's last word was that its work is over and saved."""
        self.look()
        return all(progress.beat.phase is Phase.END for progress in self._progress.values())

    def seconds_since_end(self, rank: int) -> float | None:
        """How long ago the process of a rank was first missed; None while it runs or before it began."""
        gone_at = self._progress[rank].gone_at if rank in self._progress else None
        return None if gone_at is None else self._clock() - gone_at

    def newest_checkpoint(self) -> int:
        """Step of the newest one whose directory has its final name; -1 where there is none."""
        with contextlib.suppress(OSError):
            names = [path.name for path in checkpoints_in(self._checkpoints)]
            return max((int(name.removeprefix(PREFIX)) for name in names), default=-1)
        return -1


def alive(pids: Mapping[int, int]) -> dict[int, psutil.Process]:
    """The processes that there are, by local rank."""
    found = {}
    for local_rank, pid in pids.items():
        with contextlib.suppress(psutil.Error):
            found[local_rank] = psutil.Process(pid)
    return found
