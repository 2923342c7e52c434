"""What follows from the step number: the learning rate, and what is done every so often."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alphazero.config import OptimizerConfig
from alphazero.optimizer_settings import DEEPSPEED_SCHEDULES
from alphazero.training.loop.deepspeed_schedule import deepspeed_rate

# Rates are quoted for this global batch; lr_scaling carries them to others.
BASE_BATCH_SIZE = 1024


def peak_learning_rate(config: OptimizerConfig, batch_size: int) -> float:
    """The rate after warm-up: as given, or scaled with the batch.

    linear: Goyal et al. 2017, section 2.1; sqrt: Krizhevsky 2014, section 5.
    """
    ratio = batch_size / BASE_BATCH_SIZE
    factor = {"none": 1.0, "sqrt": math.sqrt(ratio), "linear": ratio}[config.lr_scaling]
    return config.learning_rate * factor


def learning_rate(config: OptimizerConfig, batch_size: int, step: int, num_steps: int) -> float:
    """The rate of step `step` (0-based) of `num_steps`.

    Linear warm-up to the peak, then constant, multiplied by lr_decay at each milestone, or a cosine
    (Loshchilov and Hutter 2016, eq. 5) down to lr_final_share of the peak at the last step; or what a
    scheduler of DeepSpeed's gives.
    """
    peak = peak_learning_rate(config, batch_size)
    if config.lr_schedule in DEEPSPEED_SCHEDULES:
        return deepspeed_rate(config, peak, step, config.lr_total_steps or num_steps)
    if step < config.warmup_steps:
        return peak * (step + 1) / config.warmup_steps
    if config.lr_schedule == "step":
        return peak * config.lr_decay ** sum(step >= milestone for milestone in config.lr_milestones)
    if config.lr_schedule == "cosine":
        progress = (step - config.warmup_steps) / max(1, num_steps - 1 - config.warmup_steps)
        low = peak * config.lr_final_share
        return low + (peak - low) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2
    return peak


@dataclass(frozen=True)
class Rhythm:
    """Something done every `steps` steps, or every `seconds`; the other one is 0."""

    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Rhythm:
        """From a setting: `1000` (steps) or `30m` (minutes)."""
        return cls(seconds=60.0 * int(text[:-1])) if text.endswith("m") else cls(steps=int(text))

    def is_due(self, step: int) -> bool:
        """True after `step` steps where steps are counted."""
        return bool(self.steps) and step % self.steps == 0

    def is_over(self, seconds: float) -> bool:
        """True `seconds` after the last time where time is counted."""
        return bool(self.seconds) and seconds >= self.seconds
