"""The DeepSpeed engine: the one place that imports deepspeed.

Wraps network and loss in a module, trains it by micro-batches that weigh what they should on any
number of ranks, and gives weights and optimizer state as whole tensors.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from alphazero.config import Config, LossConfig, OptimizerConfig
from alphazero.data.batch import MicroBatch
from alphazero.games.spec import GameSpec
from alphazero.network.loss import AlphaZeroLoss, LossTerms
from alphazero.network.planes import DeviceBatch, expand_planes, to_device
from alphazero.network.resnet import AlphaZeroNet
from alphazero.runtime import Runtime
from alphazero.training.batch_norm import RunningStatistics
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.deepspeed_config import DeepSpeedSettings, engine_config
from alphazero.training.exchange import Exchange
from alphazero.training.zero_state import ZeroState

# A rank that is gone is noticed after this long; start-up on slow disks must fit in it.
COLLECTIVE_TIMEOUT = timedelta(minutes=10)


def start_process_group(runtime: Runtime) -> Exchange:
    """Join the job's process group (NCCL or gloo) and open the channel for small messages."""
    if runtime.device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    with _quiet_stderr():
        import deepspeed
        from deepspeed.ops import __compatible_ops__ as compatible_ops
        from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    # On the CPU init_distributed compiles a shared-memory kernel that gloo does not need.
    compatible_ops["deepspeed_shm_comm"] = False
    if runtime.device.type == "cuda":
        torch.cuda.set_device(runtime.device)
    deepspeed.init_distributed(dist_backend=runtime.backend, timeout=COLLECTIVE_TIMEOUT, verbose=False)
    return Exchange()


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Keep back what child processes write to stderr; it is shown if the block fails.

    Importing deepspeed links a test program against libaio, whose absence is no news to a user.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def end_process_group() -> None:
    """Leave the process group, so that no rank is seen as lost."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class TrainingModule(nn.Module):
    """Network and loss as one module: packed positions in, loss out; what DeepSpeed wraps."""

    def __init__(
        self, network: AlphaZeroNet, spec: GameSpec, loss: LossConfig, precision: str, channels_last: bool
    ) -> None:
        super().__init__()
        self.network = network
        self._spec = spec
        self._loss = AlphaZeroLoss(loss)
        self._precision = precision
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format

    def forward(self, batch: DeviceBatch) -> LossTerms:
        """Mean loss terms of the micro-batch; the network in its precision, the loss in fp32."""
        planes_BCHW = expand_planes(batch.packed_BN, self._spec, self._memory_format)
        with autocast(planes_BCHW.device, self._precision):
            output = self.network(planes_BCHW)
        return self._loss(output, batch)


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """bf16 autocast where precision asks for it; BatchNorm and loss stay fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class Engine:
    """Trains one network on one rank of a job."""

    def __init__(
        self,
        network: AlphaZeroNet,
        spec: GameSpec,
        config: Config,
        settings: DeepSpeedSettings,
        plan: BatchPlan,
        runtime: Runtime,
        exchange: Exchange,
    ) -> None:
        import deepspeed

        self._plan = plan
        self._device = runtime.device
        self.network = network.to(runtime.device).train()
        module = TrainingModule(
            network, spec, config.loss, config.training.precision, config.training.channels_last
        )
        torch_optimizer = make_optimizer(network, config.optimizer)
        with _silenced(logging.getLogger("torch.distributed")):
            self._engine, optimizer, _, _ = deepspeed.initialize(
                model=module, optimizer=torch_optimizer, config=engine_config(config, settings, plan)
            )
        self._optimizer = optimizer
        stage = config.training.zero_stage
        if config.training.channels_last and stage == 0:
            # Not before: initialize cannot take such weights (0.19.8); above stage 0 they are flat.
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.statistics = RunningStatistics(network, exchange)
        self.state = ZeroState(network, optimizer, stage)

    def accumulate(self, micro_batch: MicroBatch) -> LossTerms:
        """Forward and backward of one micro-batch; gradients add up to the mean over the global batch.

        The engine averages over its passes and ranks, ceil(K/N) * N of them; a real micro-batch
        weighs that much over K, a padding one nothing.
        """
        terms: LossTerms = self._engine(to_device(micro_batch.batch, self._device))
        if micro_batch.is_padding:
            weight = 0.0
        else:
            weight = self._plan.passes_per_rank * self._plan.world_size / self._plan.num_micro_batches
            self.statistics.add_micro_batch()
        self._engine.backward(terms.total * weight)
        return terms

    def finish_pass(self, learning_rate: float) -> None:
        """After each `accumulate`; updates the weights when the step's passes are done."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        is_last = self._engine.is_gradient_accumulation_boundary()
        self._engine.step()
        if is_last:
            self.statistics.step(self._plan.num_micro_batches)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[AlphaZeroNet]:
        """The network in inference mode with its running statistics in place."""
        self.statistics.publish()
        self.network.eval()
        try:
            yield self.network
        finally:
            self.network.train()

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter and buffer of the network, whole; collective."""
        self.statistics.publish()
        yield from self.state.weights()
        persistent = self.network.state_dict().keys()
        for name, buffer in self.network.named_buffers():
            if name in persistent:
                yield name, buffer


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """torch's AdamW or SGD with Nesterov momentum; no decay on biases and BatchNorm (all vectors)."""
    matrices = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if config.optimizer == "sgd":
        nesterov = config.momentum > 0
        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=nesterov)
    betas = (config.adam_beta1, config.adam_beta2)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas)


@contextlib.contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
