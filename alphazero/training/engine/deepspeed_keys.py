"""Every key of a ds_config.json: what it may hold here, or why it is refused.

Read from DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/config.py, runtime/precision_config.py); what
is passed on was tried at the stages named, over two ranks, with this trainer's way of stepping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Key:
    """What a key may hold: `accepts` a value, `expected` says it to people."""

    wanted: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True)
class ZeroKey:
    """A key of zero_optimization and the ZeRO stages it means something at."""

    key: Key
    stages: tuple[int, ...]


# Beyond it Python's whole numbers are none of C's and none of its floats; DeepSpeed's own "no limit".
LARGEST = 2**63 - 1


def whole(minimum: int, maximum: int | None = None) -> Key:
    """A whole number; 5e8 is one, as DeepSpeed's documentation writes them."""

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            return False
        return minimum <= value <= (LARGEST if maximum is None else maximum)

    bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    return Key(f"expected a whole number {bounds}", accepts)


def only(value: bool | int | str, reason: str) -> Key:
    """One value, which is what happens here anyway."""
    shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

    def accepts(got: object) -> bool:
        return got == value and isinstance(got, bool) == isinstance(value, bool)

    return Key(f"expected {shown} or absent: {reason}", accepts)


def word(*words: str) -> Key:
    """One of some texts."""
    return Key(f"expected one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words)


def number(minimum: float, *, above: bool = False) -> Key:
    """A number of at least `minimum`, or above it."""

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return value <= LARGEST and (value > minimum if above else value >= minimum)

    return Key(f"expected a number {'above' if above else 'of at least'} {minimum:g}", accepts)


TRUTH = Key("expected true or false", lambda value: isinstance(value, bool))

OUR_CHECKPOINTS = "checkpoints are this program's own, whole and for any stage"
_NO_TIMERS = "DeepSpeed 0.19.8's timers fail on a module that returns more than a loss"
NOT_IN_THIS_DEEPSPEED = "removed from DeepSpeed 0.19.8"

# Passed to DeepSpeed as they are.
PASSED_ON: dict[str, Key] = {
    "communication_data_type": word("fp32", "bf16", "fp16"),
    "prescale_gradients": TRUTH,
    "gradient_predivide_factor": number(0, above=True),
    "memory_breakdown": TRUTH,
}

# Read by deepspeed_config.py.
TRANSLATED = ("zero_optimization", "gradient_clipping", "fp16", "bf16", "torch_autocast")

# As this program has it, or not at all.
FIXED: dict[str, Key] = {
    "gradient_allreduce_op": only("mean", "a sum would make the step depend on the number of ranks"),
    "zero_allow_untested_optimizer": only(True, "the optimizers are torch's own"),
    "zero_force_ds_cpu_optimizer": only(False, "the optimizers are torch's own"),
    "managed_gradient_accumulation": only(False, "the trainer accumulates"),
}

# Known to DeepSpeed, refused unless switched off (false, or {"enabled": false}).
REFUSED: dict[str, str] = {
    "train_batch_size": "--batch-size owns it",
    "train_micro_batch_size_per_gpu": "--micro-batch-size owns it",
    "gradient_accumulation_steps": "it follows from --batch-size and --micro-batch-size",
    "optimizer": "--optimizer owns it",
    "scheduler": "--lr-schedule owns it",
    "tensorboard": "--tensorboard owns it",
    "wandb": "--wandb owns it",
    "csv_monitor": "metrics.jsonl of the run has every figure",
    "comet": "--tensorboard and --wandb are the monitors here",
    "compile": "--compile owns it",
    "steps_per_print": "--log-interval owns it",
    "wall_clock_breakdown": f"{_NO_TIMERS}; --tensorboard has the speed",
    "flops_profiler": f"{_NO_TIMERS}; alphazero bench network counts",
    "comms_logger": "its lines go to DeepSpeed's log, which is switched off",
    "dump_state": "DeepSpeed's log is switched off; config.json of the run has the settings",
    "log_level": "DeepSpeed's log is switched off",
    "timers": "DeepSpeed's timers are not used",
    "activation_checkpointing": "this network has no checkpointed layers; a smaller --micro-batch-size "
    "saves memory",
    "autotuning": "it starts jobs of its own; --micro-batch-size auto finds what fits",
    "checkpoint": f"{OUR_CHECKPOINTS}; --checkpoint-interval owns when",
    "datastates": OUR_CHECKPOINTS,
    "aio": "it is for offloading to NVMe, which is not supported",
    "data_efficiency": "the order of the data is a function of --seed and the step",
    "data_types": "parameters and gradients are fp32 in every precision",
    "dataloader_drop_last": "the data loader is this program's own",
    "disable_allgather": "DeepSpeed 0.19.8 reads it and does nothing",
    "disable_python_gc": "the trainer's own objects need collecting",
    "hybrid_engine": "it is for language models",
    "pipeline": "pipeline parallelism is not supported; the network fits one device",
    "tensor_parallel": "tensor parallelism is not supported; the network fits one device",
    "expert_parallel": "there are no experts in this network",
    "use_data_before_expert_parallelism": "there are no experts in this network",
    "sequence_parallel_size": "there are no sequences in this network",
    "seq_parallel_communication_data_type": "there are no sequences in this network",
    "vocabulary_size": "there is no vocabulary in this network",
    "weight_quantization": "it is for inference of language models",
    "nebula": NOT_IN_THIS_DEEPSPEED,
    "compression_training": NOT_IN_THIS_DEEPSPEED,
    "amp": f"{NOT_IN_THIS_DEEPSPEED}; --precision bf16 or fp16",
    "quantize_training": NOT_IN_THIS_DEEPSPEED,
    "sparse_gradients": f"{NOT_IN_THIS_DEEPSPEED}; there are no embeddings in this network",
    "sparse_attention": NOT_IN_THIS_DEEPSPEED,
    "eigenvalue": NOT_IN_THIS_DEEPSPEED,
    "graph_harvesting": NOT_IN_THIS_DEEPSPEED,
    "curriculum_learning": NOT_IN_THIS_DEEPSPEED,
    "progressive_layer_drop": NOT_IN_THIS_DEEPSPEED,
    "elasticity": f"{NOT_IN_THIS_DEEPSPEED}; a run may go on with any number of ranks (--max-restarts)",
}

# Other names of a key: DeepSpeed takes or took them, one name is enough here.
OLD_NAMES = {"bfloat16": "bf16", "allgather_size": "zero_optimization.allgather_bucket_size"}

_AT_ANY = (0, 1, 2, 3)  # says how large buckets are where there are some
ZERO_KEYS: dict[str, ZeroKey] = {
    "stage": ZeroKey(Key("expected 0, 1, 2 or 3", whole(0, 3).accepts), _AT_ANY),
    "reduce_bucket_size": ZeroKey(whole(1), _AT_ANY),
    "allgather_bucket_size": ZeroKey(whole(1), _AT_ANY),
    "contiguous_gradients": ZeroKey(TRUTH, (1, 2, 3)),
    "reduce_scatter": ZeroKey(TRUTH, (1, 2, 3)),
    "enable_sanity_checks": ZeroKey(TRUTH, (1, 2, 3)),
    "use_multi_rank_bucket_allreduce": ZeroKey(TRUTH, (1, 2)),
    "allgather_partitions": ZeroKey(TRUTH, (1, 2)),
    "parameter_alignment": ZeroKey(TRUTH, (1, 2)),
    "ignore_unused_parameters": ZeroKey(TRUTH, (2,)),
    # Not below: with our accumulation all gradients of stages 0 and 1 are reduced after backward.
    "overlap_comm": ZeroKey(TRUTH, (2, 3)),
    "sub_group_size": ZeroKey(whole(1), (3,)),
    "memory_efficient_linear": ZeroKey(TRUTH, (3,)),
    "stage3_prefetch_bucket_size": ZeroKey(whole(0), (3,)),
    "stage3_param_persistence_threshold": ZeroKey(whole(0), (3,)),
    "stage3_model_persistence_threshold": ZeroKey(whole(0), (3,)),
    "stage3_max_live_parameters": ZeroKey(whole(0), (3,)),
    "stage3_max_reuse_distance": ZeroKey(whole(0), (3,)),
    "stage3_use_all_reduce_for_fetch_params": ZeroKey(TRUTH, (3,)),
    "stage3_allgather_sequential": ZeroKey(TRUTH, (3,)),
}

_OFFLOAD = "torch's optimizers keep their state on the device here; --zero-stage 1 to 3 shares it out"
_ZERO_PLUS = "it is a part of ZeRO++ for language models, which is not supported"
_UNIVERSAL = f"it is about DeepSpeed's checkpoints; {OUR_CHECKPOINTS}"
ZERO_REFUSED: dict[str, str] = {
    "offload_param": f"offloading is not supported: {_OFFLOAD}",
    "offload_optimizer": f"offloading is not supported: {_OFFLOAD}",
    "zenflow": f"offloading is not supported: {_OFFLOAD}",
    # Seen at stages 1 and 2: get_full_hp_param gives other parameters' state.
    "round_robin_gradients": "DeepSpeed 0.19.8 then gives one parameter the optimizer state of another",
    # Seen: "output with shape [1] doesn't match the broadcast shape" in backward.
    "stage3_module_granularity_threshold": "DeepSpeed 0.19.8 then fails in this network's backward pass",
    "log_trace_cache_warnings": "they go to DeepSpeed's log, which is switched off",
    "zero_quantized_weights": _ZERO_PLUS,
    "zero_quantized_nontrainable_weights": _ZERO_PLUS,
    "zero_quantized_gradients": _ZERO_PLUS,
    "leaf_module": "there are no experts in this network",
    "pipeline_loading_checkpoint": _UNIVERSAL,
    "elastic_checkpoint": _UNIVERSAL,
    "stage3_gather_16bit_weights_on_model_save": _UNIVERSAL,
    "save_muon_momentum_buffer_in_memory": "--optimizer is adamw or sgd",
    "mics_shard_size": NOT_IN_THIS_DEEPSPEED,
    "mics_hierarchical_params_gather": NOT_IN_THIS_DEEPSPEED,
    "zeropp_loco_param": NOT_IN_THIS_DEEPSPEED,
    "legacy_stage1": NOT_IN_THIS_DEEPSPEED,
}
ZERO_FIXED: dict[str, Key] = {
    "compute_grad_norm": only(True, "clipping needs the norm, and steps without a finite one are skipped"),
    "load_from_fp32_weights": only(True, _UNIVERSAL),
    "override_module_apply": only(True, "it is about building a network in parts, which is not done"),
    "zero_hpz_partition_size": only(1, _ZERO_PLUS),
}
ZERO_OLD_NAMES = {
    "cpu_offload": "offload_optimizer",
    "cpu_offload_param": "offload_param",
    "cpu_offload_use_pin_memory": "offload_optimizer",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
    **{
        name.removeprefix("stage3_"): name
        for name in (*ZERO_KEYS, *ZERO_REFUSED)
        if name.startswith("stage3_")
    },
}

# The smallest loss scale is 2**0, the largest 2**24 (loss_scale.py).
FP16_KEYS: dict[str, Key] = {
    "enabled": TRUTH,
    "loss_scale": only(0, "a fixed loss scale is not supported, 0 is the dynamic one"),
    "initial_scale_power": whole(0, 24),
    "loss_scale_window": whole(1),
    "hysteresis": only(1, "the scale halves at every overflow"),
    "consecutive_hysteresis": only(False, "the scale halves at every overflow"),
    "min_loss_scale": only(1, "the scale never goes below 1"),
    "auto_cast": only(True, "each layer casts what it takes"),
    "fp16_master_weights_and_grads": only(False, "master weights are fp32"),
}
BF16_KEYS: dict[str, Key] = {
    "enabled": TRUTH,
    "immediate_grad_update": only(False, "gradients are fp32 and need no such thing"),
    "check_grad_overflow": only(True, "steps without finite gradients are always skipped"),
    "bf16_master_weights_and_grads": only(False, "master weights are fp32"),
    "bf16_optimizer_states": only(False, "optimizer state is fp32"),
}
AUTOCAST_DTYPES = {
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "torch.float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
}
AUTOCAST_KEYS: dict[str, Key] = {
    "enabled": TRUTH,
    "dtype": Key(
        "expected bfloat16 or float16", lambda value: isinstance(value, str) and value in AUTOCAST_DTYPES
    ),
}
