"""Starts the processes of `bench scaling` on this machine and collects what they measured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from alphazero.base.errors import TrainingError
from alphazero.base.text import counted, shortened

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = "benchmarks.scaling_parts.rank"
ALONE, TOGETHER = "alone", "together"
OUTER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# Order, number of ranks -> the figures of each.
RunRanks = Callable[[Mapping[str, Any], int], list[dict[str, Any]]]


@dataclass(frozen=True)
class Local:
    """Ranks of this machine. limit_s: after so long a group counts as stuck."""

    device: str
    limit_s: float

    def __call__(self, order: Mapping[str, Any], ranks: int) -> list[dict[str, Any]]:
        """Run one process per rank to its end. Raises TrainingError where one fails, with its last words."""
        port = free_port()
        environments = [environment(self.device, order["what"], rank, ranks, port) for rank in range(ranks)]
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            place = Path(directory)
            processes: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
            for rank, variables in enumerate(environments):
                log = stack.enter_context((place / f"log-{rank}").open("w+b"))
                processes.append((start(place, order, rank, variables, log), log))
                stack.callback(processes[-1][0].kill)  # what is left when one has failed
            wait_for_all(processes, order["what"], self.limit_s)
            return [results(place, rank) for rank in range(ranks)]


def start(
    place: Path,
    order: Mapping[str, Any],
    rank: int,
    variables: Mapping[str, str],
    log: IO[bytes],
    through: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start one rank; its order and its result lie in `place`. through: a program that runs it elsewhere."""
    path = place / "order.json"
    path.write_text(json.dumps(order), encoding="utf-8")
    argv = [sys.executable, "-m", PROGRAM, str(path), str(place / f"result-{rank}.json")]
    return subprocess.Popen(
        [*through, *argv], env=dict(variables), stdout=log, stderr=log, stdin=subprocess.DEVNULL
    )


def results(place: Path, rank: int) -> dict[str, Any]:
    """What a rank measured."""
    found: dict[str, Any] = json.loads((place / f"result-{rank}.json").read_text(encoding="utf-8"))
    return found


def environment(device: str, what: str, rank: int, ranks: int, port: int) -> dict[str, str]:
    """Of one rank: torchrun's variables in a group, a device of its own beside others."""
    kept = {name: value for name, value in os.environ.items() if name not in OUTER}
    path = os.pathsep.join(filter(None, (str(CHECKOUT), kept.get("PYTHONPATH", ""))))
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": kept.get("OMP_NUM_THREADS", "1")}
    if what == ALONE:
        if device != "cuda":
            return {**kept, **own}
        visible = kept.get("CUDA_VISIBLE_DEVICES", "").split(",")
        return {**kept, **own, "CUDA_VISIBLE_DEVICES": visible[rank] if visible[0] else str(rank)}
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    interfaces = {name: kept.get(name, "lo") for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    return {**kept, **own, **{name: str(value) for name, value in place.items()}, **meeting, **interfaces}


def wait_for_all(
    processes: list[tuple[subprocess.Popen[bytes], IO[bytes]]], what: str, limit_s: float
) -> None:
    """Until all have ended well. Raises TrainingError for the first that did not, or when time is up."""
    deadline = time.monotonic() + limit_s
    running = dict(enumerate(processes))
    while running:
        for rank, (process, log) in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[rank]
            if status:
                told = f"exit status {status}{last_words(log)}"
                raise TrainingError(f"bench scaling: rank {rank} ({what}): {told}")
        if running and time.monotonic() > deadline:
            names = ", ".join(map(str, running))
            raise TrainingError(
                f"bench scaling: rank {names} ({what}): not done after {counted(round(limit_s), 'second')}"
            )
        time.sleep(0.05)


def last_words(log: IO[bytes]) -> str:
    """The last line that a process wrote, after a colon."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return f": {shortened(lines[-1])}" if lines else ""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
