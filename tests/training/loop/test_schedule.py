"""The learning rate against values worked out by hand."""

from dataclasses import replace

import pytest

from alphazero.settings.sections import OptimizerConfig
from alphazero.training.loop.schedule import learning_rate, peak_learning_rate, warmup_notices

BASE = OptimizerConfig(learning_rate=0.1, warmup_steps=4, lr_schedule="constant")


def test_warm_up_is_linear_and_ends_at_the_peak():
    rates = [learning_rate(BASE, 1024, step, 100) for step in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_steps_multiply_the_rate_at_each_milestone():
    config = replace(BASE, lr_schedule="step", lr_milestones=(10, 20))
    rates = [learning_rate(config, 1024, step, 100) for step in (9, 10, 19, 20, 99)]
    assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001, 0.001])


def test_cosine_goes_from_the_peak_through_half_way_to_the_final_share():
    config = replace(BASE, lr_schedule="cosine", lr_final_share=0.2, warmup_steps=0)
    rates = [learning_rate(config, 1024, step, 101) for step in (0, 50, 100)]
    assert rates == pytest.approx([0.1, 0.06, 0.02])


@pytest.mark.parametrize(("rule", "peak"), [("none", 0.1), ("sqrt", 0.2), ("linear", 0.4)])
def test_scaling_rules_are_relative_to_a_batch_of_1024(rule, peak):
    assert peak_learning_rate(replace(BASE, lr_scaling=rule), 4096) == pytest.approx(peak)


@pytest.mark.parametrize(
    ("schedule", "warmup", "steps", "is_longer"),
    [
        ("cosine", 100, 30, True),
        ("cosine", 30, 30, False),
        ("cosine", 0, 1, False),
        ("warmup_lr", 31, 30, True),
        ("one_cycle", 100, 30, False),  # has no warm-up
    ],
)
def test_a_warm_up_longer_than_the_run_has_a_line(schedule: str, warmup: int, steps: int, is_longer: bool):
    config = replace(BASE, lr_schedule=schedule, warmup_steps=warmup)
    expected = (
        f"warning: the warm-up ({warmup} steps) is longer than the run ({steps} steps): the learning rate "
        "never reaches its peak; expected fewer --warmup-steps"
    )
    assert warmup_notices(config, steps) == ([expected] if is_longer else [])
    assert (max(learning_rate(config, 1024, step, steps) for step in range(steps)) < 0.1) == (
        is_longer or schedule == "one_cycle"
    )
