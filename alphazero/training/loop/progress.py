"""The figures of steps, shared over ranks, written and printed; the time left; validations in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from alphazero.base.log import Topic, duration
from alphazero.base.text import signed
from alphazero.network.model.loss import SUM_NAMES, weighted_loss
from alphazero.settings.sections import LossConfig
from alphazero.training.loop.job import Job, RankServices
from alphazero.training.loop.part_clock import Part
from alphazero.training.ranks.batch import BatchPlan

# Weight of all that came before, at each new log interval: a burst of load on the machine moves the estimate
# by a tenth, and one that stays is in it after some ten intervals.
MEMORY = 0.9


STEPS = "steps"


@dataclass
class _Work:
    """What is done every `every` steps: the time and units of late, whose ratio is a mean that forgets."""

    every: int
    seconds: float = 0.0
    units: float = 0.0
    times: int = 0


class TimeLeft:
    """How long a run will still take, by what its steps and its pauses took lately.

    Steps and pauses apart: self-play or a validation takes its time every so many steps.
    """

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._works: dict[str, _Work] = {}

    def add(self, name: str, seconds: float, *, units: int = 1, every: int = 1) -> None:
        """`units` of what is done every `every` steps took `seconds`; STEPS without their pauses."""
        work = self._works.setdefault(name, _Work(every))
        # The first steps compile and warm up: they count until there are others.
        kept = 0.0 if name == STEPS and work.times == 1 else MEMORY
        work.seconds = kept * work.seconds + seconds
        work.units = kept * work.units + units
        work.times += 1

    def seconds(self, step: int) -> float | None:
        """From `step` to the end; None before the first steps."""
        if STEPS not in self._works:
            return None
        return sum(
            work.seconds / work.units * ((self._num_steps - 1) // work.every - (step - 1) // work.every)
            for work in self._works.values()
        )


# Of a step: SUM_NAMES, then the sum of its sample ids (which distinguishes two runs), then how many of its
# passes were replayed from CUDA graphs.
SAMPLE_IDS, GRAPHED_PASSES = len(SUM_NAMES), len(SUM_NAMES) + 1
NUM_SUMS = len(SUM_NAMES) + 2


class StepSums:
    """What step number `step` (from 1) added up on this rank, and what all ranks know of it.

    sums: f64 [NUM_SUMS]; from a GPU they travel on their own, and neither side waits before `read`.
    num_passes: of the step, over all ranks.
    """

    def __init__(
        self,
        step: int,
        sums: torch.Tensor,
        num_passes: int,
        figures: Mapping[str, float | torch.Tensor] | None = None,
    ) -> None:
        """figures: further ones that all ranks know, numbers or 0-d tensors."""
        self.step = step
        self.num_passes = num_passes
        self.figures = dict(figures or {})
        self._numbers, self._arrived = sums, None
        if sums.device.type == "cuda":
            self._numbers = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
            self._numbers.copy_(sums, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def read(self) -> torch.Tensor:
        """On the host; waits until the device has come there."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._numbers


class Progress:
    """Collects steps and prints them at intervals, on rank 0 alone. Its methods are collective."""

    def __init__(self, job: Job, services: RankServices, elapsed_s: Callable[[], float]) -> None:
        """elapsed_s: wall time of the run so far."""
        self._job = job
        self._services = services
        self._metrics = services.metrics
        self._console = services.console
        self._elapsed_s = elapsed_s
        self._time_left = TimeLeft(job.num_steps)
        self._pending: list[StepSums] = []
        self._epoch = torch.zeros(NUM_SUMS, dtype=torch.float64)  # sums since its first step here
        self.restart_clock()

    def restart_clock(self) -> None:
        """What came since the last step was no training: validation, a pause."""
        self._started = time.monotonic()

    def pause(self, seconds: float, what: str = "", every: int = 0) -> None:
        """The last `seconds` were no training: games were played, the network was validated.

        what: named where it comes again after `every` steps.
        """
        self._started += seconds
        if every:
            self._time_left.add(what, seconds, every=every)

    def add(self, step: StepSums) -> None:
        """Keep a step's sums; no rank waits here."""
        self._pending.append(step)

    def write(self, step: int, plan: BatchPlan) -> None:
        """Share and write the figures of the steps up to `step`, made by `plan`, since the last call."""
        seconds = time.monotonic() - self._started
        self.restart_clock()
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        parts = self._services.clock.take()
        with self._services.clock.part(Part.MESSAGES):
            sums = self._services.exchange.sum(torch.stack([entry.read() for entry in pending]))
        if self._job.runtime.is_main:
            for entry, row in zip(pending, sums, strict=True):
                self._write_step(entry, row)
        self._time_left.add(STEPS, seconds, units=len(pending))
        left_s = self._time_left.seconds(step) or 0.0
        words = ""
        if self._services.observer:
            passes = len(pending) * plan.passes[self._services.exchange.rank]
            amount = len(pending) * self._job.batch_size
            with self._services.clock.part(Part.MESSAGES):
                words, seen = self._services.observer.look("training", seconds, amount, parts, passes)
            for kind, figures in seen.items():
                if figures:
                    self._metrics.write(kind, step, figures)
        if self._job.runtime.is_main:
            self._say(step, sums, seconds, left_s, f"{words} | " if words else "")

    def _write_step(self, step: StepSums, sums: torch.Tensor) -> None:
        """sums: of the step over all ranks."""
        figures = step_figures(sums.tolist(), self._job.config.loss)
        figures["learning_rate"] = self._job.learning_rate(step.step - 1)
        figures["sample_id_sum"] = float(sums[SAMPLE_IDS])
        if self._job.runtime.device.type == "cuda":
            figures["graphed"] = float(sums[GRAPHED_PASSES]) / step.num_passes
        figures |= {name: float(value) for name, value in step.figures.items()}
        self._metrics.write("step", step.step, figures)
        self._count_epoch(step.step, sums)

    def _count_epoch(self, step: int, sums: torch.Tensor) -> None:
        """Add a step to the epoch's means; print them when step `step` ends it. A growing window has none."""
        if not self._job.num_samples:
            return
        self._epoch += sums
        batch_size, num_samples = self._job.batch_size, self._job.num_samples
        epoch = step * batch_size // num_samples
        if epoch > (step - 1) * batch_size // num_samples:
            figures = step_figures(self._epoch.tolist(), self._job.config.loss)
            self._metrics.write("epoch", epoch, figures | {"ended_in_step": float(step)})
            self._console.say(
                f"epoch {epoch} ended in step {step} | mean over all ranks: loss {figures['loss']:.4f} "
                f"policy {figures['policy_loss']:.4f} value {figures['value_loss']:.4f} | "
                f"top-1 {figures['policy_top1']:.2%}",
            )
            self._epoch.zero_()

    def _say(self, step: int, sums: torch.Tensor, seconds: float, left_s: float, seen: str) -> None:
        """One line over the steps whose `sums` these are, their speed, and what the observer saw."""
        mean = step_figures(sums.sum(0).tolist(), self._job.config.loss)
        speed = len(sums) * self._job.batch_size / max(seconds, 1e-9)
        world_size = self._job.runtime.world_size
        self._metrics.write(
            "speed",
            step,
            {
                "samples_per_s": speed,
                "samples_per_s_per_rank": speed / world_size,
                "minutes": self._elapsed_s() / 60,
            },
        )
        rate = self._job.learning_rate(step - 1)
        devices = "GPUs" if self._job.runtime.device.type == "cuda" else "CPU ranks"
        self._console.say(
            f"step {step}/{self._job.num_steps} | loss {mean['loss']:.4f} policy {mean['policy_loss']:.4f} "
            f"value {mean['value_loss']:.4f} | top-1 {mean['policy_top1']:.1%} | "
            f"lr {rate:.2e} | {speed:,.0f} samples/s | {seen}ETA {duration(left_s)} | "
            f"{devices}: {world_size}",
            Topic.STEP,
            {"step": step, "num_steps": self._job.num_steps, **mean, "learning_rate": rate}
            | {"samples_per_s": speed, "eta_s": round(left_s)},
        )
        self._console.note_bar(f"loss {mean['loss']:.3f}", left_s)


def step_figures(sums: list[float], loss: LossConfig) -> dict[str, float]:
    """Means over positions from sums in SUM_NAMES' order, and the weighted loss."""
    named = dict(zip(SUM_NAMES, sums, strict=False))
    count = named["positions"]
    total = weighted_loss(loss, named["policy"], named["value"], named["moves_left"])
    return {
        "loss": total / count,
        "policy_loss": named["policy"] / count,
        "value_loss": named["value"] / count,
        "moves_left_loss": named["moves_left"] / count,
        "policy_top1": named["top1"] / count,
        "value_mse": named["value_squared_error"] / count,
    }


Figures = Mapping[str, float]


def describe_validation(figures: Figures, before: Figures | None = None) -> str:
    """The figures of a validation. before: of the one before, for the changes in brackets."""
    before = before or {}

    def share(name: str) -> str:
        figure = figures.get(name, math.nan)  # one that was read back is missing where it was not finite
        change = f" ({signed(100 * (figure - before[name]), 2)})" if name in before else ""
        return f"{figure:.2%}{change}"

    def number(name: str) -> str:
        figure = figures.get(name, math.nan)
        change = f" ({signed(figure - before[name], 4)})" if name in before else ""
        return f"{figure:.4f}{change}"

    parts = []
    if "policy_loss" in figures:
        parts = [
            f"top-1 {share('policy_top1')} top-5 {share('policy_top5')}",
            f"policy loss {number('policy_loss')}",
            f"value loss {number('value_loss')} mse {number('value_mse')}",
        ]
    if "move_error" in figures:
        parts.append(f"moves that err against exact truth {share('move_error')}")
    return " | ".join(parts)
