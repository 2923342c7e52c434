"""Real training jobs of a tiny network, started as a user starts them, for tests."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from alphazero.base.files import complete_lines
from alphazero.machine.machine import port_is_free
from alphazero.run.next_command import COMMAND_VARIABLE
from tests.support.paths import REPOSITORY

TRAIN = REPOSITORY / "train_distributed.py"
TINY = (
    *("--config", "chess_cpu", "--precision", "fp32"),
    *("--blocks", "2", "--filters", "16", "--se-ratio", "4"),
    *("--optimizer", "sgd", "--learning-rate", "0.002"),
    *("--weight-decay", "0.0001", "--ema-decay", "0"),
    *("--batch-size", "128", "--micro-batch-size", "32", "--validation-interval", "0", "--no-tensorboard"),
    *("--run-name", "job", "--log-interval", "5"),
)

# ZeRO 3 as DeepSpeed does it, under a limit that no network keeps.
SHARED_OUT = "3, weights shared out"
LIMIT = "stage3_max_live_parameters"


def zero_flags(stage: int | str) -> tuple[str, ...]:
    """Of a ZeRO stage, or SHARED_OUT."""
    if stage == SHARED_OUT:
        return ("--zero-stage", "3", "--deepspeed-set", f"zero_optimization.{LIMIT}=1000")
    return ("--zero-stage", str(stage))


# Below the range the kernel hands out, so that no connection of another process takes one.
PORTS = range(20000, 30000)


def environment(devices: str | None = "", threads: int = 1) -> dict[str, str]:
    """One thread a process, so that sums have one order, and none of an outer job's variables.

    devices: CUDA_VISIBLE_DEVICES; "" hides all, None leaves it as it is.
    """
    outer = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    outer.add(COMMAND_VARIABLE)  # a launcher that a test ran in this process leaves it
    kept = {name: value for name, value in os.environ.items() if name not in outer}
    visible = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return {**kept, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path, **visible}


def command(ranks: int, arguments: Sequence[str], script: Path = TRAIN) -> list[str]:
    """argv of a job of `ranks` processes on this machine (port 0: torchrun picks a free one)."""
    if ranks == 1:
        return [sys.executable, str(script), *arguments]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*torchrun, str(script), *arguments]


def one_core_a_rank(ranks: int) -> Callable[[], None]:
    """Bind a process to as many cores as it has ranks: the trainer takes a thread for each core of a rank."""
    cores = sorted(os.sched_getaffinity(0))[:ranks]
    return lambda: os.sched_setaffinity(0, cores)


def one_core_in_turn(number: int) -> Callable[[], None]:
    """Bind start number `number` of several at once to one core: threads of one rank on cores that others
    use as well wait for each other most of the time."""
    cores = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, {cores[number % len(cores)]})


def without_times(said: str) -> str:
    """What a job printed, less the time in front of each line."""
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", said, flags=re.MULTILINE)


def run_job(
    directory: Path,
    store: Path,
    ranks: int,
    *extra: str,
    script: Path = TRAIN,
    devices: str | None = "",
    threads: int = 1,
    status: int = 0,
) -> str:
    """Run to the end in `directory`; what it printed. Fails the test on another exit status than `status`."""
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command(ranks, [*TINY, "--data", str(store), *extra], script),
        cwd=directory,
        env=environment(devices, threads),
        preexec_fn=one_core_a_rank(ranks) if devices == "" and threads == 1 else None,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == status, done.stderr[-4000:]
    return without_times(done.stderr)


def step_lines(directory: Path, run: str = "job") -> list[dict[str, float]]:
    """The figures of every step of the run in `directory`, the newest word on each."""
    lines = complete_lines(directory / "runs" / run / "metrics.jsonl")
    by_step = {line["step"]: line for line in map(json.loads, lines) if line["kind"] == "step"}
    return [by_step[step] for step in sorted(by_step)]


def state_of(directory: Path, name: str, step: int) -> dict[str, Any]:
    """state.json of the checkpoint after `step` of the run in `directory`/`name`."""
    path = directory / name / "runs" / "job" / "checkpoints" / f"step-{step:08d}" / "state.json"
    state: dict[str, Any] = json.loads(path.read_text())
    return state


def free_port() -> int:
    """A port nobody listens on."""
    while not port_is_free(port := random.SystemRandom().choice(PORTS)):
        pass
    return port
