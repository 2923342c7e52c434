"""How far the ranks of this host are: heartbeats, process states, the newest checkpoint."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from alphazero.cluster.agent.processes import ranks_of
from alphazero.cluster.agent.protocol import Beat, RankState
from alphazero.run.heartbeat import Heartbeat, read_heartbeats

NUM_TIMED = 20
CHECKPOINT = re.compile(r"step-(\d+)")
STATE_LETTERS = {"stopped": "T", "tracing-stop": "T", "disk-sleep": "D", "zombie": "Z", "dead": "X"}


@dataclass
class _Progress:
    step: int = -1
    phase: str = ""
    changed_at: float = field(default_factory=time.monotonic)
    stepped_at: float | None = None
    step_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_TIMED))

    def update(self, beat: Heartbeat, now: float) -> None:
        if (beat.step, beat.phase) == (self.step, self.phase):
            return
        if beat.step > self.step:
            # Time between checkpoints or validations says nothing about a step.
            if self.stepped_at is not None and {beat.phase, self.phase} <= {"step", "data"}:
                self.step_times_s.append((now - self.stepped_at) / (beat.step - self.step))
            self.stepped_at = now
        self.step, self.phase, self.changed_at = beat.step, beat.phase, now


class RankWatch:
    """Follows the ranks first_rank ... first_rank + num_ranks - 1 of one start of a job."""

    def __init__(self, run_directory: Path, first_rank: int, num_ranks: int, token: str) -> None:
        self._heartbeats = run_directory / "heartbeat"
        self._checkpoints = run_directory / "checkpoints"
        self._first_rank = first_rank
        self._token = token
        self._progress = {first_rank + local: _Progress() for local in range(num_ranks)}
        self._started_s = time.time()

    def look(self) -> Beat:
        """The ranks as they are now."""
        now = time.monotonic()
        # What an earlier start left is older than this one.
        for beat in self._read():
            if beat.rank in self._progress and beat.time_s >= self._started_s:
                self._progress[beat.rank].update(beat, now)
        processes = ranks_of(self._token)
        states = []
        for rank, progress in self._progress.items():
            process = processes.get(rank - self._first_rank)
            letter = ""
            if process is not None:
                with contextlib.suppress(psutil.Error):
                    letter = STATE_LETTERS.get(process.status(), "S")
            times = progress.step_times_s
            states.append(
                RankState(
                    rank=rank,
                    step=progress.step,
                    phase=progress.phase,
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
        return all(progress.phase == "end" for progress in self._progress.values())

    def _read(self) -> list[Heartbeat]:
        try:
            return read_heartbeats(self._heartbeats)
        except (OSError, ValueError, TypeError):  # being removed, or of another version: looked at again
            return []

    def newest_checkpoint(self) -> int:
        """Step of the newest one whose directory has its final name; -1 where there is none."""
        try:
            names = [path.name for path in self._checkpoints.iterdir()]
        except OSError:
            return -1
        return max((int(found[1]) for name in names if (found := CHECKPOINT.fullmatch(name))), default=-1)
