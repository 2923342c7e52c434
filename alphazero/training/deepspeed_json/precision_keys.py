"""The keys of the blocks `fp16`, `bf16`, `torch_autocast` and `data_types`, and of clipping."""

from __future__ import annotations

from alphazero.settings import MOST_STEPS
from alphazero.training.deepspeed_json.check import TRUTH, Check, number, whole
from alphazero.training.deepspeed_json.key import Key, honoured, ignored

LARGEST_POWER = 24  # of the largest loss scale (engine/loss_scale.py)
AUTOCAST_DTYPES = {
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "torch.float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
}
_AUTOCAST = "autocast casts what each layer takes: weights, gradients and BatchNorm stay fp32"
_EXACT = "weights, gradients and optimizer state stay fp32, which is more exact and takes more memory"


def _is_dtype(value: object) -> bool:
    return isinstance(value, str) and value in AUTOCAST_DTYPES


PRECISION_KEYS: tuple[Key, ...] = (
    honoured("gradient_clipping", number(0), "optimizer.clip_gradients", "largest norm; 0 turns it off"),
    honoured("fp16", None, "", "fp16 by autocast, with a loss scale"),
    honoured("fp16.enabled", TRUTH, "training.precision", _AUTOCAST),
    honoured(
        "fp16.loss_scale",
        Check(
            "expected 0, the dynamic scale, or a fixed one from 1 to 16777216",
            number(0, 2.0**LARGEST_POWER).accepts,
        ),
        "training.fixed_loss_scale",
        "0 is the dynamic one; a fixed one never moves",
        values=lambda value: (float(value),),
    ),
    honoured(
        "fp16.initial_scale_power",
        whole(0, LARGEST_POWER),
        "training.loss_scale",
        "first dynamic scale, as a power of two",
        values=lambda value: (2.0 ** int(value),),
    ),
    honoured(
        "fp16.loss_scale_window",
        whole(1, MOST_STEPS),
        "training.loss_scale_window",
        "good steps until it doubles; DeepSpeed waits for one more after an overflow",
        values=lambda value: (int(value),),
    ),
    honoured(
        "fp16.hysteresis",
        whole(1, MOST_STEPS),
        "training.loss_scale_hysteresis",
        "overflows until it halves",
        values=lambda value: (int(value),),
        default=2,
    ),
    honoured(
        "fp16.consecutive_hysteresis",
        TRUTH,
        "training.loss_scale_consecutive",
        "whether a good step begins their count anew",
    ),
    honoured(
        "fp16.min_loss_scale",
        number(1, 2.0**LARGEST_POWER),
        "training.loss_scale_minimum",
        "it does not go below",
        values=lambda value: (float(value),),
    ),
    honoured("bf16", None, "", "bf16 by autocast"),
    honoured("bf16.enabled", TRUTH, "training.precision", _AUTOCAST),
    honoured("torch_autocast", None, "", "the same autocast"),
    honoured("torch_autocast.enabled", TRUTH, "training.precision", _AUTOCAST),
    honoured(
        "torch_autocast.dtype",
        Check("expected bfloat16 or float16", _is_dtype),
        "training.precision",
        "which of the two",
    ),
    *ignored(_AUTOCAST, "fp16.auto_cast", "torch_autocast.lower_precision_safe_modules"),
    *ignored(
        _EXACT,
        "fp16.fp16_master_weights_and_grads",
        "bf16.bf16_master_weights_and_grads",
        "bf16.bf16_optimizer_states",
        "data_types",
    ),
    *ignored("gradients are fp32 and need no such thing", "bf16.immediate_grad_update"),
    *ignored("steps without finite gradients are always skipped", "bf16.check_grad_overflow"),
)
