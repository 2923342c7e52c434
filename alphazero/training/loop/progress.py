"""The figures of a run's steps: shared over ranks, written, and told to people."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from alphazero.config import LossConfig
from alphazero.network.model.loss import SUM_NAMES
from alphazero.run.log_line import Topic
from alphazero.run.work import duration
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.loop.job import Job
from alphazero.training.loop.schedule import learning_rate
from alphazero.training.loop.services import RankServices
from alphazero.training.loop.time_left import TimeLeft
from alphazero.training.usage.job_usage import JobUsage
from alphazero.training.usage.part_clock import Part, PartClock

# Of a step: SUM_NAMES, then the sum of its sample ids (so that two runs can be told apart).
NUM_SUMS = len(SUM_NAMES) + 1


@dataclass(frozen=True)
class StepSums:
    """What step number `step` (from 1) added up on this rank, and what all ranks know of it."""

    step: int
    sums: torch.Tensor  # f64 [NUM_SUMS], on the device
    figures: dict[str, float] = field(default_factory=dict)


class Progress:
    """Collects steps and says them every so often; silent but on rank 0. Its methods are collective."""

    def __init__(
        self,
        job: Job,
        services: RankServices,
        elapsed_s: Callable[[], float],
        clock: PartClock,
    ) -> None:
        """elapsed_s: wall time of the run so far. clock: what this rank's time goes into."""
        runtime = job.runtime
        self._clock = clock
        self._usage = JobUsage(
            clock,
            services.exchange.rank,
            services.exchange.world_size,
            services.gpus,
            services.hosts,
            gradients_are_kernels=runtime.backend == "nccl",
        )
        self._alarms = services.alarms
        self._elapsed_s = elapsed_s
        self._job = job
        self._exchange = services.exchange
        self._metrics = services.metrics
        self._console = services.console
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
            self._time_left.add_pause(what, seconds, every)

    def add(self, step: StepSums) -> None:
        """Keep a step's sums; no rank waits here."""
        self._pending.append(step)

    def write(self, step: int, plan: BatchPlan) -> None:
        """Share and write the figures of the steps up to `step`, made by `plan`, since the last call."""
        seconds = time.monotonic() - self._started
        self.restart_clock()
        if not self._pending:
            return
        sums, usage = self._share(torch.stack([entry.sums for entry in self._pending]))
        pending, self._pending = self._pending, []
        if not self._job.runtime.is_main:
            return
        for entry, row in zip(pending, sums, strict=True):
            figures = step_figures(row.tolist(), self._job.config.loss)
            figures["learning_rate"] = self._learning_rate(entry.step)
            figures["sample_id_sum"] = float(row[-1])
            self._metrics.write("step", entry.step, figures | entry.figures)
            self._alarms.note_training(figures)
            self._count_epoch(entry.step, row)
        told = self._usage.tell(usage, step, self._metrics)
        self._say(step, sums, seconds, told.words)
        self._alarms.look_at_interval(step, len(pending), seconds, told, plan)

    def _share(self, sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What all ranks added up in their steps, and what their time went into: one message. Collective."""
        own = torch.cat([sums.detach().to("cpu", torch.float64).flatten(), self._usage.message()])
        with self._clock.part(Part.MESSAGES):
            total = self._exchange.sum(own)
        return total[: sums.numel()].view(sums.shape), total[sums.numel() :]

    def _count_epoch(self, step: int, sums: torch.Tensor) -> None:
        """Add a step to the epoch's means; tell them when step `step` ends it. A growing window has none."""
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

    def _learning_rate(self, step: int) -> float:
        """Of step number `step`, counted from 1."""
        job = self._job
        return learning_rate(job.config.optimizer, job.batch_size, step - 1, job.num_steps)

    def _say(self, step: int, sums: torch.Tensor, seconds: float, usage: str) -> None:
        """One line over the steps whose `sums` these are, their speed, and what their time went into."""
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
        self._time_left.add_steps(len(sums), seconds)
        left_s = self._time_left.seconds(step) or 0.0
        rate = self._learning_rate(step)
        devices = "GPUs" if self._job.runtime.device.type == "cuda" else "CPU ranks"
        self._console.say(
            f"step {step}/{self._job.num_steps} | loss {mean['loss']:.4f} policy {mean['policy_loss']:.4f} "
            f"value {mean['value_loss']:.4f} | top-1 {mean['policy_top1']:.1%} | "
            f"lr {rate:.2e} | {speed:,.0f} samples/s | {usage}ETA {duration(left_s)} | "
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
    total = (
        loss.policy_weight * named["policy"]
        + loss.value_weight * named["value"]
        + loss.moves_left_weight * named["moves_left"]
    )
    return {
        "loss": total / count,
        "policy_loss": named["policy"] / count,
        "value_loss": named["value"] / count,
        "moves_left_loss": named["moves_left"] / count,
        "policy_top1": named["top1"] / count,
        "value_mse": named["value_squared_error"] / count,
    }
