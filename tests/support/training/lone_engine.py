"""A DeepSpeed engine in the test's own process: one rank, on the CPU, over gloo."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from alphazero.config import load_config
from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.training.batch.memory_probe import random_batch
from alphazero.training.batch_plan import plan_batches
from alphazero.training.engine.deepspeed_config import DeepSpeedSettings
from alphazero.training.engine.engine import Engine, end_process_group, start_process_group
from alphazero.training.exchange import Exchange
from alphazero.training.runtime import Runtime, lone_process_environment, read_runtime

SPEC = get_spec("connect4")
POSITIONS = 8


class LoneEngine:
    """Makes engines of a small Connect Four network, and steps of random positions."""

    def __init__(self, runtime: Runtime, exchange: Exchange) -> None:
        self.runtime = runtime
        self.exchange = exchange

    def make(self, settings: DeepSpeedSettings | None = None, **flags: object) -> Engine:
        """An engine with a fresh network; flags as on the command line."""
        small = {"blocks": 2, "filters": 16, "batch_size": POSITIONS, "micro_batch_size": POSITIONS}
        config = load_config("", {**small, **flags})
        network = AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0))
        plan = plan_batches(config.training.batch_size, POSITIONS, [1.0], self.runtime.device.type)
        return Engine(
            network, SPEC, config, settings or DeepSpeedSettings(), plan, self.runtime, self.exchange
        )

    def step(self, engine: Engine, number: int = 0, num_micro_batches: int = 1) -> bool:
        """One step as the trainer makes it; whether it was skipped."""
        batch = random_batch(SPEC, POSITIONS)
        for index in range(num_micro_batches):
            engine.accumulate(MicroBatch(number, index, batch, False), num_micro_batches)
        skip = not engine.gradients_are_finite()
        engine.finish_step(number, 1e-3, num_micro_batches, skip=skip)
        return skip


@pytest.fixture(scope="module")
def lone_engine() -> Iterator[LoneEngine]:
    """Makes engines within a process group of this process alone."""
    with mock.patch.dict(os.environ, lone_process_environment()):
        runtime = read_runtime(os.environ, "cpu")
        yield LoneEngine(runtime, start_process_group(runtime))
        end_process_group()
