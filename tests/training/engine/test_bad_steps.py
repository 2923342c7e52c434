"""Steps that are not finite: judged by the host at once (CPU), or by the device, which tells later (GPU)."""

import dataclasses

import numpy as np
import pytest
import torch

from alphazero.games.batch import MicroBatch
from alphazero.training.engine.gradients import GOOD, StepVerdict
from alphazero.training.engine.probe import random_batch
from tests.support.training.lone_engine import POSITIONS, SPEC


@pytest.fixture(params=["at once", "later"])
def is_later(request, monkeypatch):
    later = request.param == "later"
    monkeypatch.setattr("alphazero.training.engine.engine.is_told_late", lambda device: later)
    monkeypatch.setattr("alphazero.training.engine.optimizer.runs_fused", lambda network: later)
    return later


def step(engine, number, *, is_bad=False, num_micro_batches=1):
    batch = random_batch(SPEC, POSITIONS)
    if is_bad:
        batch = dataclasses.replace(batch, wdl=np.full_like(batch.wdl, np.nan))
    for index in range(num_micro_batches):
        engine.accumulate(MicroBatch(number, index, batch, False), num_micro_batches)
    assert engine.gradients_are_finite()
    engine.finish_step(number, 1e-2, num_micro_batches)


def all_state(engine):
    """Everything a step changes, copied."""
    weights = dict(engine.named_tensors())
    state = {f"optimizer {name}": tensor for name, tensor in engine.optimizer_state().items()}
    averages = {f"average {name}": tensor for name, tensor in engine.averaged_tensors(weights).items()}
    return {name: tensor.clone() for name, tensor in {**weights, **state, **averages}.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_bad_step_leaves_no_trace_and_the_next_one_trains(lone_engine, is_later, optimizer):
    engine = lone_engine.make(optimizer=optimizer, ema_decay="0.9")
    for number in range(2):
        step(engine, number, num_micro_batches=2)
        assert engine.take_verdict() == GOOD
    before = all_state(engine)
    step(engine, 2, is_bad=True)
    step(engine, 3, is_bad=True)
    assert engine.take_verdict() == StepVerdict(True, (0,))
    assert same(all_state(engine), before)
    step(engine, 4)
    assert engine.take_verdict() == GOOD
    after = all_state(engine)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert {"input.conv.weight", "input.norm.running_mean", "average input.norm.running_var"} <= changed
    assert {"average value.output.bias", "input.norm.num_batches_tracked"} <= changed
    assert optimizer == "sgd" or after["optimizer step"] == 3
    engine.close()


def test_both_ways_train_the_same_but_for_rounding(lone_engine, monkeypatch):
    states = []
    for later in (False, True):
        monkeypatch.setattr(
            "alphazero.training.engine.engine.is_told_late", lambda device, later=later: later
        )
        monkeypatch.setattr(
            "alphazero.training.engine.optimizer.runs_fused", lambda network, later=later: later
        )
        # Adam makes whole steps of what is a rounding error in a gradient that should be zero.
        engine = lone_engine.make(optimizer="sgd", ema_decay="0.9", clip_gradients=0.5)
        for number in range(6):
            step(engine, number, is_bad=number == 3, num_micro_batches=2)
        states.append(all_state(engine))
        engine.close()
    at_once, later = states
    assert at_once.keys() == later.keys()
    for name, tensor in at_once.items():
        torch.testing.assert_close(later[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_the_loss_scale_of_fp16_moves_at_the_same_steps(lone_engine, is_later):
    engine = lone_engine.make(precision="fp16", loss_scale=1024.0, loss_scale_window=2)
    scales = []
    for number, is_bad in enumerate([False, True, False, False, False]):
        step(engine, number, is_bad=is_bad)
        scales.append(engine.loss_scale.scale)
    engine.take_verdict()
    scales.append(engine.loss_scale.scale)
    told_at_once = [1024, 512, 512, 1024, 1024, 1024]
    assert scales == ([1024, *told_at_once[:4], 1024] if is_later else told_at_once)
    # What a checkpoint keeps has always heard of the last step.
    assert engine.loss_scale.state()["good_steps"] == 1.0
    engine.close()


def test_a_step_that_is_abandoned_leaves_nothing_for_the_next(lone_engine, is_later):
    engine, twin = lone_engine.make(), lone_engine.make()
    batch = random_batch(SPEC, POSITIONS)
    bad = dataclasses.replace(batch, wdl=np.full_like(batch.wdl, np.nan))
    engine.accumulate(MicroBatch(0, 0, bad, False), 1)
    engine.abandon_step()
    for one in (engine, twin):
        step(one, 0)
        assert one.take_verdict() == GOOD
    assert same(dict(engine.named_tensors()), dict(twin.named_tensors()))
    engine.close()
    twin.close()
