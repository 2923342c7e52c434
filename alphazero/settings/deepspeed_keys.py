"""The keys of a ds_config.json that this program sets, refuses or does without, as of DeepSpeed 0.19.8.

Every other key within a block of PASSED_ON goes to DeepSpeed as it is. docs/deepspeed.md lists all of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alphazero.settings.sections import ONE_CYCLE, WARMUP_COSINE_LR, WARMUP_DECAY_LR, WARMUP_LR

ZERO = "zero_optimization"
LARGEST_POWER = 24  # of the largest loss scale (engine/optimizer.py)
SWITCH = {True: True, False: False}
# DeepSpeed takes optimizers' names in any case. Adam is AdamW there unless adam_w_mode is false.
OPTIMIZERS = {"Adam": "adamw", "AdamW": "adamw", "Muon": "muon", "SGD": "sgd"}
ADAMS, MUON, SGD = ("Adam", "AdamW"), ("Muon",), ("SGD",)
SCHEDULERS = {
    "WarmupLR": WARMUP_LR,
    "WarmupDecayLR": WARMUP_DECAY_LR,
    "WarmupCosineLR": WARMUP_COSINE_LR,
    "OneCycle": ONE_CYCLE,
}
WARMUPS, DECAY, COSINE = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"), "WarmupDecayLR", "WarmupCosineLR"
CYCLE = ("OneCycle",)
AUTOCAST_DTYPES = dict.fromkeys(("bfloat16", "torch.bfloat16", "bf16"), "bf16") | dict.fromkeys(
    ("float16", "torch.float16", "fp16", "half"), "fp16"
)


@dataclass(frozen=True)
class Key:
    """A key whose value is checked here.

    path: its names from the top, with dots. sets: the settings that it gives, with spaces between them, whose
    declarations say what it may hold. variants: types of its optimizer or scheduler that have it, all where
    there are none. default: what DeepSpeed takes where the block exists without the key (None: the setting
    stays). words: its values, and what they mean. minimum: above that of its setting, whose 0 stands for "not
    given". kind: of a value that DeepSpeed gets as it is.
    """

    path: str
    sets: str = ""
    variants: tuple[str, ...] = ()
    default: object = None
    is_needed: bool = False
    words: Mapping[Any, Any] = field(default_factory=dict)  # never empty without `sets` and `kind`
    minimum: int | None = None
    kind: type | None = None

    @property
    def name(self) -> str:
        """Its last name."""
        return self.path.rpartition(".")[2]

    @property
    def block(self) -> str:
        """The path of the object it stands in, "" at the top."""
        return self.path.rpartition(".")[0]


def _param(name: str, sets: str, variants: tuple[str, ...] = (), default: object = None, **more: Any) -> Key:  # noqa: ANN401
    return Key(f"optimizer.params.{name}", sets, variants, default, **more)


def _course(name: str, sets: str, variants: tuple[str, ...], default: object = None, **more: Any) -> Key:  # noqa: ANN401
    return Key(f"scheduler.params.{name}", sets, variants, default, **more)


_RATES = "learning_rate muon_learning_rate"  # the second with Muon
# A later key beats an earlier one that sets the same. Muon's defaults are those of DeepSpeed's original_muon.
KEYS: tuple[Key, ...] = (
    Key("train_batch_size", "batch_size"),
    Key("train_micro_batch_size_per_gpu", "micro_batch_size", minimum=1),
    Key("gradient_accumulation_steps", "gradient_accumulation_steps", minimum=1),
    Key("optimizer.type", "optimizer", is_needed=True, words=OPTIMIZERS),
    _param("lr", "learning_rate", (*ADAMS, *SGD)),
    _param("lr", _RATES, MUON),
    _param("adam_lr", "learning_rate", MUON),
    _param("muon_lr", "muon_learning_rate", MUON),
    _param("weight_decay", "weight_decay", default=0.0),
    _param("betas", "adam_beta1 adam_beta2", ADAMS, [0.9, 0.999]),
    _param("eps", "adam_eps", ADAMS, 1e-8),
    _param("adam_w_mode", "optimizer", ("Adam",), words={True: "adamw", False: "adam"}),
    _param("momentum", "momentum", SGD, 0.0),
    _param("momentum", "muon_momentum", MUON, 0.95),
    _param("betas", "adam_beta1 adam_beta2", MUON, [0.9, 0.95]),
    _param("eps", "adam_eps", MUON, 1e-10),
    _param("nesterov", "nesterov", SGD, False),
    _param("bias_correction", "adam_bias_correction", ADAMS, True),
    Key("scheduler.type", "lr_schedule", is_needed=True, words=SCHEDULERS),
    _course("warmup_min_lr", "warmup_min_lr", ("WarmupLR", DECAY), 0.0),
    # DeepSpeed's schedulers give their rate to all groups of parameters.
    _course("warmup_max_lr", _RATES, ("WarmupLR",)),
    _course("warmup_max_lr", _RATES, (DECAY,), 0.001),
    _course("warmup_min_ratio", "warmup_min_share", (COSINE,), 0.0),
    _course("warmup_num_steps", "warmup_steps", WARMUPS, 1000),
    _course("warmup_type", "warmup_type", WARMUPS, "log"),
    _course("total_num_steps", "lr_total_steps", (DECAY, COSINE), is_needed=True),
    _course("cos_min_ratio", "lr_final_share", (COSINE,), 0.0001),
    _course("cycle_min_lr", "cycle_min_lr", CYCLE, is_needed=True),
    _course("cycle_max_lr", _RATES, CYCLE, is_needed=True),
    # Momentum is constant here; absent it is true.
    Key("scheduler.params.cycle_momentum", variants=CYCLE, is_needed=True, words={False: False}),
    _course("cycle_first_step_size", "cycle_first_steps", CYCLE, 2000),
    _course("cycle_second_step_size", "cycle_second_steps", CYCLE),
    _course("decay_step_size", "cycle_decay_steps", CYCLE, 0),
    _course("decay_lr_rate", "cycle_decay_rate", CYCLE, 0.0),
    Key("gradient_clipping", "clip_gradients"),
    Key("fp16.enabled", words=SWITCH),
    Key("fp16.loss_scale", "fixed_loss_scale"),
    Key(
        "fp16.initial_scale_power",
        "loss_scale",
        words={power: 2.0 ** min(power, LARGEST_POWER) for power in range(33)},
    ),
    Key("fp16.loss_scale_window", "loss_scale_window"),
    Key("fp16.hysteresis", "loss_scale_hysteresis", default=2),
    Key("fp16.consecutive_hysteresis", "loss_scale_consecutive"),
    Key("fp16.min_loss_scale", "loss_scale_minimum"),
    Key("bf16.enabled", words=SWITCH),
    Key("torch_autocast.enabled", words=SWITCH),
    Key("torch_autocast.dtype", words=AUTOCAST_DTYPES),
    Key(f"{ZERO}.stage", "zero_stage"),
    Key(f"{ZERO}.overlap_comm", words=SWITCH),
    Key(f"{ZERO}.contiguous_gradients", words=SWITCH),
    # NVMe needs kernels that are compiled.
    Key(f"{ZERO}.offload_optimizer.device", words={"cpu": "cpu", "none": "none"}),
    Key(f"{ZERO}.offload_param.device", words={"cpu": "cpu", "none": "none"}),
    Key("communication_data_type", words={name: name for name in ("fp32", "bf16", "fp16")}),
    Key("wall_clock_breakdown", words=SWITCH),
    Key("memory_breakdown", words=SWITCH),
    Key("flops_profiler.enabled", words=SWITCH),
    Key("flops_profiler.profile_step", kind=int),
    Key("flops_profiler.module_depth", kind=int),
    Key("flops_profiler.top_modules", kind=int),
    Key("flops_profiler.detailed", words=SWITCH),
    Key("flops_profiler.output_file", kind=str),
    Key("steps_per_print", "log_interval"),
    Key("tensorboard.enabled", "tensorboard"),
    Key("tensorboard.output_path", "tensorboard_dir"),
    Key("wandb.enabled", "wandb"),
    Key("wandb.project", "wandb_project"),
    Key("wandb.team", "wandb_team"),
    Key("wandb.group", "wandb_group"),
)
PASSED_ON = frozenset(
    (ZERO, "flops_profiler", "communication_data_type", "wall_clock_breakdown", "memory_breakdown")
)
# Options of ZeRO that DeepSpeed gets from this stage on.
FROM_STAGE = {"offload_optimizer": 1, "overlap_comm": 2, "offload_param": 3}
# Objects that are looked into.
BLOCKS = frozenset(block for key in KEYS for block in (key.block, key.block.rpartition(".")[0]) if block)
# What such an object may be; {"enabled": true} where it is not listed.
EXAMPLES: Mapping[str, Mapping[str, object]] = {
    "optimizer": {"type": "Adam"},
    "optimizer.params": {"lr": 0.001},
    "scheduler": {"type": "WarmupLR"},
    "scheduler.params": {"warmup_num_steps": 1000},
    ZERO: {"stage": 1},
    f"{ZERO}.offload_optimizer": {"device": "cpu"},
    f"{ZERO}.offload_param": {"device": "cpu"},
}


# Without them the results would differ silently: refused unless off, or at the value in NEUTRAL.
_ROUNDS = "ZeRO++ rounds what it sends"
_OTHER_NETWORK = "it trains another network"
_ORDER = "the order of the data is a function of --seed and the step"
REFUSED = {
    "optimizer.params.amsgrad": "DeepSpeed's own Adam refuses it too",
    "optimizer.params.dampening": "momentum is not dampened here",
    "optimizer.params.maximize": "it would maximize the loss",
    "optimizer.params.max_grad_norm": "gradient_clipping is the key for it",
    "optimizer.params.adam_w_mode": "only Adam adds the decay to the gradient",
    "optimizer.params.per_head_muon": "a matrix is made orthogonal as a whole",
    "scheduler.params.cycle_first_stair_count": "the rate moves at every step here",
    "scheduler.params.cycle_second_stair_count": "the rate moves at every step here",
    f"{ZERO}.zenflow": "its optimizer updates weights with gradients of earlier steps",
    f"{ZERO}.zero_quantized_weights": _ROUNDS,
    f"{ZERO}.zero_quantized_nontrainable_weights": _ROUNDS,
    f"{ZERO}.zero_quantized_gradients": _ROUNDS,
    f"{ZERO}.zeropp_loco_param": _ROUNDS,
    f"{ZERO}.cpu_offload": "expected offload_optimizer",
    f"{ZERO}.cpu_offload_param": "expected offload_param",
    f"{ZERO}.cpu_offload_use_pin_memory": "expected offload_optimizer",
    "gradient_allreduce_op": "a sum would make the step depend on the number of ranks",
    "tensor_parallel": "ranks share out the batch alone",
    "sequence_parallel_size": "ranks share out the batch alone",
    "compression_training": _OTHER_NETWORK,
    "quantize_training": _OTHER_NETWORK,
    "progressive_layer_drop": _OTHER_NETWORK,
    "weight_quantization": _OTHER_NETWORK,
    "data_efficiency": _ORDER,
    "curriculum_learning": _ORDER,
    "amp": "expected torch_autocast, bf16 or fp16",
    "elasticity": "it would choose the batch; see --max-restarts",
}
NEUTRAL = {
    "optimizer.params.adam_w_mode": True,
    "gradient_allreduce_op": "mean",
    "sequence_parallel_size": 1,
    "gradient_predivide_factor": 1,
    "zero_allow_untested_optimizer": True,
}
# The results are the same without them, for the reasons in docs/deepspeed.md: named in the log unless off.
_IGNORED_BY_BLOCK = {
    "optimizer": "legacy_fusion",
    "optimizer.params": "ns_method torch_adam fused foreach capturable differentiable set_grad_none "
    "fp32_optimizer_states adamw_mode",
    "scheduler.params": "cycle_min_mom cycle_max_mom decay_mom_rate last_batch_iteration",
    "fp16": "auto_cast fp16_master_weights_and_grads",
    "bf16": "bf16_master_weights_and_grads bf16_optimizer_states immediate_grad_update check_grad_overflow",
    "torch_autocast": "lower_precision_safe_modules",
    f"{ZERO}.offload_optimizer": "ratio super_offload",
    # DeepSpeed 0.19.8 mixes up optimizer states with the first and fails with the next three.
    ZERO: "round_robin_gradients legacy_stage1 stage3_module_granularity_threshold "
    "module_granularity_threshold "
    "zero_hpz_partition_size mics_shard_size mics_hierarchical_params_gather leaf_module "
    "override_module_apply compute_grad_norm",
    "tensorboard": "job_name",
    "": "csv_monitor comet activation_checkpointing autotuning compile checkpoint datastates nebula "
    "data_types managed_gradient_accumulation dataloader_drop_last disable_python_gc "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer timers comms_logger dump_state log_level "
    "aio hybrid_engine expert_parallel use_data_before_expert_parallelism disable_allgather pipeline "
    "seq_parallel_communication_data_type vocabulary_size sparse_gradients sparse_attention eigenvalue "
    "graph_harvesting cuda_visible_devices prescale_gradients gradient_predivide_factor",
}
IGNORED = frozenset(
    f"{block}.{name}" if block else name
    for block, names in _IGNORED_BY_BLOCK.items()
    for name in names.split()
)


def key_at(path: str, variant: str) -> Key | None:
    """The key at a path in a block of this variant; None where there is none."""
    return next((key for key in KEYS if key.path == path and variant in (key.variants or (variant,))), None)
