"""A training run killed again and again, and what must hold after every kill.

Black box: only the command line, the run directory and the line `resumed from step N` are looked at.
"""

import contextlib
import hashlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file

from alphazero.base.files import complete_lines
from alphazero.machine.lock import LOCK_FILE
from alphazero.run import checkpoint_files
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from tests.support.jobs.jobs import TINY
from tests.support.jobs.zygote import Job, Zygote

STEPS, INTERVAL, KEPT = 16, 3, 2
ARGUMENTS = (
    *TINY,
    *("--optimizer", "adamw", "--batch-size", "32", "--micro-batch-size", "8", "--log-interval", "2"),
    *("--validation-interval", "5", "--validation-positions", "64"),
    *("--steps", str(STEPS), "--checkpoint-interval", str(INTERVAL)),
)
RUN = Path("runs") / "job"
POLL_S = 0.0005
# What a kill is aimed at, and how often: any instant, a save that has begun, a prune that is due.
AIMS = {"any instant": 5, "save": 3, "prune": 2}


@dataclass(frozen=True)
class Reference:
    """An undisturbed run that kept all its checkpoints."""

    start_s: float  # until the first figures were written
    life_s: float  # of the whole process
    figures: dict[tuple[str, int], dict[str, float]]
    checkpoints: dict[int, dict[str, str]]  # hash of each tensor by file and name
    weights: dict[str, str]
    best: dict[str, int]

    @classmethod
    def of(
        cls, zygote: Zygote, directory: Path, store: Path, ranks: int, extra: Sequence[str]
    ) -> "Reference":
        """Run it."""
        # A checkpoint of every step, so that any that a killed run makes has its like.
        keep = ("--checkpoint-interval", "1", "--keep-checkpoints", "1000")
        job = zygote.start(directory, ranks, [*ARGUMENTS, "--data", str(store), *keep, *extra])
        metrics = directory / RUN / "metrics.jsonl"
        while job.is_running() and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.005)
        start_s = time.monotonic() - job.started_s
        assert job.wait() == [0] * ranks, job.output()[-4000:]
        life_s = time.monotonic() - job.started_s
        checkpoints = {step_of(path): hashes_of(path) for path in final_names(directory / RUN)}
        assert sorted(checkpoints) == [*range(1, STEPS + 1)]
        words = words_of(directory / RUN)
        figures = {place: said[-1] for place, said in words.items()}
        return cls(
            start_s, life_s, figures, checkpoints, weights_of(directory / RUN), best_of(directory / RUN)
        )


@dataclass
class Tally:
    """How many kills hit what."""

    places: Counter[str] = field(default_factory=Counter)
    aims: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        places, aims = (
            ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
            for counter in (self.places, self.aims)
        )
        return f"{self.places.total()} kills; hit: {places}; aimed at: {aims}"


@dataclass(frozen=True)
class KillChain:
    """One run directory, killed and resumed by the same command until it is finished."""

    zygote: Zygote
    directory: Path
    store: Path
    ranks: int
    extra: Sequence[str]
    rng: random.Random

    @property
    def _run(self) -> Path:
        return self.directory / RUN

    def run(self, reference: Reference, most_kills: int, tally: Tally) -> int:
        """Kill at most so many times, then let it end; the number of kills. Asserts all that must hold."""
        arguments = [*ARGUMENTS, "--data", str(self.store), "--keep-checkpoints", str(KEPT), *self.extra]
        kills, newest = 0, 0
        while True:
            job = self.zygote.start(self.directory, self.ranks, arguments)
            started = time.time()
            if kills == most_kills:
                assert job.wait() == [0] * self.ranks, job.output()[-4000:]
            else:
                self._kill(job, reference, newest, tally)
            statuses = job.wait()
            assert_resumed_from(newest, job.output())
            if statuses == [0] * self.ranks:
                assert_same_end(self._run, reference)
                return kills
            assert -9 in statuses, f"ended by itself with {statuses}: {job.output()[-4000:]}"
            kills += 1
            newest = assert_checkpoints_are_whole(self._run, reference)
            assert_figures_are_whole(self._run)
            tally.places[self._place(job, started, newest)] += 1

    def _kill(self, job: Job, reference: Reference, newest: int, tally: Tally) -> None:
        """At an instant that chance chooses: all ranks at once, or one and a little later the others."""
        rng = self.rng
        aim = rng.choices([*AIMS], [*AIMS.values()])[0]
        tally.aims[aim] += 1
        if aim == "any instant":
            left = 1 - newest / STEPS
            life_s = reference.start_s + left * (reference.life_s - reference.start_s)
            sleep_while_running(job, rng.uniform(0, life_s))
        else:
            turn = rng.randrange(1, 3)
            self._wait_for(aim, turn, job)
            time.sleep(rng.uniform(0, 0.02 if aim == "save" else 0.005))
        if self.ranks > 1 and rng.random() < 0.3:
            job.kill([rng.randrange(self.ranks)])
            sleep_while_running(job, rng.uniform(0, 0.3))
        job.kill()

    def _wait_for(self, aim: str, turn: int, job: Job) -> None:
        """Until the `turn`-th time this life that a save begins or a prune is due, or the job's end."""
        started, begun = time.time(), set()
        while len(begun) < turn and job.is_running():
            time.sleep(POLL_S)
            if aim == "prune":
                begun |= set(spare(self._run))
            else:
                names = names_in(self._run / "checkpoints")
                begun |= {name for name, when in names if name.startswith(".step-") and when > started}

    def _place(self, job: Job, started: float, newest: int) -> str:
        """What the run was doing when it died."""
        checkpoints = self._run / "checkpoints"
        unfinished = {
            int(found[1])
            for name, when in names_in(checkpoints)
            if when > started - 0.01 and (found := re.match(r"\.step-(\d+)", name))
        }
        if any(step > newest for step in unfinished):
            return "saving"
        if unfinished or spare(self._run):
            return "pruning"
        heartbeat = self._run / "heartbeat" / "rank-00000.json"
        beat = json.loads(heartbeat.read_text()) if heartbeat.exists() else {"pid": 0}
        if beat["pid"] != job.pids[0]:
            return "start"
        return {"checkpoint": "saving", "end": "end"}.get(beat["phase"], "training")


def sleep_while_running(job: Job, duration_s: float) -> None:
    """Sleep, but not beyond the job's end."""
    deadline = time.monotonic() + duration_s
    while job.is_running() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.01))


def names_in(directory: Path) -> list[tuple[str, float]]:
    """Names and times of change, of what does not vanish meanwhile."""
    found = []
    for path in directory.glob("*") if directory.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            found.append((path.name, path.stat().st_ctime))
    return found


def final_names(run: Path) -> list[Path]:
    """Checkpoints that claim to be complete, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def best_of(run: Path) -> dict[str, int]:
    """The step marked best, by metric."""
    found = checkpoint_files.best_of(run / "checkpoints")
    return {metric: step_of(path) for metric, (path, _) in found.items()}


def spare(run: Path) -> list[Path]:
    """Checkpoints that a prune would remove."""
    best = set(best_of(run).values())
    return [path for path in final_names(run)[:-KEPT] if step_of(path) not in best]


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    return int(path.name.removeprefix("step-"))


def hashes_of(checkpoint: Path) -> dict[str, str]:
    """A hash of the bytes of every tensor, by file and name."""
    return {
        f"{file.name}: {name}": hash_of(tensor)
        for file in sorted(checkpoint.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def hash_of(tensor: torch.Tensor) -> str:
    """Of a tensor's bytes."""
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def weights_of(run: Path) -> dict[str, str]:
    """Hashes of the newest and of the best weights, the files people take away; plain torch reads them."""
    names = [f"{mark}.pt" for mark in best_of(run)]
    return {
        f"{name}: {key}": hash_of(tensor)
        for name in ("distributed.pt", *names)
        for path in run.glob(f"AlphaZeroNet_*_{name}")
        for key, tensor in torch.load(path, weights_only=True)["state_dict"].items()
    }


def words_of(run: Path) -> dict[tuple[str, int], list[dict[str, float]]]:
    """Every word of metrics.jsonl on a step or validation, in order."""
    words: dict[tuple[str, int], list[dict[str, float]]] = {}
    for line in map(json.loads, complete_lines(run / "metrics.jsonl")):
        if line["kind"] in ("step", "validation"):
            words.setdefault((line["kind"], line["step"]), []).append(line)
    return words


def assert_checkpoints_are_whole(run: Path, reference: Reference) -> int:
    """Every checkpoint that has a final name is complete and as it should be; the newest step, or 0."""
    newest = 0
    for path in final_names(run):
        manifest = json.loads((path / "manifest.json").read_text())
        for name, expected in manifest["files"].items():
            content = (path / name).read_bytes()
            assert len(content) == expected["size_bytes"], f"{path / name} is cut short"
            assert hashlib.sha256(content).hexdigest() == expected["sha256"], f"{path / name} is broken"
        newest = step_of(path)
        assert json.loads((path / "state.json").read_text())["step"] == newest
        assert hashes_of(path) == reference.checkpoints[newest], f"{path} is not the undisturbed run's"
    return newest


def assert_figures_are_whole(run: Path) -> None:
    """Every line of the figures but the last can be read, and our own reader takes them."""
    if complete_lines(run / "metrics.jsonl"):  # a start that is killed early has none
        RunFigures.read(RunDirectory(run)).of("step").rows()


def assert_resumed_from(newest: int, output: str) -> None:
    """The job took the newest complete checkpoint, or none where there was none, if it came that far."""
    resumed = re.findall(r"resumed from step (\d+)", output)
    assert resumed in ([], [str(newest)]), f"resumed from {resumed}, the newest complete one was {newest}"
    assert newest or not resumed


def assert_same_end(run: Path, reference: Reference) -> None:
    """Figures of every step, last checkpoint and weights are the undisturbed run's, bit for bit."""
    words = words_of(run)
    assert words.keys() == reference.figures.keys()
    for place, said in words.items():
        # A step that was made again after a kill says the same again.
        assert all(word == reference.figures[place] for word in said), place
    assert assert_checkpoints_are_whole(run, reference) == STEPS
    assert best_of(run) == reference.best
    assert not spare(run)
    assert weights_of(run) == reference.weights
    left = [str(path) for path in run.rglob(".*") if path.name != LOCK_FILE]
    assert not left, f"interrupted writes are left behind: {left}"
