"""`python -m tests.support.actors.speeds`: what actors play together and alone, and how long a learner waits.

Connect Four on the CPU, two cores. Each actor has a share of one core's time, a part of every second in which
no other actor runs there: its process is stopped and continued, as cgroups can rarely be written. Positions
count by processor time as well: on a busy machine the clock says little.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from alphazero.play.actors.shard import ShardName, read_shard
from alphazero.play.lanes import num_trained_positions

PERIOD_S = 1.0
# Of the time of the first core and of the second one; 1.8 cores but for a lone actor.
SHARES = {1: ((1.0,), ()), 2: ((1.0,), (0.8,)), 4: ((0.6, 0.4), (0.5, 0.3))}
RUN = (
    *("--config", "connect4", "--mode", "selfplay", "--blocks", "2", "--filters", "32", "--run-name", "run"),
    *("--batch-size", "128", "--micro-batch-size", "64", "--lanes", "64"),
    *("--simulations", "32", "--evaluation-batch", "32", "--validation-interval", "0", "--no-tensorboard"),
    *("--generations", "1000", "--self-play-from", "elsewhere", "--window-minimum", "1000"),
)


class SharedCore:
    """Processes that run in turn on one core, each for its share of the time."""

    def __init__(self, core: int, shares: tuple[float, ...]) -> None:
        self._core, self._shares = core, shares
        self.processes: list[subprocess.Popen[bytes]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, command: list[str], directory: Path) -> None:
        """Start a process of this command for each share."""
        for number, _ in enumerate(self._shares):
            with (directory / f"{self._core}-{number}.log").open("w") as log:
                process = subprocess.Popen(
                    ("taskset", "-c", str(self._core), *command), cwd=directory, stdout=log, stderr=log
                )
            self.processes.append(process)
        if self._shares not in ((), (1.0,)):
            self._thread.start()

    def cpu_s(self) -> float:
        """Processor time so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes]
        return sum(each.user + each.system for each in times)

    def _run(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)
        while not self._ends.is_set():
            for process, share in zip(self.processes, self._shares, strict=True):
                process.send_signal(signal.SIGCONT)
                self._ends.wait(PERIOD_S * share)
                process.send_signal(signal.SIGSTOP)
            self._ends.wait(PERIOD_S * max(0.0, 1 - sum(self._shares)))

    def end(self) -> None:
        """End the processes by SIGTERM, as a scheduler does."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "alphazero", *words]


@dataclass(frozen=True)
class Published:
    """A shard in the place: when it came, and its positions that are trained on."""

    time_s: float
    positions: int


def published(place: Path, since_s: float = 0.0) -> dict[str, list[Published]]:
    """Shards by actor, oldest first; none of them is deleted before a checkpoint has used it."""
    shards: dict[str, list[Published]] = {}
    for path in sorted((place / "games").glob("*/*.arrow")):
        name = ShardName.of(str(path.relative_to(place)))
        if name is not None and (time_s := path.stat().st_mtime) >= since_s:
            positions = num_trained_positions(read_shard(name, path.read_bytes())[1])
            shards.setdefault(name.actor, []).append(Published(time_s, positions))
    return shards


def rate_of(shards: list[Published]) -> float:
    """Positions a second from the first shard to the last one."""
    return sum(shard.positions for shard in shards[1:]) / (shards[-1].time_s - shards[0].time_s)


def measure(
    shares: Sequence[tuple[float, ...]], reuse: float, seconds: float, steps: int = 20
) -> dict[str, float]:
    """A learner and an actor of each share, once all have published twice: positions/s, and how it waited.

    shares: by core. steps: of a generation.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run, place = directory / "runs" / "run", directory / "runs" / "run" / "place"
        words = ("train", *RUN, "--steps-per-generation", str(steps), "--reuse", f"{reuse:g}")
        with (directory / "learner.log").open("w") as log:
            learner = subprocess.Popen(program(*words), cwd=directory, stdout=log, stderr=log)
        cores = [SharedCore(core, of_core) for core, of_core in enumerate(shares)]
        for core in cores:
            core.start(program("selfplay", "--for", str(run)), directory)
        number = sum(map(len, shares))
        while sum(len(list(path.glob("0000000[1-9]*"))) > 0 for path in place.glob("games/*")) < number:
            time.sleep(0.2)
        began_s, cpu_s = time.time(), sum(core.cpu_s() for core in cores)
        time.sleep(seconds)
        wall_s, cpu_s = time.time() - began_s, sum(core.cpu_s() for core in cores) - cpu_s
        rates = [rate_of(shards) for shards in published(place, began_s).values() if len(shards) > 1]
        for core in cores:
            core.end()
        learner.terminate()
        learner.wait()
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows = [line for line in lines if line["kind"] == "self_play"]
        later = rows[1:]  # before the first games everybody waits
        minutes = [line["minutes"] for line in lines if line["kind"] == "speed"]
        trained_s = 60 * (minutes[-1] - minutes[0]) if minutes else 0.0
        return {
            "actors": len(rates),
            "positions_per_s": sum(rates),
            "positions_per_cpu_s": sum(rates) * wall_s / cpu_s,
            "cores": cpu_s / wall_s,
            "generations": len(rows),
            "waited": sum(row["waited_s"] for row in later) / trained_s if trained_s else 1.0,
            "load": os.getloadavg()[0],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, nargs="*", default=[2, 4], choices=sorted(SHARES))
    parser.add_argument("--seconds", type=float, default=100)
    arguments = parser.parse_args()
    for number in arguments.actors:
        first, second = SHARES[number]
        # A learner that needs so many positions trains almost never.
        alone = [measure(((share,), ()), 0.01, arguments.seconds) for share in first]
        alone += [measure(((), (share,)), 0.01, arguments.seconds) for share in second]
        together, shares = measure((first, second), 0.01, arguments.seconds), (*first, *second)
        total = sum(speeds["positions_per_s"] for speeds in alone)
        by_cpu = sum(
            speeds["positions_per_cpu_s"] * share for speeds, share in zip(alone, shares, strict=True)
        )
        print(json.dumps({"shares": shares, "alone": alone, "together": together}), flush=True)
        expected = by_cpu / sum(shares)
        print(
            f"{number} actors: {together['positions_per_s'] / max(total, 1e-9):.3f} of the sum by the clock, "
            f"{together['positions_per_cpu_s'] / max(expected, 1e-9):.3f} by processor time",
            flush=True,
        )
    # As long a generation as a real one, whose games take much less than its steps.
    print(json.dumps({"outrun": measure(((0.4,), (0.4,)), 32.0, 2 * arguments.seconds, 200)}), flush=True)


if __name__ == "__main__":
    main()
