"""The DeepSpeed engine: the one place that imports deepspeed.

Trains the module of network and loss by micro-batches that weigh what they should on any
number of ranks, and gives weights and optimizer state as whole tensors.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import torch

from alphazero.base.errors import ConfigError, LostConnectionError
from alphazero.base.text import reason, shortened
from alphazero.games.batch import MicroBatch
from alphazero.launch.node.store import init_method, served_store
from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model.loss import LossTerms
from alphazero.network.model.planes import to_device
from alphazero.network.model.precision import DTYPES
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.network.weights.weights import network_of
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.deepspeed_keys import ZERO
from alphazero.settings.load import Config
from alphazero.training.engine.batch_norm import RunningStatistics, count_statistics
from alphazero.training.engine.deepspeed_config import deepspeed_stage, engine_config, keeps_gradients, prints
from alphazero.training.engine.gradients import (
    GOOD,
    NOT_TIMED,
    FlatGradients,
    GradientGuard,
    PartsOfZeroOne,
    StepVerdict,
    Timed,
    VerdictReader,
    is_told_late,
    time_collectives,
)
from alphazero.training.engine.graphed_network import why_no_graphs
from alphazero.training.engine.optimizer import (
    LossScale,
    SkippableMuon,
    make_optimizer,
    pieces_of,
    state_keys,
)
from alphazero.training.engine.training_module import TrainingModule
from alphazero.training.engine.zero_state import WeightAverage, ZeroState
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime

# The buffers of a BatchNorm: a counter comes last, and is not there in training (batch_norm.py).
LAST_STATISTIC, COUNTER = "running_var", "num_batches_tracked"
# A rank that is gone is noticed after this long; start-up on slow disks must fit in it.
COLLECTIVE_TIMEOUT = timedelta(minutes=10)


def start_process_group(runtime: Runtime) -> Exchange:
    """Join the job's process group (NCCL or gloo) and open the channel for small messages."""
    if runtime.device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    with _quiet_stderr():
        import deepspeed
        from deepspeed.utils import logger

        if runtime.device.type == "cpu":
            # Read first: it asks compilers what they can, and on GPUs prints what each op lacks.
            from deepspeed.ops import __compatible_ops__ as compatible_ops

            # init_distributed compiles a shared-memory kernel that gloo does not need.
            compatible_ops["deepspeed_shm_comm"] = False

    logger.setLevel(logging.ERROR)
    # DeepSpeed 0.19.8 calls it by the name that torch 2.13 is about to drop: no news to a user.
    warnings.filterwarnings(
        "ignore", message=r".*(all_gather_into|reduce_scatter)_tensor", category=FutureWarning
    )
    if runtime.device.type == "cuda":
        torch.cuda.set_device(runtime.device)
    try:
        with served_store(os.environ):
            deepspeed.init_distributed(
                dist_backend=runtime.backend,
                timeout=COLLECTIVE_TIMEOUT,
                verbose=False,
                init_method=init_method(os.environ),
            )
        return Exchange()
    except RuntimeError as error:  # of gloo or NCCL
        reason = str(error).splitlines()[0]
        raise LostConnectionError(
            f"rank {runtime.rank} on {runtime.host}: the ranks could not connect: {reason}; expected all "
            "to be started and to reach each other at all TCP ports"
        ) from error


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Keep back what child processes write to stderr; it is shown if the block fails.

    Importing deepspeed links a test program against libaio, whose absence is no news to a user.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            yield
        except BaseException:
            output.seek(0)
            os.write(kept, output.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def check_options(config: Config, world_size: int) -> None:
    """Raise ConfigError for options of a ds_config.json that DeepSpeed itself refuses."""
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        DeepSpeedConfig(engine_config(config, BatchPlan(world_size, 1, (1,) * world_size)))
    except (ValueError, TypeError, AssertionError, AttributeError) as error:
        raise _refusal(config.deepspeed, error) from error


def _refusal(settings: DeepSpeedSettings, error: Exception) -> ConfigError:
    """The first fault of an option of ZeRO, with the key where the file or a flag has it."""
    from pydantic import ValidationError  # comes with DeepSpeed

    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        path = ".".join(map(str, (ZERO, *fault["loc"])))
        if path in settings.locations:
            return settings.refusal(path, fault["input"], f"DeepSpeed refuses it: {shortened(fault['msg'])}")
    return ConfigError(f"{settings.source}: DeepSpeed refuses it: {reason(error)}")


def end_process_group() -> None:
    """Leave the process group with all other ranks, so that none is seen as lost."""
    if torch.distributed.is_initialized():
        # NCCL waits for CUDA graphs that hold its kernels: unused ones are freed first.
        gc.collect()
        torch.distributed.destroy_process_group()


class Engine:
    """Trains one network on one rank of a job.

    A step is `accumulate` for each of the rank's micro-batches, then `finish_step`. Where DeepSpeed gets
    stage 0 or 1, the ranks exchange nothing before `finish_step`.
    """

    def __init__(
        self,
        network: AlphaZeroNet,
        config: Config,
        plan: BatchPlan,
        runtime: Runtime,
        say: Callable[[str], None] = print,
    ) -> None:
        """say: gets a line where passes cannot be recorded as CUDA graphs after all."""
        import deepspeed

        training, settings, stage = config.training, config.deepspeed, deepspeed_stage(config)
        self._timed: Timed = NOT_TIMED  # around the all-reduce of what stands beside DeepSpeed's
        self._device = runtime.device
        self._world_size = plan.world_size
        self.network = network.to(runtime.device).train()
        self._module = TrainingModule(network, config.loss, training)
        torch_optimizer = make_optimizer(network, config.optimizer)
        keys = state_keys(network, config.optimizer.optimizer)  # DeepSpeed will take the shapes away
        if stage:
            _import_muon_uncompiled()
        with _silenced(logging.getLogger("torch.distributed")):
            self._engine, optimizer, _, _ = deepspeed.initialize(
                model=self._module,
                optimizer=torch_optimizer,
                config=engine_config(config, plan, network.parameter_count()),
            )
        if prints(settings):
            logging.getLogger("DeepSpeed").setLevel(logging.INFO)
        self._optimizer = optimizer
        self._torch_optimizer = torch_optimizer
        if isinstance(torch_optimizer, SkippableMuon):
            torch_optimizer.pieces = pieces_of(optimizer, stage)
            torch_optimizer.device = runtime.device
        if stage == 0:
            # Not before: initialize cannot take such weights (0.19.8); above stage 0 they are flat.
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        num_statistics = count_statistics(network)
        self._flat: FlatGradients | None = None
        self._parts: PartsOfZeroOne | None = None
        self._guard: GradientGuard | None = None
        if keeps_gradients(config):
            sent_as = DTYPES[settings.passed_on.get("communication_data_type", "fp32")]
            parameters, paddings = list(network.parameters()), None
            if stage:
                self._parts = PartsOfZeroOne(optimizer)
                parameters, paddings = self._parts.parameters, self._parts.paddings
            self._flat = FlatGradients(parameters, num_statistics, sent_as, paddings)
            self._engine.enable_backward_allreduce = False
            self._sums = self._flat.statistics
            self._reader = VerdictReader(len(self._flat.verdict), runtime.device)
        else:
            self._guard = GradientGuard(network.parameters())
            self._sums = torch.zeros(num_statistics, device=runtime.device)
        # Whether the device itself leaves bad steps out, and the host learns of it later.
        self.is_told_late = self._flat is not None and is_told_late(runtime.device)
        self._is_verdict_due = False
        self._has_moving_scale = training.precision == "fp16"
        self._verdict = GOOD
        self._max_norm = config.optimizer.clip_gradients
        self._losses = torch.zeros((), device=runtime.device)
        if runtime.device.type == "cuda" and not why_no_graphs(config):
            # After initialize: from here on weights stay where they are.
            self._module.use_graphs(
                CudaRecorder(runtime.device), lambda text: say(f"rank {runtime.rank}: {text}")
            )
        self._statistics = RunningStatistics(network, self._sums)
        self._state = ZeroState(network, optimizer, keys, stage)
        self.loss_scale = LossScale.of(training)
        self._average = (
            WeightAverage(training.ema_decay, self._state, self._statistics.named())
            if training.ema_decay
            else None
        )

    def time_communication(self, timed: Timed) -> None:
        """Have `timed` around all that this engine exchanges with the other ranks from now on."""
        self._timed = timed
        if self._flat:
            self._flat.timed = timed
        if isinstance(self._torch_optimizer, SkippableMuon):
            self._torch_optimizer.timed = timed
        time_collectives(timed)

    def accumulate(self, micro_batch: MicroBatch, num_micro_batches: int) -> LossTerms:
        """Forward and backward of one micro-batch of the step's `num_micro_batches` over all ranks.

        DeepSpeed averages gradients over ranks; a real micro-batch weighs N / K before that, so that
        they become the mean over the global batch; a padding one weighs nothing.
        """
        loss: torch.Tensor = self._engine(to_device(micro_batch.batch, self._device))
        weight = 0.0 if micro_batch.is_padding else self._world_size / num_micro_batches
        if weight:
            self._statistics.add_micro_batch()
            self._losses += loss.detach()
        if self._has_moving_scale:
            # Here at the latest it must know of the step before. The device has that step's update and this
            # forward pass to do meanwhile.
            self.take_verdict()
        scale = self.loss_scale.scale
        if self._guard:
            self._guard.scale = scale
        self._engine.backward(loss * (weight * scale))
        if self._flat:
            self._flat.add_gradients()
        return self._module.last_terms

    @property
    def last_pass_was_graphed(self) -> bool:
        """Whether the last pass was replayed from recordings."""
        return self._module.last_pass_was_graphed

    def gradients_are_finite(self) -> bool:
        """Whether this rank's passes since the last call were finite; waits for the device.

        With whole gradients it is always True: `finish_step` then finds out for itself, on the device.
        """
        if not self._guard:
            return True
        is_finite = self._guard.take(self._losses)
        self._losses.zero_()
        return is_finite

    def finish_step(
        self, step: int, learning_rate: float, num_micro_batches: int, bad_ranks: Sequence[int] = ()
    ) -> None:
        """Average the gradients over ranks and update the weights.

        All stays as it was where loss or gradients are not finite: of `bad_ranks`, or with whole gradients of
        any rank. `take_verdict` reports which.
        """
        self.take_verdict()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate * group.get("rate_share", 1.0)
        if self._flat is None:
            self._verdict = StepVerdict(bool(bad_ranks), tuple(bad_ranks))
            if self._world_size > 1:
                with self._timed():
                    torch.distributed.all_reduce(self._sums)
            self._update(step, num_micro_batches, skip=bool(bad_ranks))
            norm = self._engine.get_global_grad_norm()
            self._verdict = replace(self._verdict, gradient_norm=norm)
            return
        self._flat.close(self.loss_scale.scale, self._losses)
        self._losses.zero_()
        self._flat.average()
        self._flat.clip(self._max_norm)
        if self._parts:
            self._parts.hand_over(self._flat.gradients)
        self._reader.send(self._flat.verdict)
        if not self.is_told_late:
            self._verdict = self._reader.read()
            self._update(step, num_micro_batches, skip=self._verdict.is_bad)
            return
        self._is_verdict_due = True
        is_bad = self._flat.is_bad()
        self._torch_optimizer.found_inf = is_bad
        self._engine.step()
        self._statistics.step(num_micro_batches, is_bad)
        if self._average:
            self._average.update(step, is_bad)

    def _update(self, step: int, num_micro_batches: int, *, skip: bool) -> None:
        """The update of a step whose verdict is known to the host."""
        self._torch_optimizer.skips = skip
        self._engine.step()
        self.loss_scale.update(skip)
        if skip:
            self._statistics.discard()
            return
        self._statistics.step(num_micro_batches)
        if self._average:
            self._average.update(step)

    def take_verdict(self) -> StepVerdict:
        """Whether the last step was made. Waits for the device."""
        if self._is_verdict_due:
            self._is_verdict_due = False
            self._verdict = self._reader.read()
            self.loss_scale.update(self._verdict.is_bad)
            if self._verdict.is_bad:
                self._statistics.take_back()
        return self._verdict

    def abandon_step(self) -> None:
        """Forget the passes since the last step, in which nothing was exchanged yet."""
        self._engine.zero_grad()
        if self._flat:
            self._flat.forget()
        self.gradients_are_finite()
        self._losses.zero_()
        self._statistics.discard()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[AlphaZeroNet]:
        """The network in inference mode with its running statistics in place, averaged if there is an EMA."""
        self.take_verdict()
        if self._average:
            yield network_of(self.network.config, self.inference_tensors())
            return
        self._statistics.publish()
        self.network.eval()
        try:
            yield self.network
        finally:
            self.network.train()

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter and buffer of the network, whole and in the network's order; collective.

        The checksum in a run's log depends on the order.
        """
        self.take_verdict()
        self._statistics.publish()
        yield from self._state.weights()
        persistent = self.network.state_dict().keys()
        counters = self._statistics.counters()
        for name, buffer in self.network.named_buffers():
            if name in persistent:
                yield name, buffer
            if (counter := name.replace(LAST_STATISTIC, COUNTER)) in counters:
                yield counter, counters[counter]

    def averaged_tensors(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
        """`tensors` (of `named_tensors`) with the moving averages in place; None without any. Collective."""
        return {**tensors, **dict(self._average.named_tensors())} if self._average else None

    def inference_tensors(self) -> dict[str, torch.Tensor]:
        """The network as it plays and is shared, whole: averaged if there is an EMA. Collective."""
        tensors = dict(self.named_tensors())
        return self.averaged_tensors(tensors) or tensors

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Consolidated, see ZeroState; collective."""
        return self._state.optimizer_state()

    def load(self, checkpoint: Checkpoint) -> None:
        """Take up all but the weights, which the network was built with."""
        self._state.load_optimizer_state(checkpoint.optimizer)
        if self._average and checkpoint.ema:
            self._average.load(checkpoint.ema)
        if checkpoint.state.loss_scale:
            self.loss_scale.load(checkpoint.state.loss_scale)

    def close(self) -> None:
        """Release all memory of the device that this engine holds, so that another one can take its place.

        The network given to it loses its weights, whoever still holds it.
        """
        self.time_communication(NOT_TIMED)
        self._module.drop_graphs()  # where they are recorded above ZeRO 0, DeepSpeed keeps the module
        self._engine.destroy()
        # At ZeRO 3 hooks of autograd, which Python's collector does not see, keep DeepSpeed's optimizer.
        held = (*self.network.parameters(), *self.network.buffers(), vars(self._optimizer))
        for tensor in _tensors_in((*held, self._torch_optimizer.state)):
            tensor.grad = None
            tensor.data = tensor.data.new_empty(0)
        self.__dict__.clear()  # gradients, optimizer state, averages
        # Modules and hooks refer to each other, and a recording's memory is its graph's until that is gone.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _import_muon_uncompiled() -> None:
    """Import DeepSpeed's Muon, which is not used here, but which ZeRO (0.19.8) compares optimizers with.

    It has three functions to be compiled, and the import of torch's compiler takes four seconds.
    """
    compile_with_torch = torch.compile
    torch.compile = lambda function=None, **_: function or (lambda given: given)  # type: ignore[assignment]
    try:
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    finally:
        torch.compile = compile_with_torch


@contextlib.contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors of nested containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for element in value.values():
            yield from _tensors_in(element)
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _tensors_in(element)
