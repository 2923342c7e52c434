"""`python -m tests.support.actors.speeds`: what actors play together and alone, and how long a learner waits.

Connect Four on the CPU. Each actor has a share of a core, kept by stopping and continuing its process, as
cgroups can rarely be written. Positions count by processor time as well: on a busy machine the clock says
little.
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
from dataclasses import dataclass
from pathlib import Path

import psutil

from alphazero.play.actors.shard import ShardName, read_shard
from alphazero.play.lanes import num_trained_positions

PERIOD_S = 0.1
SHARES = {1: (0.9,), 2: (0.7, 0.2), 4: (0.4, 0.25, 0.15, 0.1)}  # of 0.9 cores, times --cores / 0.9
RUN = (
    *("--config", "connect4", "--mode", "selfplay", "--blocks", "2", "--filters", "32", "--run-name", "run"),
    *("--batch-size", "128", "--micro-batch-size", "64", "--lanes", "64"),
    *("--simulations", "32", "--evaluation-batch", "32", "--validation-interval", "0", "--no-tensorboard"),
    *("--generations", "1000", "--self-play-from", "elsewhere", "--window-minimum", "1000"),
)


class Throttled:
    """A process that runs for a share of the time."""

    def __init__(self, share: float, command: list[str], directory: Path, log: Path) -> None:
        self.share = share
        with log.open("w") as output:
            self.process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cpu_s(self) -> float:
        """Processor time so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def _run(self) -> None:
        while not self._ends.is_set() and self.process.poll() is None:
            if self.share < 1:
                self.process.send_signal(signal.SIGSTOP)
                self._ends.wait(PERIOD_S * (1 - self.share))
                self.process.send_signal(signal.SIGCONT)
            self._ends.wait(PERIOD_S * self.share)

    def end(self) -> None:
        """End the process by SIGTERM, as a scheduler does."""
        self._ends.set()
        self._thread.join()
        self.process.terminate()
        self.process.wait()


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "alphazero", *words]


@dataclass(frozen=True)
class Published:
    """A shard in the place: when it came, and its positions that are trained on."""

    time_s: float
    positions: int


def published(place: Path, since_s: float = 0.0) -> dict[str, list[Published]]:
    """Shards by actor, oldest first; none of them is deleted before a checkpoint has used it."""
    found: dict[str, list[Published]] = {}
    for path in sorted((place / "games").glob("*/*.arrow")):
        name = ShardName.of(str(path.relative_to(place)))
        if name is not None and (time_s := path.stat().st_mtime) >= since_s:
            positions = num_trained_positions(read_shard(name, path.read_bytes())[1])
            found.setdefault(name.actor, []).append(Published(time_s, positions))
    return found


def rate_of(shards: list[Published]) -> float:
    """Positions a second from the first shard to the last one."""
    return sum(one.positions for one in shards[1:]) / (shards[-1].time_s - shards[0].time_s)


def measure(shares: tuple[float, ...], reuse: float, seconds: float, steps: int = 20) -> dict[str, float]:
    """A learner and an actor of each share, once all have published twice: positions/s, and how it waited.

    steps: of a generation.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run, place = directory / "runs" / "run", directory / "runs" / "run" / "place"
        learner = Throttled(
            1.0,
            program("train", *RUN, "--steps-per-generation", str(steps), "--reuse", f"{reuse:g}"),
            directory,
            directory / "learner.log",
        )
        actors = [
            Throttled(share, program("selfplay", "--for", str(run)), directory, directory / f"{number}.log")
            for number, share in enumerate(shares)
        ]
        while sum(len(list(path.glob("0000000[1-9]*"))) > 0 for path in place.glob("games/*")) < len(shares):
            time.sleep(0.2)
        began_s, cpu_s = time.time(), sum(actor.cpu_s() for actor in actors)
        time.sleep(seconds)
        wall_s, cpu_s = time.time() - began_s, sum(actor.cpu_s() for actor in actors) - cpu_s
        rates = [rate_of(shards) for shards in published(place, began_s).values() if len(shards) > 1]
        for one in (*actors, learner):
            one.end()
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
    parser.add_argument("--cores", type=float, default=1.8)
    parser.add_argument("--seconds", type=float, default=100)
    arguments = parser.parse_args()
    for number in arguments.actors:
        shares = tuple(min(1.0, share * arguments.cores / 0.9) for share in SHARES[number])
        # A learner that needs so many positions trains almost never.
        alone = [measure((share,), 0.01, arguments.seconds) for share in shares]
        together = measure(shares, 0.01, arguments.seconds)
        total = sum(one["positions_per_s"] for one in alone)
        by_cpu = sum(one["positions_per_cpu_s"] * share for one, share in zip(alone, shares, strict=True))
        print(json.dumps({"shares": shares, "alone": alone, "together": together}), flush=True)
        expected = by_cpu / sum(shares)
        print(
            f"{number} actors: {together['positions_per_s'] / max(total, 1e-9):.3f} of the sum by the clock, "
            f"{together['positions_per_cpu_s'] / max(expected, 1e-9):.3f} by processor time",
            flush=True,
        )
    # As long a generation as a real one, whose games take much less than its steps.
    print(json.dumps({"outrun": measure((0.4, 0.4), 32.0, 2 * arguments.seconds, 200)}), flush=True)


if __name__ == "__main__":
    main()
