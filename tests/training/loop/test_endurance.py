"""Thousands of steps need no more memory, files or threads than the first thousand.

The bounds are on lines fitted to what the kernel says of each rank: resident memory grows by less than
1 KiB a step, a percent of it in 4,000 steps (the allocator's own ups and downs come to half of that, the
smallest batch kept a step to ten times as much); open files and threads by less than one in 2,000 steps.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.jobs.jobs import TINY
from tests.support.jobs.zygote import TRAIN, Zygote
from tests.support.paths import SUPPORT

DISTURBED = SUPPORT / "jobs" / "disturbed.py"
EVERY, WARM_UP = 100, 1000
MEMORY_BOUND = 1024.0
COUNT_BOUND = 1 / 2000
SMALLEST = (
    *TINY,
    *("--blocks", "1", "--filters", "8", "--optimizer", "adamw"),
    *("--batch-size", "8", "--micro-batch-size", "8", "--log-interval", "20"),
    *("--checkpoint-interval", "250", "--validation-interval", "500", "--validation-positions", "64"),
)


@dataclass(frozen=True)
class Sample:
    """What one rank holds after a step."""

    step: int
    memory_bytes: int
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int, step: int) -> "Sample":
        """Ask the kernel."""
        process = Path("/proc") / str(pid)
        pages = int((process / "statm").read_text().split()[1])
        files, threads = (len([*(process / name).iterdir()]) for name in ("fd", "task"))
        return cls(step, pages * os.sysconf("SC_PAGE_SIZE"), files, threads)


@dataclass(frozen=True)
class Growth:
    """Slopes of lines fitted to a rank's samples after the warm-up, a step."""

    memory_bytes: float
    files: float
    threads: float

    @classmethod
    def of(cls, samples: list[Sample]) -> "Growth":
        """Least squares."""
        warm = [sample for sample in samples if sample.step >= WARM_UP]
        steps = [sample.step for sample in warm]
        return cls(
            *(
                float(np.polyfit(steps, [getattr(sample, name) for sample in warm], 1)[0])
                for name in ("memory_bytes", "files", "threads")
            )
        )

    def culprits(self) -> list[str]:
        """What grows."""
        bounds = {"memory_bytes": MEMORY_BOUND, "files": COUNT_BOUND, "threads": COUNT_BOUND}
        return [name for name, bound in bounds.items() if getattr(self, name) > bound]


def watch(
    zygote: Zygote, directory: Path, store: Path, ranks: int, steps: int, *extra: str, script: Path = TRAIN
) -> list[Growth]:
    """Run that many steps and measure each rank after every EVERY of them."""
    job = zygote.start(
        directory, ranks, [*SMALLEST, "--data", str(store), "--steps", str(steps), *extra], script
    )
    samples: list[list[Sample]] = [[] for _ in range(ranks)]
    due = EVERY
    while job.is_running():
        time.sleep(0.05)
        step = last_step(directory / "runs" / "job" / "metrics.jsonl")
        if due <= step < steps:
            for taken, pid in zip(samples, job.pids, strict=True):
                taken.append(Sample.of(pid, step))
            due = step - step % EVERY + EVERY
    assert job.wait() == [0] * ranks, job.output()[-4000:]
    growths = [Growth.of(taken) for taken in samples]
    for taken, growth in zip(samples, growths, strict=True):
        assert len(taken) >= 0.8 * steps / EVERY - 1
        print(growth, *taken[:: max(1, len(taken) // 10)], sep="\n")
    return growths


def last_step(metrics: Path) -> int:
    """The newest step that was written down."""
    if not metrics.exists():
        return 0
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 4096))
        lines = file.read().split(b"\n")[1:-1]
    steps = [json.loads(line)["step"] for line in lines if line.startswith(b'{"kind": "step"')]
    return int(steps[-1]) if steps else 0


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "extra"), [(1, ("--tensorboard",)), (2, ("--zero-stage", "1"))])
def test_five_thousand_steps_need_what_the_first_thousand_need(zygote, tmp_path, random_store, ranks, extra):
    for growth in watch(zygote, tmp_path, random_store, ranks, 5000, *extra):
        assert not growth.culprits(), growth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leak", "culprit"), {"memory": "memory_bytes", "files": "files", "threads": "threads"}.items()
)
def test_a_leak_is_found(zygote, tmp_path, random_store, monkeypatch, leak, culprit):
    monkeypatch.setenv("DISTURBANCE", f"leak:{leak}")
    (growth,) = watch(zygote, tmp_path, random_store, 1, 2500, script=DISTURBED)
    assert culprit in growth.culprits(), growth
