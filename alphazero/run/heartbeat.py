"""A rank's sign of life: one small file a rank that a supervisor can read at any moment."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

SHORTEST_INTERVAL_S = 1.0


class Phase(str, Enum):
    """What a rank is doing."""

    START = "start"
    DATA = "data"
    STEP = "step"
    PLAN = "plan"  # the first step of a plan: compiled, tuned, perhaps cut again
    VALIDATE = "validate"
    CHECKPOINT = "checkpoint"
    SELF_PLAY = "self-play"
    GATE = "gate"
    END = "end"


@dataclass(frozen=True)
class Heartbeat:
    """What a rank said last: its step, what it is doing, when (seconds since the epoch)."""

    rank: int
    host: str
    pid: int
    step: int
    phase: str
    time_s: float
    progress: int = 0  # within the phase, such as the moves of self-play


class HeartbeatWriter:
    """Writes `directory`/rank-NNNNN.json, at most once a second unless the phase changes."""

    def __init__(self, directory: Path, rank: int, host: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"rank-{rank:05d}.json"
        self._rank = rank
        self._host = host
        self._last = Heartbeat(rank, host, os.getpid(), -1, "", 0.0)

    def beat(self, phase: Phase, step: int, progress: int = 0) -> None:
        """Say that step `step` is in `phase`, `progress` of it done."""
        now = time.time()
        if phase.value == self._last.phase and now - self._last.time_s < SHORTEST_INTERVAL_S:
            return
        self._last = Heartbeat(self._rank, self._host, os.getpid(), step, phase.value, now, progress)
        # No fsync: a heartbeat matters only while the machine runs.
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self._last)), encoding="utf-8")
        temporary.replace(self._path)


def read_heartbeats(directory: Path) -> list[Heartbeat]:
    """What every rank said last, by rank."""
    paths = sorted(directory.glob("rank-*.json"))
    return [Heartbeat(**json.loads(path.read_text(encoding="utf-8"))) for path in paths]
