"""The learning rate as DeepSpeed's schedulers have it, from the number of the step alone.

DeepSpeed 0.19.8, runtime/lr_schedules.py. Its engine moves the scheduler on after each step, so that the
first two steps have the rate of its step 0. One difference: a step that is skipped counts here.
"""

from __future__ import annotations

import math

from alphazero.config import OptimizerConfig
from alphazero.optimizer_settings import ONE_CYCLE, WARMUP_COSINE_LR, WARMUP_DECAY_LR

LEAST_WARMUP = 2  # its logarithm divides


def deepspeed_rate(config: OptimizerConfig, peak: float, step: int, total_steps: int) -> float:
    """The rate of step `step` (0-based) by the scheduler that `config.lr_schedule` names."""
    if config.lr_schedule == ONE_CYCLE:
        return _one_cycle(config, peak, step)
    if config.lr_schedule == WARMUP_COSINE_LR:
        # Its first rate is 0, wherever the warm-up begins.
        return peak * _cosine_share(config, step - 1, total_steps) if step else 0.0
    if not step:
        return config.warmup_min_lr
    share = _warmup_share(config, step - 1)
    if share is None:
        share = _linear_decay(config, step - 1, total_steps) if config.lr_schedule == WARMUP_DECAY_LR else 1.0
    return config.warmup_min_lr + (peak - config.warmup_min_lr) * share


def _warmup_share(config: OptimizerConfig, count: int) -> float | None:
    """How far the warm-up is after `count` moves of the scheduler, 0 to 1; None where it is over."""
    num_steps = max(LEAST_WARMUP, config.warmup_steps)
    if count >= num_steps:
        return None
    if config.warmup_type == "log":
        return (1.0 / math.log(num_steps)) * math.log(count + 1)
    return count / num_steps


def _linear_decay(config: OptimizerConfig, count: int, total_steps: int) -> float:
    """From 1 after the warm-up to 0 after `total_steps`."""
    num_steps = max(LEAST_WARMUP, config.warmup_steps)
    return max(0.0, (total_steps - count) / max(1.0, total_steps - num_steps))


def _cosine_share(config: OptimizerConfig, count: int, total_steps: int) -> float:
    """The rate as a share of the peak."""
    low = config.warmup_min_share
    share = _warmup_share(config, count)
    if share is not None:
        return low + share * (1.0 - low)
    num_steps = max(LEAST_WARMUP, config.warmup_steps)
    progress = min(1.0, (count - num_steps + 1) / max(1, total_steps - num_steps))
    last = config.lr_final_share
    return max(0.0, last + (1.0 - last) * (1 + math.cos(math.pi * progress)) / 2)


def _one_cycle(config: OptimizerConfig, peak: float, step: int) -> float:
    """Up from cycle_min_lr to the peak, back down, and then the decay."""
    low, first, second = config.cycle_min_lr, config.cycle_first_steps, config.cycle_second_steps
    if not step:
        return low
    length = first + second
    if step - 1 >= length:  # the scheduler compares what it was before its last move
        if not config.cycle_decay_steps or not config.cycle_decay_rate:
            return low
        return low / (1 + config.cycle_decay_rate * ((step - length) / config.cycle_decay_steps))
    place = step % length
    share = place / first if place <= first else (length - place) / second
    return low + (peak - low) * share
