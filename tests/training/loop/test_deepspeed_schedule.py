"""The learning rate is that of DeepSpeed's schedulers, step by step: its classes are the judge."""

import logging

import pytest
import torch

from alphazero.settings.sections import OptimizerConfig
from alphazero.training.loop.schedule import learning_rate

NUM_STEPS, TOTAL = 70, 40
RATE = 0.01


@pytest.fixture(scope="module")
def schedules():
    """DeepSpeed's module, its warnings about rates asked for early kept back."""
    from deepspeed.runtime import lr_schedules
    from deepspeed.utils import logger

    level = logger.level
    logger.setLevel(logging.ERROR)
    yield lr_schedules
    logger.setLevel(level)


def rates_of(make, optimizer_kind=torch.optim.SGD):
    """What DeepSpeed's engine trains with: it moves its scheduler on after each step."""
    optimizer = optimizer_kind([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = make(optimizer)
    rates = []
    for _ in range(NUM_STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def ours(**settings):
    config = OptimizerConfig(learning_rate=RATE, **settings)
    return [learning_rate(config, 1024, step, TOTAL) for step in range(NUM_STEPS)]


@pytest.mark.parametrize("kind", ["log", "linear"])
@pytest.mark.parametrize("warmup", [1, 2, 3, 17, 40, 60])
def test_warm_up_alone_or_with_a_decay(schedules, kind, warmup):
    theirs = {"warmup_num_steps": warmup, "warmup_type": kind}
    settings = {"warmup_steps": warmup, "warmup_type": kind}
    assert ours(lr_schedule="warmup_lr", warmup_min_lr=0.002, **settings) == rates_of(
        lambda optimizer: schedules.WarmupLR(optimizer, warmup_min_lr=0.002, **theirs)
    )
    assert ours(lr_schedule="warmup_decay_lr", warmup_min_lr=0.002, **settings) == rates_of(
        lambda optimizer: schedules.WarmupDecayLR(
            optimizer, TOTAL, warmup_min_lr=0.002, warmup_max_lr=RATE, **theirs
        )
    )
    assert ours(
        lr_schedule="warmup_cosine_lr", warmup_min_share=0.2, lr_final_share=0.05, **settings
    ) == rates_of(
        lambda optimizer: schedules.WarmupCosineLR(
            optimizer, TOTAL, warmup_min_ratio=0.2, cos_min_ratio=0.05, **theirs
        )
    )


@pytest.mark.parametrize(
    ("first", "second", "decay_steps", "decay_rate"),
    [(10, 10, 0, 0.0), (7, 13, 5, 0.5), (5, 0, 3, 0.1), (3, 8, 0, 0.5), (3, 8, 4, 0.0), (90, 10, 1, 1.0)],
)
def test_a_cycle_and_its_decay(schedules, first, second, decay_steps, decay_rate):
    found = ours(
        lr_schedule="one_cycle",
        cycle_min_lr=0.002,
        cycle_first_steps=first,
        cycle_second_steps=second,
        cycle_decay_steps=decay_steps,
        cycle_decay_rate=decay_rate,
    )
    expected = rates_of(
        lambda optimizer: schedules.OneCycle(
            optimizer,
            0.002,
            RATE,
            decay_lr_rate=decay_rate,
            cycle_first_step_size=first,
            cycle_second_step_size=second,
            decay_step_size=decay_steps,
        )
    )
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_total_may_be_other_than_the_steps_of_the_run():
    settings = {"lr_schedule": "warmup_decay_lr", "warmup_steps": 5}
    assert ours(lr_total_steps=20, **settings)[20:] != ours(**settings)[20:]
    assert ours(lr_total_steps=TOTAL, **settings) == ours(**settings)
