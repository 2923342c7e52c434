"""The training loop of one rank: steps, validation, checkpoints, and what to do when a step goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch

from alphazero.base.errors import TrainingError
from alphazero.base.log import Topic
from alphazero.base.text import counted
from alphazero.games.batch import MicroBatch
from alphazero.machine.memory import memory_error, read_memory
from alphazero.network.inference.kernels import kernels_in_use
from alphazero.network.model.attention import AttentionBody
from alphazero.network.model.layers import SqueezeExcitation
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, Tensors, TrainingState
from alphazero.run import checkpoint_files
from alphazero.run.rank import Phase
from alphazero.settings.load import to_table
from alphazero.training.engine.engine import Engine
from alphazero.training.loop.job import (
    DataSource,
    Job,
    Position,
    RankServices,
    SourceState,
    TrainingOutcome,
)
from alphazero.training.loop.part_clock import Part
from alphazero.training.loop.progress import (
    GRAPHED_PASSES,
    NUM_SUMS,
    SAMPLE_IDS,
    Progress,
    StepSums,
    describe_validation,
)
from alphazero.training.loop.stop import LAST_EVENTS, Event
from alphazero.training.ranks.batch import BatchPlan, micro_batch_sizes

# Figures of the network on positions held out, by name.
Validate = Callable[[AlphaZeroNet, int], Mapping[str, float]]


class Trainer:
    """Runs the steps of a job on this rank."""

    def __init__(
        self,
        job: Job,
        plan: BatchPlan,
        position: Position,
        engine: Engine,
        source: DataSource,
        validate: Validate,
        services: RankServices,
        last_validation: Mapping[str, float] | None = None,
    ) -> None:
        """last_validation: figures of an earlier start, which the next validation is compared with."""
        self._job = job
        self.plan = plan
        self.position = position
        self._engine = engine
        self._source = source
        self._validate = validate
        self._services = services
        self._exchange = services.exchange
        self._console = services.console
        self._started = time.monotonic()
        self._clock = services.clock
        self._progress = Progress(job, services, self.elapsed_s)
        engine.time_communication(lambda: self._clock.part(Part.GRADIENTS))
        interval = job.config.training.checkpoint_interval  # 1000 (steps) or 30m (minutes)
        self._save_steps = 0 if interval.endswith("m") else int(interval)
        self._save_s = 60.0 * int(interval[:-1]) if interval.endswith("m") else 0.0
        self._last_save = time.monotonic()
        self._saved_step = position.step
        self._bad_in_a_row = 0
        self._is_new_plan = True  # its first step compiles, and tries the memory
        self._last_validation: Mapping[str, float] | None = last_validation
        self._unread: StepSums | None = None  # whose figures were not read yet
        # Where the host runs ahead, a log line waits for the verdict that is read in the next step anyway.
        self._writes_late = all(self._exchange.numbers(int(engine.is_told_late)))
        self._due_line: int | None = None  # the step that it is about
        self._scale_before, self._was_at_minimum = 1.0, True  # the loss scale of that step

    def run(self) -> TrainingOutcome:
        """Train from the position to the end, or until a signal or too many bad steps end it earlier."""
        position, num_steps = self.position, self._job.num_steps
        self.confirm_synchronized(f"start at step {position.step}")
        self._console.start_bar(position.step, num_steps)
        self._progress.restart_clock()
        training = self._job.config.training
        if position.step == 0 and training.init_weights and training.validation_interval:
            self.validate()  # of the weights given: what fine-tuning is measured against
        events = Event.NONE
        until: int | None = 0
        try:
            with self._clock.part(Part.HOST):
                while position.step < num_steps and not events & LAST_EVENTS:
                    until = self._prepare_data()
                    if until is None:
                        events = Event.STOP
                        break
                    self._profile_at(position.step)
                    events = self._run_plan(until)
                    if self._has_diverged():
                        return TrainingOutcome.DIVERGED
        finally:
            self._console.end_bar()
        if position.step < num_steps and events & Event.STOP and until is not None:  # else its source said so
            self._console.say(f"stopping: a signal came during step {position.step}", Topic.END)
        if self._saved_step != position.step and not events & Event.FAULT:
            self.save({})
        self._settle()
        self._beat(Phase.END)
        if events & Event.HOST_MEMORY and position.step < num_steps:
            raise TrainingError(
                "a host is out of memory, see above; the run can be resumed", found_by_all_ranks=True
            )
        return TrainingOutcome.FINISHED if position.step == num_steps else TrainingOutcome.STOPPED

    def _profile_at(self, step: int) -> None:
        if self._services.profile:
            self._services.profile.at(step)

    def _prepare_data(self) -> int | None:
        """Have data made; the step until which it lasts, None where a signal requested the end."""
        if self._due_line is not None:  # not after games that may take minutes
            self._write_figures(self._due_line)
        before = time.monotonic()
        self._beat(Phase.DATA)
        with self._clock.part(Part.APART):
            until = self._source.prepare(self.position.step, self._engine.inference_tensors)
        games = self._job.config.self_play
        is_game_time = games.mode != "supervised" and self.position.step >= games.pretraining_steps
        every = games.steps_per_generation if is_game_time else 0
        self._progress.pause(time.monotonic() - before, "self-play", every)
        return None if until is None else min(until, self._job.num_steps)

    def _run_plan(self, until: int) -> Event:
        """Steps under the present plan, to step `until` or an event that no step can follow."""
        position = self.position
        first, last = position.step + position.data_offset, until + position.data_offset
        for micro_batches in self._clock.waiting(self._source.steps(self.plan, first, last)):
            self._beat(Phase.PLAN if self._is_new_plan else Phase.STEP)
            before = position.step
            events = self._train_step(micro_batches)
            if position.step == before:
                return events
            self._is_new_plan = False
            self._services.start_clock.first_step_ended(self._job.runtime.device, self._console.say)
            self._console.advance_bar()
            self._after_step(events)
            self._profile_at(position.step)
            if self._has_diverged() or events & LAST_EVENTS:
                return events
        return Event.NONE

    def _train_step(self, micro_batches: list[MicroBatch]) -> Event:
        """One step of all ranks, or none of it where a rank's memory did not hold it; the events of all."""
        position, count = self.position, self.plan.num_micro_batches
        sums = torch.zeros(NUM_SUMS, dtype=torch.float64, device=self._job.runtime.device)
        with self._clock.part(Part.COMPUTE):
            passes = self._make_passes(micro_batches, sums)
        own = passes | self._own_events()
        with self._clock.part(Part.MESSAGES):
            by_rank = self._exchange.numbers(int(own))

        def ranks_with(event: Event) -> list[int]:
            return [rank for rank, number in enumerate(by_rank) if number & event]

        events = Event(sum(event for event in Event if ranks_with(event)))
        self._read_last_step()
        if self._due_line is not None:
            self._write_figures(self._due_line)
        if self._has_diverged():
            self._engine.abandon_step()
            return events
        if events & Event.MEMORY:
            self._take_smaller_micro_batches(ranks_with(Event.MEMORY))
            return events
        scale, was_at_minimum = self._engine.loss_scale.scale, self._engine.loss_scale.at_minimum
        rate = self._job.learning_rate(position.step)
        with self._clock.part(Part.COMPUTE):
            self._engine.finish_step(position.step, rate, count, ranks_with(Event.NOT_FINITE))
        position.step += 1
        figures = {"loss_scale": scale} if self._job.config.training.precision == "fp16" else {}
        self._unread = StepSums(position.step, sums, count, figures)
        self._scale_before, self._was_at_minimum = scale, was_at_minimum
        if not self._engine.is_told_late:
            self._read_last_step()
        return events

    def _read_last_step(self) -> None:
        """Count the last step as made or skipped, once; waits for the device."""
        step, self._unread = self._unread, None
        if step is None:
            return
        verdict = self._engine.take_verdict()
        if verdict.is_bad:
            self._count_bad_step(step.step, verdict.ranks)
        else:
            self._bad_in_a_row = 0
            if verdict.gradient_norm is not None:
                step.figures["gradient_norm"] = verdict.gradient_norm
            self._progress.add(step)

    def _write_figures(self, step: int) -> None:
        """Write the figures of all steps up to `step`; waits for the device. Collective."""
        self._read_last_step()
        self._due_line = None
        self._progress.write(step, self.plan)

    def _make_passes(self, micro_batches: list[MicroBatch], sums: torch.Tensor) -> Event:
        """Forward and backward passes of this rank, their figures added to `sums`."""
        try:
            for micro_batch in micro_batches:
                terms = self._engine.accumulate(micro_batch, self.plan.num_micro_batches)
                if not micro_batch.is_padding:
                    sums[:SAMPLE_IDS] += terms.sums
                    sums[SAMPLE_IDS] += float(micro_batch.batch.sample_id.sum())
                    if self._engine.last_pass_was_graphed:
                        sums[GRAPHED_PASSES] += 1.0
            return Event.NONE if self._engine.gradients_are_finite() else Event.NOT_FINITE
        except RuntimeError as error:
            if not memory_error(error):
                raise
            if self.plan.equal_passes:
                # The other ranks wait for this one within the pass: no way back into step with them.
                raise TrainingError(
                    f"rank {self._exchange.rank} is out of device memory in step {self.position.step + 1}: "
                    f"DeepSpeed's ZeRO 2 and 3 cannot continue from there; expected --micro-batch-size below "
                    f"{self.plan.micro_batch_size}"
                ) from error
        return Event.MEMORY

    def _own_events(self) -> Event:
        services = self._services
        events = Event.STOP if services.stop.requested else Event.NONE
        if services.writer and services.writer.fault:
            events |= Event.FAULT
        since_save_s = time.monotonic() - self._last_save
        if self._job.runtime.is_main and self._save_s and since_save_s >= self._save_s:
            events |= Event.SAVE
        if self._is_log_step(self.position.step):
            memory = read_memory()
            if memory.is_critical:
                self._console.alarm(f"out of memory: {self._job.runtime.host}: {memory}")
                events |= Event.HOST_MEMORY
        return events

    def _take_smaller_micro_batches(self, ranks: list[int]) -> None:
        """Cut the same global batch finer: into the next smaller size, which the next try may cut again."""
        self._engine.abandon_step()
        self._is_new_plan = True
        self._beat(Phase.PLAN)
        before = self.plan.micro_batch_size
        smaller = [size for size in micro_batch_sizes(self.plan.batch_size) if size < before]
        where = f"out of device memory on rank {', '.join(map(str, ranks))} in step {self.position.step + 1}"
        if not smaller:
            raise TrainingError(
                f"{where} with micro-batches of 1 position: they cannot be cut any smaller; "
                "expected a smaller network or more device memory",
                ranks=ranks,
                found_by_all_ranks=True,
            )
        self.plan = self.plan.with_micro_batch_size(smaller[-1])
        self._console.warn(
            f"changed arithmetic: {where}: micro-batches of {smaller[-1]}, were {before}; "
            f"the global batch stays {self.plan}"
        )

    def _count_bad_step(self, step: int, ranks: Sequence[int]) -> None:
        """Count a skipped step; a fault is one that no smaller loss scale would have helped."""
        self.position.skipped_steps += 1
        where = f"on rank {', '.join(map(str, ranks))}" if ranks else "in the sum over ranks"
        if not self._was_at_minimum:
            # fp16 probes for the largest scale that works: an overflow is how it learns.
            self._console.say(
                f"step {step} skipped: fp16 overflow {where}; "
                f"loss scale {self._scale_before:g} -> {self._engine.loss_scale.scale:g}"
            )
            return
        self._bad_in_a_row += 1
        limit = self._job.config.training.max_skipped_steps
        self._console.warn(
            f"step {step} skipped: loss or gradients not finite {where} "
            f"({self._bad_in_a_row} in a row, limit {limit})"
        )

    def elapsed_s(self) -> float:
        """Wall time of the run, its earlier starts included."""
        return self.position.elapsed_s + time.monotonic() - self._started

    def _has_diverged(self) -> bool:
        return self._bad_in_a_row >= self._job.config.training.max_skipped_steps

    def _is_log_step(self, step: int) -> bool:
        return step == self._job.num_steps or step % self._job.config.training.log_interval == 0

    def _after_step(self, events: Event) -> None:
        """Figures, validation and checkpoint where they are due."""
        training, step = self._job.config.training, self.position.step
        is_last = step == self._job.num_steps
        if self._is_log_step(step):
            self._due_line = step
            if not self._writes_late:
                self._write_figures(step)
        figures: Mapping[str, float] = {}
        if training.validation_interval and (is_last or step % training.validation_interval == 0):
            figures = self.validate()
        is_due = (self._save_steps > 0 and step % self._save_steps == 0) or bool(events & Event.SAVE)
        is_due = is_due or bool(figures and self._is_best(figures))
        if is_due or is_last:
            self._read_last_step()
        # Not amid bad steps: the checkpoint to return to is one from before them.
        if is_last or (is_due and not self._bad_in_a_row):
            self.save(figures)

    def _is_best(self, figures: Mapping[str, float]) -> bool:
        """True where a best-of checkpoint is to be made; asked of rank 0's directory."""
        better: tuple[str, ...] = ()
        if self._job.runtime.is_main:
            better = checkpoint_files.improved(figures, checkpoint_files.best_of(self._job.run.checkpoints))
        return bool(self._exchange.from_rank(0, better))

    def validate(self) -> Mapping[str, float]:
        """Measure the network on held-out positions and write the figures; the same on all ranks."""
        step, loss = self.position.step, self._job.config.loss
        self._write_figures(step)
        self._beat(Phase.VALIDATE)
        before = time.monotonic()
        with (
            self._clock.part(Part.APART),
            self._engine.evaluating() as network,
            self._console.working("validation"),
        ):
            figures = dict(self._validate(network, step))
        if "policy_loss" in figures:
            figures["composite"] = figures["policy_loss"] + loss.value_weight * figures["value_loss"]
        if figures:
            if self._job.runtime.is_main:
                self._services.metrics.write("validation", step, figures)
            text = f"validation at step {step} | {describe_validation(figures, self._last_validation)}"
            self._console.say(text, Topic.VALIDATION, {"step": step, **figures})
            self._last_validation = figures
        every = self._job.config.training.validation_interval
        self._progress.pause(time.monotonic() - before, "validation", every)
        return figures

    def confirm_synchronized(self, when: str) -> dict[str, torch.Tensor]:
        """Prove by checksum that all ranks hold the same network; its whole tensors. Collective."""
        tensors = dict(self._engine.named_tensors())
        digest = self._exchange.require_equal(tensors.items(), when)
        self._console.say(
            f"{when}: parameters synchronized, checksum {digest:016x} "
            f"on {counted(self._exchange.world_size, 'rank')}"
        )
        return tensors

    def save(self, figures: Mapping[str, float]) -> None:
        """Hand a checkpoint of this moment to the writers; they write while training continues."""
        step = self.position.step
        with self._clock.part(Part.CHECKPOINT):
            self._read_last_step()
            self._services.before_save(lambda: self._beat(Phase.CHECKPOINT))
            # Before the weights: a run that continues from here must not miss the figures of its past.
            self._write_figures(step)
            self._services.metrics.flush()
            self._beat(Phase.CHECKPOINT)
            tensors = self.confirm_synchronized(f"checkpoint at step {step}")
            optimizer = self._engine.optimizer_state()
            averaged = self._engine.averaged_tensors(tensors)
            elapsed_s = self._exchange.from_rank(0, self.elapsed_s())  # hosts write the same checkpoint
            if self._services.writer:
                source = self._source.state()
                # Copies on the same device: training changes the originals.
                checkpoint = Checkpoint(
                    self._state(source, elapsed_s, figures),
                    _copies(tensors),
                    _copies(optimizer),
                    averaged and _copies(averaged),
                    source.lanes,
                    source.champion,
                )
                self._services.writer.submit(checkpoint)
        self._saved_step = step
        self._last_save = time.monotonic()

    def _state(self, source: SourceState, elapsed_s: float, figures: Mapping[str, float]) -> TrainingState:
        """What a checkpoint says. elapsed_s: of the whole run. figures: of a validation at this step."""
        job, training = self._job, self._job.config.training
        return TrainingState(
            step=self.position.step,
            num_steps=job.num_steps,
            seed=training.seed,
            batch_size=job.batch_size,
            micro_batch_size=self.plan.micro_batch_size,
            window_id=source.window_id,
            world_size=self.plan.world_size,
            config=to_table(job.config),
            zero_stage=training.zero_stage,
            precision=training.precision,
            data_offset=self.position.data_offset,
            skipped_steps=self.position.skipped_steps,
            loss_scale=self._engine.loss_scale.state(),
            elapsed_s=elapsed_s,
            figures=dict(figures),
            self_play=source.self_play,
            num_threads=torch.get_num_threads(),
            kernels=kernels_in_use(),
            squeeze=SqueezeExcitation.trained_by,
            attention=AttentionBody.trained_by,
        )

    def _beat(self, phase: Phase) -> None:
        self._services.heartbeat.beat(phase, self.position.step)

    def _settle(self) -> None:
        """Wait until all checkpoints are on disk; CheckpointError on all ranks where one is not."""
        writer = self._services.writer
        if writer:
            self._beat(Phase.CHECKPOINT)
            writer.wait()
        self._exchange.raise_any(writer.fault if writer else None)


def _copies(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
