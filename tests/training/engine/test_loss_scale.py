"""The dynamic loss scale moves as the paper and torch's GradScaler say."""

import random

import pytest
import torch

from alphazero.base.errors import CheckpointError
from alphazero.settings.sections import TrainingConfig
from alphazero.training.engine.optimizer import MAXIMUM, LossScale


def test_it_doubles_after_a_window_of_good_steps_and_halves_at_each_overflow():
    loss_scale = LossScale(8.0, window=3)
    seen = []
    for overflow in (0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0):
        loss_scale.update(bool(overflow))
        seen.append(loss_scale.scale)
    assert seen == [8, 8, 16, 16, 16, 8, 8, 8, 4, 4, 4, 8, 8, 8, 16]


def test_it_moves_as_torch_grad_scaler_does_over_random_overflows():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    loss_scale = LossScale(1024.0, window=7)
    chance = random.Random(3)
    for _ in range(400):
        overflow = chance.random() < 0.07
        scaler.scale(parameter.sum())  # makes its tensors on first use
        parameter.grad = torch.tensor([float("inf") if overflow else 1.0])
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        # torch knows no bounds: below ours the two may part, so the walk must stay inside.
        assert 1 <= scaler.get_scale() <= MAXIMUM
        loss_scale.update(overflow)
        assert loss_scale.scale == scaler.get_scale()
        assert loss_scale.state()["good_steps"] == scaler._get_growth_tracker()


def test_it_stays_between_one_and_its_maximum():
    loss_scale = LossScale(2.0, window=1)
    assert not loss_scale.at_minimum
    for _ in range(3):
        loss_scale.update(True)
    assert loss_scale.scale == 1.0 and loss_scale.at_minimum
    for _ in range(40):
        loss_scale.update(False)
    assert loss_scale.scale == 2.0**24


def test_a_start_between_powers_of_two_is_rounded_down():
    assert LossScale(1000.0, 1).scale == 512.0
    assert LossScale(65536.0, 1).scale == 65536.0
    assert LossScale(1e30, 1).scale == MAXIMUM


def test_a_fixed_scale_never_moves():
    loss_scale = LossScale.fixed()
    for overflow in (True, False, False, True):
        loss_scale.update(overflow)
    loss_scale.load({"scale": 64.0, "good_steps": 5.0})
    assert loss_scale.scale == 1.0


def test_a_resumed_scale_goes_on_as_if_never_stopped():
    whole, first = LossScale(64.0, window=5), LossScale(64.0, window=5)
    events = [random.Random(1).random() < 0.2 for _ in range(60)]
    for overflow in events[:23]:
        whole.update(overflow)
        first.update(overflow)
    second = LossScale(2.0, window=5)
    second.load(first.state())
    for overflow in events[23:]:
        whole.update(overflow)
        second.update(overflow)
        assert second.state() == whole.state()


def test_a_smaller_window_after_a_resume_still_grows():
    loss_scale = LossScale(4.0, window=100)
    for _ in range(50):
        loss_scale.update(False)
    shorter = LossScale(4.0, window=10)
    shorter.load(loss_scale.state())
    shorter.update(False)
    assert shorter.scale == 8.0


def deepspeeds_scale(overflows, **options):
    """The scale after each step by DeepSpeed's own class, its log kept back."""
    import logging

    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler
    from deepspeed.utils import logger

    scaler = DynamicLossScaler(raise_error_at_min_scale=False, dtype=None, **options)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        scales = []
        for overflow in overflows:
            scaler.update_scale(overflow)
            scales.append(scaler.cur_scale)
        return scales
    finally:
        logger.setLevel(level)


@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize("hysteresis", [1, 2, 3])
@pytest.mark.parametrize("minimum", [1, 128])
def test_overflows_are_counted_as_deepspeed_counts_them(monkeypatch, consecutive, hysteresis, minimum):
    """Over a window that never ends: what doubles the scale is compared with torch's, above."""
    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 1)
    chance = random.Random(5)
    overflows = [chance.random() < 0.3 for _ in range(40)]
    ours = LossScale(2.0**16, 10**6, minimum=minimum, hysteresis=hysteresis, consecutive=consecutive)
    seen = []
    for overflow in overflows:
        ours.update(overflow)
        seen.append(ours.scale)
    assert seen == deepspeeds_scale(
        overflows,
        init_scale=2.0**16,
        scale_window=10**6,
        min_scale=minimum,
        delayed_shift=hysteresis,
        consecutive_hysteresis=consecutive,
    )


def test_the_count_of_overflows_begins_anew_where_the_scale_doubles():
    ours = LossScale(8.0, window=2, hysteresis=2)
    seen = []
    for overflow in (1, 0, 0, 1, 1, 1):
        ours.update(bool(overflow))
        seen.append(ours.scale)
    assert seen == [8, 8, 16, 16, 8, 4]


def test_the_count_of_overflows_goes_on_after_a_resume():
    ours, again = LossScale(8.0, window=9, hysteresis=2), LossScale(2.0, window=9, hysteresis=2)
    ours.update(True)
    again.load(ours.state())
    again.update(True)
    assert again.scale == 4.0


def test_a_scale_that_a_user_fixed_stays_and_leaves_nothing_to_resume():
    config = TrainingConfig(precision="fp16", fixed_loss_scale=100.0)
    ours = LossScale.of(config)
    for overflow in (True, False):
        ours.update(overflow)
    assert ours.scale == 100.0 and ours.at_minimum and ours.state() == {}
    assert LossScale.of(TrainingConfig(fixed_loss_scale=100.0)).scale == 1.0  # fp32


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"scale": 3.0, "good_steps": 0.0},
        {"scale": float("nan"), "good_steps": 0.0},
        {"scale": 4.0, "good_steps": -1.0},
        {"scale": 2.0**30, "good_steps": 0.0},
        {"scale": 4.0, "good_steps": float("inf")},
        {"scale": 4.0, "good_steps": float("nan")},
        {"scale": 4.0, "good_steps": 0.0, "overflows_left": 0.0},
    ],
)
def test_a_state_that_cannot_be_is_refused(state):
    with pytest.raises(CheckpointError, match="power of two"):
        LossScale(4.0, 1).load(state)
