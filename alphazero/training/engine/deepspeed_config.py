"""The configuration for DeepSpeed's engine that follows from the settings."""

from __future__ import annotations

from typing import Any

from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config
from alphazero.training.ranks.batch import BatchPlan

NEVER = 2**31 - 1


def keeps_gradients(config: Config) -> bool:
    """True where this program adds up, averages and clips whole gradients, and DeepSpeed gets the result.

    At ZeRO 0, and at ZeRO 1 unless DeepSpeed moves the optimizer to host memory.
    """
    stage = config.training.zero_stage
    return stage == 0 or (stage == 1 and "offload_optimizer" not in config.deepspeed.zero_options_at(1))


def engine_config(config: Config, plan: BatchPlan, num_parameters: int = 0) -> dict[str, Any]:
    """The dict for deepspeed.initialize. num_parameters: of the network.

    Precision is not in it: autocast and the loss scale are ours (DeepSpeed's native bf16 and fp16
    blocks break BatchNorm on CPU since 0.19.2), so it sees fp32 parameters and gradients at every stage.
    Optimizer and schedule are not in it either: they are torch's and ours, with the settings of the file.
    """
    settings, stage = config.deepspeed, config.training.zero_stage
    zero = settings.zero_options_at(stage)
    if stage < 2:
        # DeepSpeed 0.19.8 asserts no overlap with our own accumulation: gradients are reduced in step(),
        # when no backward pass is left to overlap with.
        zero["overlap_comm"] = False
    if stage == 1 and keeps_gradients(config):
        zero["compute_grad_norm"] = False
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
        "gradient_clipping": 0.0 if keeps_gradients(config) else config.optimizer.clip_gradients,
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
