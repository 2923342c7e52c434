"""Twenty steps on the CPU end, to the bit, where the loop ends that one would write by hand."""

import copy
from collections.abc import Iterator

import pytest
import torch

from alphazero.network.model.planes import to_device
from alphazero.settings.load import load_config
from alphazero.training.engine.optimizer import make_optimizer
from alphazero.training.engine.probe import random_batch
from alphazero.training.engine.training_module import TrainingModule
from tests.support.training.lone_engine import POSITIONS, SPEC, LoneEngine

NUM_STEPS, PASSES, RATE = 20, 2, 1e-3  # the rate is the one of LoneEngine.step


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: more threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_twenty_steps_of_two_passes_are_those_of_a_plain_loop(lone_engine: LoneEngine, precision, optimizer):
    flags = {"precision": precision, "optimizer": optimizer}
    engine = lone_engine.make(**flags)
    twin = copy.deepcopy(engine.network)
    config = load_config("", flags)
    module = TrainingModule(twin, config.loss, config.training)
    stepper = make_optimizer(twin, config.optimizer)
    for group in stepper.param_groups:
        group["lr"] = RATE
    batch = to_device(random_batch(SPEC, POSITIONS), torch.device("cpu"))
    for number in range(NUM_STEPS):
        lone_engine.step(engine, number, PASSES)
        for _ in range(PASSES):
            (module(batch) / PASSES).backward()
        stepper.step()
        stepper.zero_grad()
    for (name, own), other in zip(engine.network.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(own, other), name
