"""The training loop of one rank: steps, validation, checkpoints, figures, stopping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch

from alphazero.config import Config, to_table
from alphazero.console import Console
from alphazero.data.batch import MicroBatch
from alphazero.errors import AlphaZeroError, CheckpointError
from alphazero.heartbeat import HeartbeatWriter
from alphazero.metrics import MetricWriter
from alphazero.network.loss import SUM_NAMES
from alphazero.network.resnet import AlphaZeroNet
from alphazero.network.weights import WeightsFile, weights_file_name, write_weights
from alphazero.run_directory import RunDirectory
from alphazero.runtime import Runtime
from alphazero.training import checkpoint as checkpoints
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.deepspeed_engine import Engine
from alphazero.training.exchange import Exchange
from alphazero.training.schedule import learning_rate
from alphazero.training.stop import StopRequest

# Figures of the network on positions held out, by name.
Validate = Callable[[AlphaZeroNet], Mapping[str, float]]
# Steps first..last-1 of this rank, each the list of its micro-batches.
Steps = Callable[[int, int], Iterable[list[MicroBatch]]]


@dataclass(frozen=True)
class Job:
    """What one rank trains, and with whom."""

    config: Config
    runtime: Runtime
    run: RunDirectory
    plan: BatchPlan
    num_steps: int
    num_samples: int  # of the window: an epoch
    window_id: str


class Trainer:
    """Runs the steps of a job on this rank."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        steps: Steps,
        validate: Validate,
        exchange: Exchange,
        writer: MetricWriter,
        console: Console,
        heartbeat: HeartbeatWriter,
        stop: StopRequest,
    ) -> None:
        self._job = job
        self._engine = engine
        self._steps = steps
        self._validate = validate
        self._exchange = exchange
        self._writer = writer
        self._console = console
        self._heartbeat = heartbeat
        self._stop = stop
        self._pending: list[torch.Tensor] = []  # sums of steps that were not yet written
        self._started = time.monotonic()  # of the first of these
        self._epoch = torch.zeros(len(SUM_NAMES) + 1, dtype=torch.float64)  # sums since its first step here

    def run(self, first_step: int) -> bool:
        """Train from `first_step` to the end; False if a signal stopped it earlier (after a checkpoint)."""
        training, num_steps = self._job.config.training, self._job.num_steps
        self.confirm_synchronized(f"start at step {first_step}")
        self._console.start_bar(first_step, num_steps)
        saved_step, step = first_step, first_step
        self._started = time.monotonic()
        for micro_batches in self._steps(first_step, num_steps):
            self._heartbeat.beat(step, "step")
            if not self._train_step(step, micro_batches):
                break
            step += 1
            is_last = step == num_steps
            if is_last or step % training.log_interval == 0:
                self._write_steps(step)
            if training.validation_interval and (is_last or step % training.validation_interval == 0):
                self.validate(step)
            if is_last or step % int(training.checkpoint_interval) == 0:
                self.save(step)
                saved_step = step
        self._console.end_bar()
        if step < num_steps:
            self._console.say(f"stopping: a signal came during step {step + 1}")
            if saved_step != step:
                self.save(step)
        self._heartbeat.beat(step, "end")
        return step == num_steps

    def _train_step(self, step: int, micro_batches: list[MicroBatch]) -> bool:
        """One step; False, with the weights as they were, if any rank was asked to stop meanwhile."""
        rate = self._learning_rate(step)
        sums = torch.zeros(len(SUM_NAMES) + 1, dtype=torch.float64, device=self._job.runtime.device)
        for micro_batch in micro_batches:
            if self._exchange.any(self._stop.requested):
                return False
            terms = self._engine.accumulate(micro_batch)
            if not micro_batch.is_padding:
                sums[:-1] += terms.sums
                sums[-1] += float(micro_batch.batch.sample_id.sum())
            self._engine.finish_pass(rate)
        self._pending.append(sums)
        self._console.advance_bar()
        return True

    def _write_steps(self, step: int) -> None:
        """Share the figures of the steps since the last call over ranks, and write them."""
        seconds = time.monotonic() - self._started
        self._started = time.monotonic()
        if not self._pending:
            return
        sums = self._exchange.sum(torch.stack(self._pending))
        first = step - len(self._pending)
        self._pending.clear()
        if not self._job.runtime.is_main:
            return
        for number, row in enumerate(sums, start=first + 1):
            figures = step_figures(row.tolist(), self._job.config)
            figures["learning_rate"] = self._learning_rate(number - 1)
            figures["sample_id_sum"] = float(row[-1])
            self._writer.write("step", number, figures)
            self._count_epoch(number, row)
        self._say_progress(step, sums, seconds)

    def _count_epoch(self, step: int, sums: torch.Tensor) -> None:
        """Add a step to the epoch's means; tell them when step `step` ends it."""
        self._epoch += sums
        batch_size, num_samples = self._job.plan.batch_size, self._job.num_samples
        epoch = step * batch_size // num_samples
        if epoch > (step - 1) * batch_size // num_samples:
            figures = step_figures(self._epoch.tolist(), self._job.config)
            self._writer.write("epoch", epoch, figures)
            self._console.say(
                f"epoch {epoch} ended in step {step} | mean over all ranks: loss {figures['loss']:.4f} "
                f"policy {figures['policy_loss']:.4f} value {figures['value_loss']:.4f} | "
                f"top-1 {figures['policy_top1']:.2%}"
            )
            self._epoch.zero_()

    def _learning_rate(self, step: int) -> float:
        job = self._job
        return learning_rate(job.config.optimizer, job.plan.batch_size, step, job.num_steps)

    def _say_progress(self, step: int, sums: torch.Tensor, seconds: float) -> None:
        """One line over the steps whose `sums` these are, and their speed."""
        mean = step_figures(sums.sum(0).tolist(), self._job.config)
        speed = len(sums) * self._job.plan.batch_size / max(seconds, 1e-9)
        world_size = self._job.runtime.world_size
        self._writer.write(
            "speed", step, {"samples_per_s": speed, "samples_per_s_per_rank": speed / world_size}
        )
        remaining = timedelta(seconds=round((self._job.num_steps - step) * seconds / len(sums)))
        devices = "GPUs" if self._job.runtime.device.type == "cuda" else "CPU ranks"
        self._console.say(
            f"step {step}/{self._job.num_steps} | loss {mean['loss']:.4f} policy {mean['policy_loss']:.4f} "
            f"value {mean['value_loss']:.4f} | top-1 {mean['policy_top1']:.1%} | "
            f"lr {self._learning_rate(step - 1):.2e} | {speed:,.0f} samples/s | ETA {remaining} | "
            f"{devices}: {world_size}"
        )

    def validate(self, step: int) -> None:
        """Measure the network on held-out positions and write the figures."""
        self._write_steps(step)
        self._heartbeat.beat(step, "validate")
        with self._engine.evaluating() as network:
            figures = self._validate(network)
        if self._job.runtime.is_main and figures:
            self._writer.write("validation", step, figures)
            self._console.say(
                f"validation at step {step} | top-1 {figures['policy_top1']:.2%} "
                f"top-5 {figures['policy_top5']:.2%} | policy loss {figures['policy_loss']:.4f} | "
                f"value loss {figures['value_loss']:.4f} mse {figures['value_mse']:.4f}"
            )
        self._started = time.monotonic()

    def confirm_synchronized(self, when: str) -> dict[str, torch.Tensor]:
        """Prove by checksum that all ranks hold the same network; its whole tensors. Collective."""
        tensors = dict(self._engine.named_tensors())
        digest = self._exchange.require_equal(tensors.items(), when)
        self._console.say(
            f"{when}: parameters synchronized, checksum {digest:016x} on {self._exchange.world_size} ranks"
        )
        return tensors

    def save(self, step: int) -> None:
        """Checkpoint and newest weights, written by rank 0; all ranks go on when they are on disk."""
        # Before the weights: a run that goes on from here must not miss the figures of its past.
        self._write_steps(step)
        self._heartbeat.beat(step, "checkpoint")
        tensors = self.confirm_synchronized(f"checkpoint at step {step}")
        optimizer = self._engine.state.optimizer_state()
        fault = ""
        if self._job.runtime.is_main:
            try:
                self._write(step, tensors, optimizer)
            except AlphaZeroError as error:
                fault = str(error)
        if fault := self._exchange.from_main(fault):
            shared_fault = CheckpointError(fault)
            shared_fault.found_by_all_ranks = True
            raise shared_fault
        self._started = time.monotonic()

    def _write(self, step: int, tensors: dict[str, torch.Tensor], optimizer: dict[str, torch.Tensor]) -> None:
        job = self._job
        state = checkpoints.TrainingState(
            step=step,
            num_steps=job.num_steps,
            seed=job.config.training.seed,
            batch_size=job.plan.batch_size,
            micro_batch_size=job.plan.micro_batch_size,
            window_id=job.window_id,
            world_size=job.plan.world_size,
            config=to_table(job.config),
        )
        # The weights file first: a run killed between the two finds its checkpoint and makes both again.
        network = job.config.network
        write_weights(
            job.run.path / weights_file_name(network),
            WeightsFile(network, tensors, {"step": step, "run": job.run.path.name}),
        )
        path = checkpoints.save(job.run.checkpoints, checkpoints.Checkpoint(state, tensors, optimizer))
        checkpoints.prune(job.run.checkpoints, job.config.training.keep_checkpoints)
        self._console.say(f"saved {path}")


def step_figures(sums: list[float], config: Config) -> dict[str, float]:
    """Means over positions from sums in SUM_NAMES' order, and the weighted loss."""
    named = dict(zip(SUM_NAMES, sums, strict=False))
    count = named["positions"]
    loss = config.loss
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
