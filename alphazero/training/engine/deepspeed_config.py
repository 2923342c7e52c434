"""The configuration for DeepSpeed's engine that follows from the settings."""

from __future__ import annotations

from typing import Any

from alphazero.network.model.sizes import on_meta_device
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config
from alphazero.training.ranks.batch import BatchPlan

NEVER = 2**31 - 1
# Numbers of a bucket where ds_config.json is silent: deepspeed/runtime/zero/config.py of 0.19.8.
DEFAULT_BUCKET = 500_000_000


def keeps_gradients(config: Config) -> bool:
    """True where this program adds up, averages and clips whole gradients, and DeepSpeed gets the result."""
    return not why_gradients_are_given_away(config)


def why_gradients_are_given_away(config: Config) -> str:
    """The setting because of which DeepSpeed takes each gradient as it is made; "" where a rank keeps them.

    At ZeRO 2 a rank keeps whole gradients if one bucket of DeepSpeed's, allocated in any case, is as large.
    """
    stage = config.training.zero_stage
    options = config.deepspeed.zero_options_at(stage)
    if stage == 3:
        return "ZeRO 3"
    for name in ("offload_optimizer", "overlap_comm"):
        if stage and options.get(name):
            return name
    if stage == 2:
        bucket = int(options.get("reduce_bucket_size", DEFAULT_BUCKET))
        count = on_meta_device(config.network).parameter_count()
        if bucket < count:
            return f"ZeRO 2 with a reduce_bucket_size of {bucket:,} for {count:,} parameters"
    return ""


def engine_config(config: Config, plan: BatchPlan, num_parameters: int = 0) -> dict[str, Any]:
    """The dict for deepspeed.initialize. num_parameters: of the network.

    Precision is not in it: autocast and the loss scale are ours (DeepSpeed's native bf16 and fp16
    blocks break BatchNorm on CPU since 0.19.2), so it sees fp32 parameters and gradients at every stage.
    Optimizer and schedule are not in it either: they are torch's and ours, with the settings of the file.
    """
    settings, stage = config.deepspeed, config.training.zero_stage
    zero = settings.zero_options_at(stage)
    if keeps := keeps_gradients(config):
        stage = min(stage, 1)  # ZeRO 2 differs only in how DeepSpeed exchanges gradients
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
        # passes a step has, and at stages 0 and 1 their number may differ between ranks.
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
