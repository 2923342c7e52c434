"""The settings of the optimizer and of the learning rate over a run."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.settings import MOST_RATE, MOST_STEPS, setting

# Schedules of DeepSpeed's (deepspeed/runtime/lr_schedules.py), step by step as its classes have them.
WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR = "warmup_lr", "warmup_decay_lr", "warmup_cosine_lr"
ONE_CYCLE = "one_cycle"
DEEPSPEED_SCHEDULES = (WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR, ONE_CYCLE)


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and the learning rate over the run."""

    optimizer: str = setting(
        "adamw",
        "optimizer; adam adds weight decay to the gradient (L2), adamw takes it off the weights",
        choices=("adamw", "adam", "sgd"),
    )
    learning_rate: float = setting(0.001, "peak learning rate", minimum=0, maximum=MOST_RATE, aliases=("lr",))
    lr_scaling: str = setting(
        "none",
        "how the learning rate grows with the batch size, relative to 1024 positions",
        choices=("none", "sqrt", "linear"),
    )
    lr_schedule: str = setting(
        "cosine",
        "course of the learning rate: constant, step and cosine after a linear warm-up; the others are "
        "DeepSpeed's schedulers of these names",
        choices=("constant", "step", "cosine", *DEEPSPEED_SCHEDULES),
    )
    lr_milestones: tuple[int, ...] = setting(
        (), "step schedule: steps at which the rate is multiplied by lr_decay", minimum=0, maximum=MOST_STEPS
    )
    lr_decay: float = setting(
        0.1, "step schedule: factor of the rate at each milestone", minimum=0, maximum=1
    )
    lr_final_share: float = setting(
        0.01, "cosine, warmup_cosine_lr: last rate as a share of the peak rate", minimum=0, maximum=1
    )
    lr_total_steps: int = setting(
        0,
        "warmup_decay_lr, warmup_cosine_lr: steps until the last rate; 0 for the steps of the run",
        minimum=0,
        maximum=MOST_STEPS,
    )
    warmup_steps: int = setting(100, "steps of warm-up", minimum=0, maximum=MOST_STEPS)
    warmup_type: str = setting(
        "log",
        "DeepSpeed's schedulers: whether the warm-up grows with the logarithm of the step or linearly",
        choices=("log", "linear"),
    )
    warmup_min_lr: float = setting(
        0.0, "warmup_lr, warmup_decay_lr: rate that the warm-up begins at", minimum=0, maximum=MOST_RATE
    )
    warmup_min_share: float = setting(
        0.0, "warmup_cosine_lr: that rate as a share of the peak rate", minimum=0, maximum=1
    )
    cycle_min_lr: float = setting(
        0.0, "one_cycle: rate at both ends of the cycle", minimum=0, maximum=MOST_RATE
    )
    cycle_first_steps: int = setting(
        2000, "one_cycle: steps up to the peak rate", minimum=1, maximum=MOST_STEPS
    )
    cycle_second_steps: int = setting(
        2000, "one_cycle: steps back down to cycle_min_lr", minimum=0, maximum=MOST_STEPS
    )
    cycle_decay_rate: float = setting(
        0.0,
        "one_cycle: after the cycle the rate is cycle_min_lr / (1 + this for each cycle_decay_steps)",
        minimum=0,
        maximum=MOST_RATE,
    )
    cycle_decay_steps: int = setting(
        0, "one_cycle: steps of this decay; 0 for none", minimum=0, maximum=MOST_STEPS
    )
    weight_decay: float = setting(
        1e-4, "weight decay; biases and BatchNorm have none", minimum=0, maximum=MOST_RATE
    )
    momentum: float = setting(0.9, "momentum of sgd", minimum=0, maximum=1)
    nesterov: bool = setting(True, "sgd: Nesterov's momentum")
    adam_beta1: float = setting(0.9, "adam, adamw: decay rate of the first moment", minimum=0, maximum=1)
    adam_beta2: float = setting(0.999, "adam, adamw: decay rate of the second moment", minimum=0, maximum=1)
    adam_eps: float = setting(
        1e-8,
        "adam, adamw: added to the root of the second moment",
        minimum=0,
        maximum=1,
    )
    adam_bias_correction: bool = setting(
        True, "adam, adamw: make up for the moments' beginning at zero in the first steps"
    )
    clip_gradients: float = setting(
        10.0, "largest norm of the gradient; a longer one is shortened to it, 0 turns this off", minimum=0
    )
