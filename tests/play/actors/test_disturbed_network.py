"""A bucket, a learner and two actors on four hosts, disturbed thirty times: each game enters once.

Processes are killed, links cut, slowed and made lossy, uploads reset, all by a seed. Afterwards a script of
its own adds up what was published and used, and training from the games alone gives the same weights.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.actors.bucket import VARIABLES, Bucket
from tests.support.actors.s3 import BUCKET
from tests.support.hosts.hosts import Host, Network
from tests.support.jobs.jobs import TRAIN
from tests.support.jobs.zygote import Job, Zygote
from tests.support.paths import REPOSITORY

KINDS = {
    "learner killed": 8,
    "actor killed": 7,
    "link cut": 6,
    "link slowed": 3,
    "packets lost": 2,
    "uploads reset": 4,
}
STEPS = 5
SUPPORT = REPOSITORY / "tests" / "support" / "actors"
RUN = Path("runs") / "job"
TRAINING = (
    *("--config", "connect4", "--blocks", "1", "--filters", "8", "--run-name", "job", "--precision", "fp32"),
    *("--steps-per-generation", str(STEPS), "--reuse", "0.2", "--checkpoint-interval", "3"),
    *("--batch-size", "64", "--micro-batch-size", "32", "--window-minimum", "100"),
    *("--simulations", "16", "--evaluation-batch", "16"),
    *("--lr-schedule", "constant", "--warmup-steps", "1"),
    *("--validation-interval", "0", "--no-tensorboard"),
)
RECOVERY_S = 120.0


@dataclass
class Field:
    """The hosts and what runs there; who is killed is started again, as a scheduler does."""

    zygote: Zygote
    network: Network
    bucket: Bucket
    directory: Path
    rng: random.Random
    learner: Job | None = None
    actors: list[Job | None] = field(default_factory=lambda: [None, None])
    statuses: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)
    generations: int = 1_000_000

    def tend(self) -> None:
        """Start again what has ended; only what was killed, or met a place that was cut off, may have."""
        if self.learner is None or not self.learner.is_running():
            self._note("learner", self.learner, {-9, 2})
            words = ("--self-play-from", "elsewhere", "--place", self.bucket.place)
            arguments = (*TRAINING, "--generations", str(self.generations), *words)
            self.learner = self._start(self.directory, 1, TRAIN, *arguments)
        for number, actor in enumerate(self.actors):
            if actor is None or not actor.is_running():
                self._note("actor", actor, {-9})
                words = ("--for", self.bucket.place, "--device", "cpu")
                self.actors[number] = self._start(
                    self.directory / f"actor{number}", number + 2, SUPPORT / "act.py", *words
                )

    def _start(self, directory: Path, host: int, script: Path, *arguments: str) -> Job:
        pid = str(self.network.hosts[host].space.pid)
        variables = {**VARIABLES, "XDG_CACHE_HOME": str(directory / "cache")}
        words = [pid, str(script), *arguments]
        return self.zygote.start(directory, 1, words, SUPPORT / "on_host.py", variables)

    def _note(self, what: str, job: Job | None, expected: set[int]) -> None:
        if job is not None:
            (status,) = job.wait()
            self.said.append(output := job.output())
            assert status in expected, output[-4000:]
            if status != -9:
                assert re.search(rf"error: .*s3://{BUCKET}/run: .*", output.splitlines()[-1]), output[-4000:]
            self.statuses[f"{what} ended with {status}"] += 1

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend()
            time.sleep(0.2)

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, what)
        timer.start()
        self.timers.append(timer)

    def disturb(self, kind: str) -> None:
        """One disturbance; what passes by itself does so while the next ones come."""
        rng, hosts = self.rng, self.network.hosts
        if kind == "learner killed":
            self.learner.kill()
        elif kind == "actor killed":
            rng.choice(self.actors).kill()
        elif kind == "uploads reset":
            reset = self.bucket.reset
            reset.write_text(rng.choice(["half", "stored"]))
            self.later(rng.uniform(4, 12), lambda: reset.unlink(missing_ok=True))
        else:
            host, seconds = rng.choice(hosts), rng.uniform(3, 30)
            if kind == "link cut":
                host.cut_off()
                self.later(seconds, host.reconnect)
            elif kind == "packets lost":
                threading.Thread(target=lose_packets, args=(host, seconds)).start()
            else:  # 3 kB/s, and whatever waits longer than 2 s is dropped
                port = f"port{host.number}"
                shape(host, f"replace dev {port} root tbf rate 24kbit burst 4kb latency 2s")
                self.later(seconds, lambda: shape(host, f"del dev {port} root"))

    def generation(self) -> int:
        """How many generations have begun, of those that are kept."""
        try:
            return (self.directory / RUN / "games-order.jsonl").read_text().count("\n")
        except FileNotFoundError:
            return 0

    def until_it_learns_on(self, generations: int) -> int:
        """Wait for so many more generations; how many there are then."""
        wanted, deadline = self.generation() + generations, time.monotonic() + RECOVERY_S
        while (now := self.generation()) < wanted:
            assert time.monotonic() < deadline, self.everything_said()
            self.sleep(0.5)
        return now

    def everything_said(self) -> str:
        jobs = [self.learner, *self.actors]
        return "\n----\n".join([*self.said[-4:], *(job.output()[-3000:] for job in jobs if job)])


def shape(host: Host, words: str) -> None:
    """tc on the switch's side of a host's link: what it is sent."""
    argv = ["nsenter", "-t", str(host.network.switch.pid), "-n", "tc", "qdisc", *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0 or words.startswith("del"), done.stderr


def lose_packets(host: Host, seconds: float) -> None:
    """A link that is down for a moment, again and again: two of five packets are lost."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        host.cut_off()
        time.sleep(0.2)
        host.reconnect()
        time.sleep(0.3)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_each_game_enters_once_whatever_is_killed_and_cut_and_the_replay_gives_the_same_weights(
    zygote, network, tmp_path
) -> None:
    if shutil.which("tc") is None:
        pytest.skip("tc (iproute2) is not installed")
    seed = int(os.environ.get("DISTURB_SEED", random.SystemRandom().randrange(10**6)))
    print(f"DISTURB_SEED={seed} chooses these disturbances again")
    rng, began = random.Random(seed), time.monotonic()
    kinds = [kind for kind, number in KINDS.items() for _ in range(number)]
    rng.shuffle(kinds)
    hosts = network(4)
    field = Field(zygote, hosts, Bucket(hosts.hosts[0], tmp_path), tmp_path, rng)
    field.until_it_learns_on(2)
    for kind in kinds:
        field.disturb(kind)
        print(f"{time.monotonic() - began:5.0f} s: {kind}, generation {field.generation()}", flush=True)
        field.sleep(rng.choice([0.0, rng.uniform(0, 5), rng.uniform(15, 30), rng.uniform(15, 30)]))
    for timer in field.timers:
        timer.join()
    last = field.until_it_learns_on(3) + 2
    field.learner.kill()
    field.generations = last
    field.sleep(1)
    assert field.learner.wait() == [0], field.everything_said()
    for actor in field.actors:
        assert actor.wait() == [0] and "the run has ended" in actor.output()
    seconds = time.monotonic() - began
    assert not any("Traceback" in output for output in [*field.said, field.everything_said()])

    copies = (field.bucket.archive, field.bucket.objects)
    ledger = subprocess.run(
        [sys.executable, "-m", "tests.support.actors.ledger", tmp_path / RUN, *copies],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert ledger.returncode == 0, ledger.stderr
    found = json.loads(ledger.stdout)
    print(json.dumps({"kinds": KINDS, "ended": field.statuses, "seconds": round(seconds), **found}))
    assert found["used"] > 0 and found["refused"] == 0, list((tmp_path / RUN / "games/refused").iterdir())
    words = [*TRAINING, "--generations", str(last), "--replay", str(tmp_path / RUN)]
    replay = zygote.start(tmp_path / "replay", 1, words)
    assert replay.wait() == [0], replay.output()[-4000:]
    assert checksum_in(replay.output(), last) == checksum_in(field.learner.output(), last)


def checksum_in(output: str, generations: int) -> str:
    found = re.findall(rf"checkpoint at step {generations * STEPS}: .*checksum ([0-9a-f]+)", output)
    return found[-1]
