"""What a checkpoint costs beside training: steps that meet one against all others."""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path

from alphazero.run.directory import RunDirectory
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.writer import CheckpointWriter
from benchmarks.measuring.trainer_bench import Bench, StepClock, StepTimes, run_trainer

NUM_CHECKPOINTS = 3


def checkpoint_pause(bench: Bench, steps: int, directory: Path) -> dict[str, object]:
    """The real trainer with three checkpoints on its way: the steps beside them against all others."""
    interval = steps // (NUM_CHECKPOINTS + 1)
    begun: list[float] = []
    ended: list[float] = []
    writer = None
    if bench.runtime.is_main:
        writer = CheckpointWriter(
            RunDirectory(directory / "run").checkpoints,
            1,
            lambda checkpoint: begun.append(time.perf_counter()),
            lambda text: ended.append(time.perf_counter()),
        )
    times = StepTimes(least_steps=steps + 1, waits_each_step=True)  # never over: the trainer counts
    stop = StopRequest()
    engine = bench.make_engine()
    run_trainer(
        bench, engine, StepClock(bench.runtime, times, stop), stop, directory, steps, interval, writer
    )
    engine.close()
    pauses = [number * interval - 1 for number in range(1, NUM_CHECKPOINTS + 1)]
    return pause_figures(times.ends, pauses, list(zip(begun, ended, strict=True)))


def pause_figures(
    marks: list[float], pauses: list[int], written: list[tuple[float, float]]
) -> dict[str, object]:
    """Lengths of steps in units of the median step without a checkpoint.

    marks: when each step ended. pauses: steps (from 0) after which a checkpoint was taken, which falls
    into the next step's length. written: from when to when each checkpoint was written.
    """
    lengths = [after - before for before, after in itertools.pairwise(marks)]
    beside: list[float] = []
    alone: list[float] = []
    for index, length in enumerate(lengths[1:], start=1):  # the first is to warm up
        meets = any(marks[index] < end and begin < marks[index + 1] for begin, end in written)
        (beside if meets or index in pauses else alone).append(length)
    usual = statistics.median(alone or lengths)
    return {
        "step_s": usual,
        "checkpoint_write_s": statistics.median([end - begin for begin, end in written] or [0.0]),
        "checkpoint_pause_in_steps": statistics.median(lengths[index] for index in pauses) / usual - 1,
        "steps_with_checkpoint": len(beside),
        "steps_with_checkpoint_mean_in_steps": statistics.mean(beside) / usual,
        "steps_with_checkpoint_largest_in_steps": max(beside) / usual,
        "steps_without_mean_in_steps": statistics.mean(alone or lengths) / usual,
        "steps_without_largest_in_steps": max(alone or lengths) / usual,
    }
