"""The keys of the blocks `optimizer` and `scheduler`."""

from __future__ import annotations

from typing import Any

from alphazero.config import MOST_POSITIONS
from alphazero.optimizer_settings import ONE_CYCLE, WARMUP_COSINE_LR, WARMUP_DECAY_LR, WARMUP_LR
from alphazero.settings import MOST_RATE, MOST_STEPS
from alphazero.training.deepspeed_json.check import TRUTH, Check, is_off, number, only, pair, whole, word
from alphazero.training.deepspeed_json.key import Key, Meaning, honoured, ignored, refused

ADAMS = ("Adam", "AdamW")
SGD = ("SGD",)
WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
SCHEDULERS = {
    "WarmupLR": WARMUP_LR,
    "WarmupDecayLR": WARMUP_DECAY_LR,
    "WarmupCosineLR": WARMUP_COSINE_LR,
    "OneCycle": ONE_CYCLE,
}
# DeepSpeed takes optimizers' names in any case; ours, by the lower one. Adam is AdamW there unless
# adam_w_mode is false.
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}

_RATE = number(0, MOST_RATE)
_SHARE = number(0, 1)
_STEPS = whole(1, MOST_STEPS)


def _param(name: str, check: Check, sets: str, why: str, **more: Any) -> Key:  # noqa: ANN401 - fields
    return honoured(f"optimizer.params.{name}", check, sets, why, **more)


def _schedule(name: str, check: Check, sets: str, why: str, **more: Any) -> Key:  # noqa: ANN401 - fields
    return honoured(f"scheduler.params.{name}", check, sets, why, **more)


def _int(value: float) -> tuple[int]:
    return (int(value),)


def _is_optimizer(value: object) -> bool:
    return isinstance(value, str) and value.lower() in OPTIMIZERS


OPTIMIZER_KEYS: tuple[Key, ...] = (
    honoured("optimizer", None, "", "torch's own optimizers, nothing compiled; no decay on vectors"),
    honoured(
        "optimizer.type",
        Check(
            "expected one of Adam, AdamW, SGD; others would need kernels or change the results", _is_optimizer
        ),
        "optimizer.optimizer",
        "Adam is AdamW as in DeepSpeed, unless adam_w_mode is false",
        values=lambda value: ({"adam": "adamw"}.get(value.lower(), value.lower()),),
        is_needed=True,
    ),
    honoured("optimizer.params", None, "", "an absent one has DeepSpeed's default, but for lr"),
    _param("lr", _RATE, "optimizer.learning_rate", "the peak rate; absent or auto it is ours"),
    _param(
        "weight_decay",
        _RATE,
        "optimizer.weight_decay",
        "on weights; biases and BatchNorm have none",
        default=0.0,
    ),
    _param(
        "betas",
        pair(_SHARE),
        "optimizer.adam_beta1 optimizer.adam_beta2",
        "decay rates of the moments",
        values=tuple,
        variants=ADAMS,
        default=[0.9, 0.999],
    ),
    _param("eps", _SHARE, "optimizer.adam_eps", "added to the root", variants=ADAMS, default=1e-8),
    _param(
        "adam_w_mode",
        TRUTH,
        "optimizer.optimizer",
        "false with Adam: decay goes into the gradient (L2)",
        values=lambda value: ("adamw" if value else "adam",),
        variants=("Adam",),
    ),
    Key("optimizer.params.adam_w_mode", Meaning.IGNORED, "AdamW is AdamW", variants=("AdamW",)),
    _param("momentum", _SHARE, "optimizer.momentum", "of SGD", variants=SGD, default=0.0),
    _param("nesterov", TRUTH, "optimizer.nesterov", "Nesterov's momentum", variants=SGD, default=False),
    _param(
        "bias_correction",
        TRUTH,
        "optimizer.adam_bias_correction",
        "making up for moments that begin at zero",
        variants=ADAMS,
        default=True,
    ),
    *refused("DeepSpeed's own Adam refuses it too", "optimizer.params.amsgrad"),
    *refused("momentum is not dampened here", "optimizer.params.dampening", check=only(0, "no dampening")),
    *refused("it would turn training round", "optimizer.params.maximize"),
    *refused(
        "gradient_clipping is the key for it", "optimizer.params.max_grad_norm", check=only(0, "no clipping")
    ),
    *ignored(
        "torch's optimizers are used, the fastest form that the device has",
        "optimizer.params.torch_adam",
        "optimizer.params.fused",
        "optimizer.params.foreach",
        "optimizer.params.capturable",
        "optimizer.params.differentiable",
        "optimizer.params.set_grad_none",
        "optimizer.params.fp32_optimizer_states",
        "optimizer.params.adamw_mode",
    ),
    *ignored("it chooses among DeepSpeed's own kernels", "optimizer.legacy_fusion"),
)

SCHEDULER_KEYS: tuple[Key, ...] = (
    honoured("scheduler", None, "", "a schedule of ours that equals DeepSpeed's at every step"),
    honoured(
        "scheduler.type",
        word(*SCHEDULERS),
        "optimizer.lr_schedule",
        "the course of the learning rate; a skipped step counts here",
        values=lambda value: (SCHEDULERS[value],),
        is_needed=True,
    ),
    honoured("scheduler.params", None, "", "an absent one has DeepSpeed's default"),
    _schedule(
        "warmup_min_lr",
        _RATE,
        "optimizer.warmup_min_lr",
        "rate that the warm-up begins at",
        variants=WARMUPS[:2],
        default=0.0,
    ),
    _schedule(
        "warmup_max_lr",
        _RATE,
        "optimizer.learning_rate",
        "the peak; beats optimizer.params.lr, as in DeepSpeed",
        variants=("WarmupLR",),
    ),
    _schedule(
        "warmup_max_lr",
        _RATE,
        "optimizer.learning_rate",
        "the peak; beats optimizer.params.lr, as in DeepSpeed",
        variants=("WarmupDecayLR",),
        default=0.001,
    ),
    _schedule(
        "warmup_min_ratio",
        _SHARE,
        "optimizer.warmup_min_share",
        "rate that the warm-up begins at, as a share of the peak",
        variants=WARMUPS[2:],
        default=0.0,
    ),
    _schedule(
        "warmup_num_steps",
        _STEPS,
        "optimizer.warmup_steps",
        "steps of the warm-up",
        values=_int,
        variants=WARMUPS,
        default=1000,
    ),
    _schedule(
        "warmup_type",
        word("log", "linear"),
        "optimizer.warmup_type",
        "its form",
        variants=WARMUPS,
        default="log",
    ),
    _schedule(
        "total_num_steps",
        _STEPS,
        "optimizer.lr_total_steps",
        "steps until the last rate; auto: those of the run",
        values=_int,
        variants=WARMUPS[1:],
        is_needed=True,
    ),
    _schedule(
        "cos_min_ratio",
        _SHARE,
        "optimizer.lr_final_share",
        "last rate as a share of the peak",
        variants=WARMUPS[2:],
        default=0.0001,
    ),
    _schedule(
        "cycle_min_lr",
        _RATE,
        "optimizer.cycle_min_lr",
        "rate at both ends of the cycle",
        variants=("OneCycle",),
        is_needed=True,
    ),
    _schedule(
        "cycle_max_lr",
        _RATE,
        "optimizer.learning_rate",
        "the peak",
        variants=("OneCycle",),
        is_needed=True,
    ),
    _schedule(
        "cycle_first_step_size",
        _STEPS,
        "optimizer.cycle_first_steps",
        "steps up to the peak",
        values=_int,
        variants=("OneCycle",),
        default=2000,
    ),
    _schedule(
        "cycle_second_step_size",
        whole(0, MOST_STEPS),
        "optimizer.cycle_second_steps",
        "steps back down; absent as many as up",
        values=_int,
        variants=("OneCycle",),
    ),
    _schedule(
        "decay_step_size",
        whole(0, MOST_STEPS),
        "optimizer.cycle_decay_steps",
        "steps of the decay after the cycle",
        values=_int,
        variants=("OneCycle",),
        default=0,
    ),
    _schedule(
        "decay_lr_rate",
        _RATE,
        "optimizer.cycle_decay_rate",
        "its strength",
        variants=("OneCycle",),
        default=0.0,
    ),
    *refused(
        "the rate moves at every step here, not in stairs",
        "scheduler.params.cycle_first_stair_count",
        "scheduler.params.cycle_second_stair_count",
        check=only(0, "the rate moves at every step here, not in stairs"),
    ),
    Key(
        "scheduler.params.cycle_momentum",
        Meaning.REFUSED,
        "Adam's momentum is constant here (with SGD, DeepSpeed leaves the momentum alone too)",
        Check("expected false: Adam's momentum is constant here", is_off),
        variants=("OneCycle",),
    ),
    *ignored(
        "the momentum is constant here",
        "scheduler.params.cycle_min_mom",
        "scheduler.params.cycle_max_mom",
        "scheduler.params.decay_mom_rate",
    ),
    *ignored("the number of the step decides, also after a resume", "scheduler.params.last_batch_iteration"),
)

_SIZE = whole(1, MOST_POSITIONS)
BATCH_KEYS: tuple[Key, ...] = (
    honoured(
        "train_batch_size", _SIZE, "training.batch_size", "positions per step over all ranks", values=_int
    ),
    honoured(
        "train_micro_batch_size_per_gpu",
        _SIZE,
        "training.micro_batch_size",
        "positions per pass",
        values=_int,
    ),
    honoured(
        "gradient_accumulation_steps",
        _SIZE,
        "training.gradient_accumulation_steps",
        "passes per rank and step",
        values=_int,
    ),
)
