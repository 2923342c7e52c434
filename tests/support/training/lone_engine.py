"""A DeepSpeed engine in the test's own process: one rank, on the CPU, over gloo."""

import dataclasses
import os
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.launch.node.store import lone_process_environment
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import load_config
from alphazero.training.engine.engine import Engine, end_process_group, start_process_group
from alphazero.training.engine.probe import random_batch
from alphazero.training.ranks.batch import plan_batches
from alphazero.training.ranks.runtime import Runtime, read_runtime
from tests.support.jobs.jobs import LIMIT

SPEC = get_spec("connect4")
# At ZeRO 3 DeepSpeed shares the weights out, under a limit that no network keeps.
SHARED_OUT = DeepSpeedSettings(zero_options={LIMIT: 1000})
POSITIONS = 8


class LoneEngine:
    """Makes engines of a small Connect Four network, and steps of random positions."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def make(
        self,
        settings: DeepSpeedSettings | None = None,
        loss_scale: float = 65536.0,
        loss_scale_window: int = 1000,
        clip_gradients: float = 10.0,
        **flags: object,
    ) -> Engine:
        """An engine with a fresh network; flags as on the command line, the others as in ds_config.json."""
        small = {"blocks": 2, "filters": 16, "batch_size": POSITIONS, "micro_batch_size": POSITIONS}
        config = load_config("", {**small, **flags})
        network = AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0))
        plan = plan_batches(config.training.batch_size, POSITIONS, [1.0], self.runtime.device.type)
        training = dataclasses.replace(
            config.training, loss_scale=loss_scale, loss_scale_window=loss_scale_window
        )
        optimizer = dataclasses.replace(config.optimizer, clip_gradients=clip_gradients)
        config = dataclasses.replace(
            config, training=training, optimizer=optimizer, deepspeed=settings or DeepSpeedSettings()
        )
        return Engine(network, config, plan, self.runtime)

    def step(self, engine: Engine, number: int = 0, num_micro_batches: int = 1) -> None:
        """One step as the trainer makes it."""
        batch = random_batch(SPEC, POSITIONS)
        for index in range(num_micro_batches):
            engine.accumulate(MicroBatch(number, index, batch, False), num_micro_batches)
        bad_ranks = [] if engine.gradients_are_finite() else [0]
        engine.finish_step(number, 1e-3, num_micro_batches, bad_ranks)


@pytest.fixture(scope="session")
def lone_group() -> Iterator[Runtime]:
    """A process group of this process alone; one for all tests, since DeepSpeed keeps the first for good."""
    with mock.patch.dict(os.environ, lone_process_environment()):
        runtime = read_runtime(os.environ, "cpu")
        start_process_group(runtime)
    yield runtime
    end_process_group()


@pytest.fixture
def lone_runtime(lone_group: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The only rank, with what DeepSpeed wants to find in its environment; jobs that tests start must not."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    return lone_group


@pytest.fixture
def lone_engine(lone_runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> LoneEngine:
    """Makes engines within it. One of ZeRO 3 replaces torch's linear function: for this test alone."""
    monkeypatch.setattr(torch.nn.functional, "linear", torch.nn.functional.linear)
    return LoneEngine(lone_runtime)
