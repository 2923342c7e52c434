"""What follows from the step number alone: the learning rate, and what is done every so often.

DeepSpeed's schedulers are as in deepspeed/runtime/lr_schedules.py (0.19.8): its engine moves them on after
each step, so that the first two steps have the rate of step 0. One difference: a step that is skipped counts.
"""

from __future__ import annotations

import math

from alphazero.base.text import counted
from alphazero.settings.sections import (
    DEEPSPEED_SCHEDULES,
    ONE_CYCLE,
    WARMUP_COSINE_LR,
    WARMUP_DECAY_LR,
    OptimizerConfig,
)

LEAST_WARMUP = 2  # its logarithm divides


def warmup_notices(config: OptimizerConfig, num_steps: int) -> list[str]:
    """A line where the run ends before its warm-up, or none."""
    if config.lr_schedule == ONE_CYCLE or config.warmup_steps <= num_steps:
        return []
    return [
        f"warning: the warm-up ({counted(config.warmup_steps, 'step')}) is longer than the run "
        f"({counted(num_steps, 'step')}): the learning rate never reaches its peak; expected fewer "
        "--warmup-steps"
    ]


def deepspeed_rate(config: OptimizerConfig, peak: float, step: int, total_steps: int) -> float:
    """The rate of step `step` (0-based) by the scheduler that `config.lr_schedule` names."""
    if config.lr_schedule == ONE_CYCLE:
        return _one_cycle(config, peak, step)
    is_cosine = config.lr_schedule == WARMUP_COSINE_LR
    if not step:
        return 0.0 if is_cosine else config.warmup_min_lr  # the cosine's, wherever its warm-up begins
    count, warmup = step - 1, max(LEAST_WARMUP, config.warmup_steps)
    if is_cosine:
        return peak * _cosine_share(config, count, warmup, total_steps)
    share = 1.0
    if count < warmup:
        share = _warmup_share(config, count, warmup)
    elif config.lr_schedule == WARMUP_DECAY_LR:  # from 1 after the warm-up to 0 after `total_steps`
        share = max(0.0, (total_steps - count) / max(1.0, total_steps - warmup))
    return config.warmup_min_lr + (peak - config.warmup_min_lr) * share


def _warmup_share(config: OptimizerConfig, count: int, warmup: int) -> float:
    """How far the warm-up of `warmup` steps is after `count` moves of the scheduler, 0 to 1."""
    if config.warmup_type == "log":
        return (1.0 / math.log(warmup)) * math.log(count + 1)
    return count / warmup


def _cosine_share(config: OptimizerConfig, count: int, warmup: int, total_steps: int) -> float:
    """The rate as a share of the peak."""
    low, last = config.warmup_min_share, config.lr_final_share
    if count < warmup:
        return low + _warmup_share(config, count, warmup) * (1.0 - low)
    progress = min(1.0, (count - warmup + 1) / max(1, total_steps - warmup))
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
    cycle_step = step % length
    share = cycle_step / first if cycle_step <= first else (length - cycle_step) / second
    return low + (peak - low) * share


# Rates are quoted for this global batch; lr_scaling carries them to others.
BASE_BATCH_SIZE = 1024
LR_DECAY = 0.1  # at each milestone, as Silver et al. 2018


def peak_learning_rate(config: OptimizerConfig, batch_size: int) -> float:
    """The rate after warm-up: as given, or scaled with the batch.

    linear: Goyal et al. 2017, section 2.1; sqrt: Krizhevsky 2014, section 5.
    """
    ratio = batch_size / BASE_BATCH_SIZE
    factor = {"none": 1.0, "sqrt": math.sqrt(ratio), "linear": ratio}[config.lr_scaling]
    return config.learning_rate * factor


def learning_rate(config: OptimizerConfig, batch_size: int, step: int, num_steps: int) -> float:
    """The rate of step `step` (0-based) of `num_steps`.

    Linear warm-up to the peak, then constant, multiplied by LR_DECAY at each milestone, or a cosine
    (Loshchilov and Hutter 2016, eq. 5) down to lr_final_share of the peak at the last step; or what a
    scheduler of DeepSpeed's gives.
    """
    peak = peak_learning_rate(config, batch_size)
    if config.lr_schedule in DEEPSPEED_SCHEDULES:
        return deepspeed_rate(config, peak, step, config.lr_total_steps or num_steps)
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    if config.lr_schedule == "step":
        return peak * LR_DECAY ** sum(step >= milestone for milestone in config.lr_milestones)
    if config.lr_schedule == "cosine":
        progress = (step - config.warmup_steps) / max(1, num_steps - 1 - config.warmup_steps)
        low = peak * config.lr_final_share
        return low + (peak - low) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2
    return peak
