"""A rank's sign of life: one small file per rank that a supervisor can read at any moment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

SHORTEST_INTERVAL_S = 1.0
# A name of its own for each start of a job, in the environment of all its processes. It tells what ranks say
# now from what an earlier start left behind, which no clock does that can be set.
JOB_VARIABLE = "ALPHAZERO_JOB"


class Phase(str, Enum):
    """What a rank is doing; each has its own limit on how long nothing may move (hang_watch.py)."""

    START = "start"
    DATA = "data"  # made, imported, or brought together from all ranks
    STEP = "step"
    PLAN = "plan"  # the first step of a new plan: compiled, tuned, perhaps cut again
    VALIDATE = "validate"
    CHECKPOINT = "checkpoint"
    SELF_PLAY = "self-play"
    GATE = "gate"
    END = "end"


@dataclass(frozen=True)
class Heartbeat:
    """What a rank said last.

    progress: grows while things move within the phase. changes: how often phase, step or progress had changed
    since the rank began, so that nothing that moves ever looks the same twice. job: see JOB_VARIABLE, "" for
    a rank that nobody supervises. There is no time in it: who reads it notes by its own clock what changes.
    """

    rank: int
    host: str
    pid: int
    job: str
    step: int
    phase: Phase
    progress: int
    changes: int


class HeartbeatWriter:
    """Writes `directory`/rank-NNNNN.json, at most once per second unless the phase changes.

    job: by default what the environment says. clock: seconds that are never set back.
    """

    def __init__(
        self,
        directory: Path,
        rank: int,
        host: str,
        job: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"rank-{rank:05d}.json"
        self._rank = rank
        self._host = host
        self._job = os.environ.get(JOB_VARIABLE, "") if job is None else job
        self._clock = clock
        self._last: tuple[Phase, int, int] | None = None
        self._changes = 0
        self._written_at = 0.0

    def beat(self, phase: Phase, step: int, progress: int = 0) -> None:
        """Say that this rank is in `phase` of step `step`; `progress` grows while things move within it."""
        is_new_phase = self._last is None or self._last[0] is not phase
        if self._last != (phase, step, progress):
            self._last = (phase, step, progress)
            self._changes += 1
        now = self._clock()
        if not is_new_phase and now - self._written_at < SHORTEST_INTERVAL_S:
            return
        self._written_at = now
        said = Heartbeat(self._rank, self._host, os.getpid(), self._job, step, phase, progress, self._changes)
        # No fsync: a heartbeat matters only while the machine runs.
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(said)), encoding="utf-8")
        temporary.replace(self._path)


def read_heartbeats(directory: Path) -> list[Heartbeat]:
    """What every rank said last, by rank; files of another version of this program are left out."""
    found = (_read(path) for path in sorted(directory.glob("rank-*.json")))
    return [beat for beat in found if beat is not None]


def _read(path: Path) -> Heartbeat | None:
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Heartbeat(**{**told, "phase": Phase(told["phase"])})
    except (OSError, ValueError, TypeError, KeyError):  # removed at this moment, or older than phases
        return None
