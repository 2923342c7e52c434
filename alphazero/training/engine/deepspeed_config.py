"""The configuration for DeepSpeed's engine that follows from the settings."""

from __future__ import annotations

from typing import Any

from alphazero.network.model.sizes import on_meta_device
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.deepspeed_keys import ZERO
from alphazero.settings.load import Config
from alphazero.training.ranks.batch import BatchPlan

NEVER = 2**31 - 1
# How many gradients, and at ZeRO 3 weights, DeepSpeed has whole at a time where ds_config.json is silent:
# deepspeed/runtime/zero/config.py of 0.19.8.
DEFAULT_BUCKET = 500_000_000
LIMITS_OF_WEIGHTS = {"stage3_max_live_parameters": 10**9, "stage3_max_reuse_distance": 10**9}


def keeps_gradients(config: Config) -> bool:
    """True where this program adds up, averages and clips whole gradients, and DeepSpeed gets the result."""
    return not why_gradients_are_given_away(config)


def why_gradients_are_given_away(config: Config) -> str:
    """The setting because of which DeepSpeed takes each gradient as it is made; "" where a rank keeps them.

    At ZeRO 2 a rank keeps whole gradients if one bucket of DeepSpeed's, allocated in any case, is as large;
    at ZeRO 3 whole weights too, if DeepSpeed may have all of them gathered at once.
    """
    stage = config.training.zero_stage
    options = config.deepspeed.zero_options_at(stage)
    for name in ("offload_optimizer", "offload_param", "overlap_comm"):
        if options.get(name):
            return name
    if stage < 2:
        return ""
    count = on_meta_device(config.network).parameter_count()
    limits = {"reduce_bucket_size": DEFAULT_BUCKET, **(LIMITS_OF_WEIGHTS if stage == 3 else {})}
    for name, default in limits.items():
        written = name if name in options else name.removeprefix("stage3_")
        given = options.get(written, default)
        try:
            limit = int(given)
        except (TypeError, ValueError, OverflowError):
            wanted = "expected a number of parameters"
            raise config.deepspeed.refusal(f"{ZERO}.{written}", given, wanted) from None
        if limit < count:
            return f"ZeRO {stage} with a {name} of {limit:,} for {count:,} parameters"
    return ""


def deepspeed_stage(config: Config) -> int:
    """The stage of ZeRO that DeepSpeed gets: with whole gradients 2 and 3 would only be slower ways of 1."""
    stage = config.training.zero_stage
    return min(stage, 1) if keeps_gradients(config) else stage


def engine_config(config: Config, plan: BatchPlan, num_parameters: int = 0) -> dict[str, Any]:
    """The dict for deepspeed.initialize. num_parameters: of the network.

    Precision is not in it: autocast and the loss scale are ours (DeepSpeed's native bf16 and fp16
    blocks break BatchNorm on CPU since 0.19.2), so it sees fp32 parameters and gradients at every stage.
    Optimizer and schedule are not in it either: they are torch's and ours, with the settings of the file.
    """
    settings, stage, keeps = config.deepspeed, deepspeed_stage(config), keeps_gradients(config)
    zero = settings.zero_options_at(config.training.zero_stage)
    if stage == 1 and keeps:
        zero["compute_grad_norm"] = False
    if stage < 2:
        # DeepSpeed 0.19.8 asserts no overlap with our own accumulation: gradients are reduced in step(),
        # when no backward pass is left to overlap with.
        zero["overlap_comm"] = False
    if stage == 2 and "offload_optimizer" in zero and "reduce_bucket_size" in zero:
        # Seen with 0.19.8 over two ranks: with a second bucket, gradients of a step's passes are lost.
        zero["reduce_bucket_size"] = max(zero["reduce_bucket_size"], num_parameters)
    return {
        "steps_per_print": config.training.log_interval if prints(settings) else NEVER,
        **settings.passed_on,
        # backward() adds up on the rank, step() reduces once and updates: the trainer decides how many
        # passes a step has, and where DeepSpeed gets stage 0 or 1 their number may differ between ranks.
        "managed_gradient_accumulation": False,
        "gradient_accumulation_steps": 1,
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "train_batch_size": plan.micro_batch_size * plan.world_size,
        # Elsewhere FlatGradients clips.
        "gradient_clipping": 0.0 if keeps else config.optimizer.clip_gradients,
        # Otherwise the device is waited for at each forward pass and step.
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
        "zero_optimization": {**zero, "stage": stage},
        # The optimizer is torch's own: nothing to compile, one arithmetic on every device.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def prints(settings: DeepSpeedSettings) -> bool:
    """True where DeepSpeed writes reports to its log."""
    asked = ("wall_clock_breakdown", "memory_breakdown", "flops_profiler")
    return any(settings.passed_on.get(key) for key in asked)
