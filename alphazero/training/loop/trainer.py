"""The training loop of one rank: steps, validation, checkpoints, and what to do when a step goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag, auto

import torch

from alphazero.config import to_table
from alphazero.errors import CheckpointError, TrainingError
from alphazero.games.batch import MicroBatch
from alphazero.host.memory import HostMemory
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.run.console import Console
from alphazero.run.heartbeat import HeartbeatWriter
from alphazero.run.metrics import MetricWriter
from alphazero.training.batch.memory_probe import is_out_of_memory
from alphazero.training.batch_plan import BatchPlan, micro_batch_sizes
from alphazero.training.checkpoint import files as checkpoint_files
from alphazero.training.checkpoint.checkpoint import Checkpoint, TrainingState
from alphazero.training.checkpoint.writer import CheckpointWriter
from alphazero.training.engine.engine import Engine
from alphazero.training.exchange import Exchange
from alphazero.training.loop.data_source import DataSource, SourceState
from alphazero.training.loop.job import Job
from alphazero.training.loop.progress import NUM_SUMS, Progress, StepSums
from alphazero.training.loop.schedule import Rhythm, learning_rate
from alphazero.training.loop.stop import StopRequest

# Figures of the network on positions held out, by name.
Validate = Callable[[AlphaZeroNet], Mapping[str, float]]


class Outcome(Enum):
    """How a run of the trainer ended."""

    FINISHED = auto()
    STOPPED = auto()  # by a signal, after a checkpoint
    DIVERGED = auto()  # too many steps in a row without finite gradients


class Wish(IntFlag):
    """What a rank wants the others to know at the end of its passes of a step."""

    NOTHING = 0
    STOP = auto()  # a signal came
    SAVE = auto()  # rank 0's clock: a checkpoint is due
    FAULT = auto()  # its last checkpoint could not be written
    MEMORY = auto()  # the device's memory did not hold a micro-batch
    NOT_FINITE = auto()  # loss or gradients are not
    HOST_MEMORY = auto()  # the host is about to run out of memory


@dataclass(frozen=True)
class Crew:
    """Those a trainer works with. writer: None on ranks that write no checkpoints."""

    source: DataSource
    validate: Validate
    exchange: Exchange
    metrics: MetricWriter
    console: Console
    heartbeat: HeartbeatWriter
    stop: StopRequest
    writer: CheckpointWriter | None
    host_memory: HostMemory


@dataclass
class Position:
    """Where a run stands. data_offset: steps the data order is ahead of the step count (see rollbacks)."""

    step: int
    data_offset: int = 0
    skipped_steps: int = 0
    elapsed_s: float = 0.0  # of earlier starts of the run
    saved_step: int = field(init=False)

    def __post_init__(self) -> None:
        self.saved_step = self.step


class Trainer:
    """Runs the steps of a job on this rank."""

    def __init__(self, job: Job, plan: BatchPlan, position: Position, engine: Engine, crew: Crew) -> None:
        self._job = job
        self.plan = plan
        self.position = position
        self._engine = engine
        self._exchange = crew.exchange
        self._console = crew.console
        self._crew = crew
        self._started = time.monotonic()
        self._progress = Progress(job, crew.exchange, crew.metrics, crew.console, self.elapsed_s)
        self._saves = Rhythm.parse(job.config.training.checkpoint_interval)
        self._last_save = time.monotonic()
        self._bad_in_a_row = 0

    def run(self) -> Outcome:
        """Train from the position to the end, or until a signal or too many bad steps end it earlier."""
        position, num_steps = self.position, self._job.num_steps
        self.confirm_synchronized(f"start at step {position.step}")
        self._console.start_bar(position.step, num_steps)
        self._progress.restart_clock()
        wishes = Wish.NOTHING
        try:
            while position.step < num_steps and not wishes & (Wish.STOP | Wish.FAULT | Wish.HOST_MEMORY):
                until = self._prepare_data()
                if until is None:
                    wishes = Wish.STOP
                    break
                wishes = self._run_plan(until)
                if self._has_diverged():
                    return Outcome.DIVERGED
        finally:
            self._console.end_bar()
        if position.step < num_steps and wishes & Wish.STOP:
            self._console.say(f"stopping: a signal came during step {position.step}")
        if position.saved_step != position.step and not wishes & Wish.FAULT:
            self.save({})
        self._settle()
        self._crew.heartbeat.beat(position.step, "end")
        if wishes & Wish.HOST_MEMORY and position.step < num_steps:
            raise self._shared(TrainingError("a host is out of memory, see above; the run can be resumed"))
        return Outcome.FINISHED if position.step == num_steps else Outcome.STOPPED

    def _prepare_data(self) -> int | None:
        """Have data made; the step until which it lasts, None where a signal asked for the end."""
        before = time.monotonic()
        until = self._crew.source.prepare(self.position.step, self._engine.inference_tensors)
        self._progress.pause(time.monotonic() - before)
        return None if until is None else min(until, self._job.num_steps)

    def _run_plan(self, until: int) -> Wish:
        """Steps under the present plan, to step `until` or a wish that no step can follow."""
        position = self.position
        first, last = position.step + position.data_offset, until + position.data_offset
        for micro_batches in self._crew.source.steps(self.plan, first, last):
            self._crew.heartbeat.beat(position.step, "step")
            wishes = self._train_step(micro_batches)
            if wishes & Wish.MEMORY:
                return wishes
            self._console.advance_bar()
            self._after_step(wishes)
            if self._has_diverged() or wishes & (Wish.STOP | Wish.FAULT | Wish.HOST_MEMORY):
                return wishes
        return Wish.NOTHING

    def _train_step(self, micro_batches: list[MicroBatch]) -> Wish:
        """One step of all ranks, or none of it where one rank's memory did not hold it; all ranks' wishes."""
        position, count = self.position, self.plan.num_micro_batches
        sums = torch.zeros(NUM_SUMS, dtype=torch.float64, device=self._job.runtime.device)
        passes = self._make_passes(micro_batches, sums)
        ranks_by_wish = self._all_wishes(passes | self._own_wishes())
        wishes = Wish.NOTHING
        for wish in ranks_by_wish:
            wishes |= wish
        if wishes & Wish.MEMORY:
            self._take_smaller_micro_batches(ranks_by_wish[Wish.MEMORY])
            return wishes
        scale = self._engine.loss_scale.scale
        rate = learning_rate(
            self._job.config.optimizer, self._job.batch_size, position.step, self._job.num_steps
        )
        is_bad = bool(wishes & Wish.NOT_FINITE)
        self._engine.finish_step(position.step, rate, count, skip=is_bad)
        position.step += 1
        if is_bad:
            self._count_bad_step(ranks_by_wish[Wish.NOT_FINITE], scale)
        else:
            self._bad_in_a_row = 0
            figures = {"loss_scale": scale} if self._job.config.training.precision == "fp16" else {}
            self._progress.add(StepSums(position.step, sums, figures))
        return wishes

    def _make_passes(self, micro_batches: list[MicroBatch], sums: torch.Tensor) -> Wish:
        """Forward and backward passes of this rank, their figures added to `sums`."""
        try:
            for micro_batch in micro_batches:
                terms = self._engine.accumulate(micro_batch, self.plan.num_micro_batches)
                if not micro_batch.is_padding:
                    sums[:-1] += terms.sums
                    sums[-1] += float(micro_batch.batch.sample_id.sum())
            return Wish.NOTHING if self._engine.gradients_are_finite() else Wish.NOT_FINITE
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if self.plan.equal_passes:
                # The other ranks wait for this one within the pass: no way back into step with them.
                raise TrainingError(
                    f"rank {self._exchange.rank} is out of device memory in step {self.position.step + 1}: "
                    f"ZeRO 2 and 3 cannot go on from there; expected --micro-batch-size below "
                    f"{self.plan.micro_batch_size}"
                ) from error
        return Wish.MEMORY

    def _own_wishes(self) -> Wish:
        crew = self._crew
        wishes = Wish.STOP if crew.stop.requested else Wish.NOTHING
        if crew.writer and crew.writer.fault:
            wishes |= Wish.FAULT
        if self._job.runtime.is_main and self._saves.is_over(time.monotonic() - self._last_save):
            wishes |= Wish.SAVE
        if self._is_log_step(self.position.step):
            memory = crew.host_memory.check()
            if memory.is_low and self._job.runtime.local_rank == 0:
                self._console.alarm(str(memory))
            if memory.is_critical:
                wishes |= Wish.HOST_MEMORY
        return wishes

    def _all_wishes(self, own: Wish) -> dict[Wish, list[int]]:
        """Which ranks wish what."""
        numbers = self._exchange.numbers(int(own))
        return {
            wish: ranks
            for wish in Wish
            if (ranks := [rank for rank, number in enumerate(numbers) if number & wish])
        }

    def _take_smaller_micro_batches(self, ranks: list[int]) -> None:
        """Cut the same global batch finer: into the next smaller size, which the next try may cut again."""
        self._engine.abandon_step()
        before = self.plan.micro_batch_size
        smaller = [size for size in micro_batch_sizes(self.plan.batch_size) if size < before]
        where = f"out of device memory on rank {', '.join(map(str, ranks))} in step {self.position.step + 1}"
        if not smaller:
            raise self._shared(
                TrainingError(f"{where} with micro-batches of one position; no smaller there is")
            )
        self.plan = self.plan.with_micro_batch_size(smaller[-1])
        self._console.say(
            f"changed arithmetic: {where}: micro-batches of {smaller[-1]}, were {before}; "
            f"the global batch stays {self.plan}"
        )

    def _count_bad_step(self, ranks: list[int], scale: float) -> None:
        self.position.skipped_steps += 1
        step, names = self.position.step, ", ".join(map(str, ranks))
        if scale > 1:
            # fp16 probes for the largest scale that works: an overflow is how it learns.
            self._console.say(
                f"step {step} skipped: fp16 overflow on rank {names}; "
                f"loss scale {scale:g} -> {self._engine.loss_scale.scale:g}"
            )
            return
        self._bad_in_a_row += 1
        limit = self._job.config.training.max_skipped_steps
        self._console.say(
            f"step {step} skipped: loss or gradients not finite on rank {names} "
            f"({self._bad_in_a_row} in a row, limit {limit})"
        )

    def elapsed_s(self) -> float:
        """Wall time of the run, its earlier starts included."""
        return self.position.elapsed_s + time.monotonic() - self._started

    def _has_diverged(self) -> bool:
        return self._bad_in_a_row >= self._job.config.training.max_skipped_steps

    def _is_log_step(self, step: int) -> bool:
        return step == self._job.num_steps or step % self._job.config.training.log_interval == 0

    def _after_step(self, wishes: Wish) -> None:
        """Figures, validation and checkpoint where they are due."""
        training, step = self._job.config.training, self.position.step
        is_last = step == self._job.num_steps
        if self._is_log_step(step):
            self._progress.write(step)
        figures: Mapping[str, float] = {}
        if training.validation_interval and (is_last or step % training.validation_interval == 0):
            figures = self.validate()
        is_due = self._saves.is_due(step) or bool(wishes & Wish.SAVE) or (figures and self._is_best(figures))
        # Not amid bad steps: the checkpoint to return to is one from before them.
        if is_last or (is_due and not self._bad_in_a_row):
            self.save(figures)

    def _is_best(self, figures: Mapping[str, float]) -> bool:
        """True where a best-of checkpoint is to be made; asked of rank 0's directory."""
        better: tuple[str, ...] = ()
        if self._job.runtime.is_main:
            better = checkpoint_files.improved(self._job.run.checkpoints, figures)
        return bool(self._exchange.from_main(better))

    def validate(self) -> Mapping[str, float]:
        """Measure the network on held-out positions and write the figures; the same on all ranks."""
        step, loss = self.position.step, self._job.config.loss
        self._progress.write(step)
        self._crew.heartbeat.beat(step, "validate")
        with self._engine.evaluating() as network:
            figures = dict(self._crew.validate(network))
        if "policy_loss" in figures:
            figures["composite"] = (
                loss.policy_weight * figures["policy_loss"] + loss.value_weight * figures["value_loss"]
            )
        if figures:
            if self._job.runtime.is_main:
                self._crew.metrics.write("validation", step, figures)
            self._console.say(f"validation at step {step} | {describe_validation(figures)}")
        self._progress.restart_clock()
        return figures

    def confirm_synchronized(self, when: str) -> dict[str, torch.Tensor]:
        """Prove by checksum that all ranks hold the same network; its whole tensors. Collective."""
        tensors = dict(self._engine.named_tensors())
        digest = self._exchange.require_equal(tensors.items(), when)
        self._console.say(
            f"{when}: parameters synchronized, checksum {digest:016x} on {self._exchange.world_size} ranks"
        )
        return tensors

    def save(self, figures: Mapping[str, float]) -> None:
        """Hand a checkpoint of this moment to the writers; they write while training goes on."""
        step = self.position.step
        # Before the weights: a run that goes on from here must not miss the figures of its past.
        self._progress.write(step)
        self._crew.heartbeat.beat(step, "checkpoint")
        tensors = self.confirm_synchronized(f"checkpoint at step {step}")
        optimizer = self._engine.optimizer_state()
        averaged = self._engine.averaged_tensors(tensors)
        elapsed_s = self._exchange.from_main(self.elapsed_s())  # hosts write the same checkpoint
        if self._crew.writer:
            source = self._crew.source.state()
            state = self._state(figures, source, elapsed_s)
            self._crew.writer.submit(
                Checkpoint(
                    state,
                    _copies(tensors),
                    _copies(optimizer),
                    averaged and _copies(averaged),
                    source.lanes,
                    source.champion,
                )
            )
        self.position.saved_step = step
        self._last_save = time.monotonic()

    def _state(self, figures: Mapping[str, float], source: SourceState, elapsed_s: float) -> TrainingState:
        job, position = self._job, self.position
        training = job.config.training
        return TrainingState(
            step=position.step,
            num_steps=job.num_steps,
            seed=training.seed,
            batch_size=job.batch_size,
            micro_batch_size=self.plan.micro_batch_size,
            window_id=source.window_id,
            world_size=self.plan.world_size,
            config=to_table(job.config),
            zero_stage=training.zero_stage,
            precision=training.precision,
            data_offset=position.data_offset,
            skipped_steps=position.skipped_steps,
            loss_scale=self._engine.loss_scale.state(),
            elapsed_s=elapsed_s,
            figures=dict(figures),
            self_play=source.self_play,
        )

    def _settle(self) -> None:
        """Wait until all checkpoints are on disk; CheckpointError on all ranks where one is not."""
        writer, fault = self._crew.writer, ""
        if writer:
            writer.wait()
            fault = str(writer.fault or "")
        if faults := [text for text in self._exchange.gather(fault) if text]:
            raise self._shared(CheckpointError(faults[0]))

    @staticmethod
    def _shared(error: TrainingError | CheckpointError) -> TrainingError | CheckpointError:
        error.found_by_all_ranks = True
        return error


def describe_validation(figures: Mapping[str, float]) -> str:
    """The figures of a validation in a line."""
    parts = []
    if "policy_loss" in figures:
        parts = [
            f"top-1 {figures['policy_top1']:.2%} top-5 {figures['policy_top5']:.2%}",
            f"policy loss {figures['policy_loss']:.4f}",
            f"value loss {figures['value_loss']:.4f} mse {figures['value_mse']:.4f}",
        ]
    if "move_error" in figures:
        parts.append(f"moves that err against exact truth {figures['move_error']:.2%}")
    return " | ".join(parts)


def _copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same on the same device in memory of their own: training changes the originals."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
