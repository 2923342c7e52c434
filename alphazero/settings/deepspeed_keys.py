"""All keys of a ds_config.json in one table: it drives reading, messages and docs/deepspeed.md.

Read from DeepSpeed 0.19.8; what is passed on was tried at the ZeRO stages named, over two ranks, with this
trainer's way of stepping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from alphazero.base.section import MOST_RATE, MOST_STEPS
from alphazero.settings.deepspeed_key import (
    ADAMS,
    AUTOCAST_DTYPES,
    CYCLE,
    LARGEST_POWER,
    MUON,
    OPTIMIZERS,
    SCHEDULERS,
    SGD,
    TEXT,
    TRUTH,
    WARMUPS,
    Check,
    Key,
    Meaning,
    honoured,
    ignored,
    is_off,
    number,
    only,
    pair,
    passed_on,
    refused,
    whole,
    word,
)
from alphazero.settings.sections import MOST_POSITIONS

_RATE = number(0, MOST_RATE)
_SHARE = number(0, 1)
_STEPS = whole(1, MOST_STEPS)
_SIZE = whole(1, MOST_POSITIONS)
_ANY_STEPS = whole(0, MOST_STEPS)
_OPTIMIZER = Check(
    "expected one of Adam, AdamW, Muon, SGD; others would need kernels or change the results",
    lambda value: isinstance(value, str) and value.lower() in OPTIMIZERS,
)
_DTYPE = Check(
    "expected bfloat16 or float16", lambda value: isinstance(value, str) and value in AUTOCAST_DTYPES
)
_SCALE = Check(
    "expected 0, the dynamic scale, or a fixed one from 1 to 16777216", number(0, 2.0**LARGEST_POWER).accepts
)
_CPU = Check("expected cpu or none: NVMe needs kernels that are compiled", word("cpu").accepts)
_STAIRS = "the rate moves at every step here, not in stairs"
_MOMENTUM = "Adam's momentum is constant here (with SGD, DeepSpeed leaves the momentum alone too)"
_AUTOCAST = "autocast casts what each layer takes: weights, gradients and BatchNorm stay fp32"
_ONE_DEVICE = "the network fits one device and ranks share out the batch alone"
_GONE = "it is not part of DeepSpeed 0.19.8"
_ADAMW = "AdamW moves what Muon does not"
_WHOLE = "a matrix is made orthogonal as a whole"
_TORCH = "the optimizers are torch's own"
_ORDER = "the order of the data is a function of --seed and the step"
_SUM = "a sum would make the step depend on the number of ranks"
_LOG = "DeepSpeed's log is switched off"
_PEAK = "the peak; beats optimizer.params.lr, as in DeepSpeed"
_BY_NVME = "it is for NVMe, or for DeepSpeed's own optimizer"
_Z = "zero_optimization"
_ADAM, _SCHEDULE, _PROFILE = "optimizer.params", "scheduler.params", "flops_profiler"


def _param(name: str, check: Check, setting: str, why: str, **more: Any) -> Key:  # noqa: ANN401 - fields
    sets = " ".join(f"optimizer.{one}" for one in setting.split())
    return honoured(f"{_ADAM}.{name}", check, sets, why, **more)


_betas = partial(_param, "betas", pair(_SHARE), "adam_beta1 adam_beta2", values=tuple)


def _schedule(name: str, check: Check, setting: str, why: str, **more: Any) -> Key:  # noqa: ANN401 - fields
    return honoured(f"{_SCHEDULE}.{name}", check, f"optimizer.{setting}", why, **more)


# A later key beats an earlier one that sets the same.
_BATCH_AND_OPTIMIZER: tuple[Key, ...] = (
    honoured("train_batch_size", _SIZE, "training.batch_size", "positions per step over all ranks"),
    honoured("train_micro_batch_size_per_gpu", _SIZE, "training.micro_batch_size", "positions per pass"),
    honoured(
        "gradient_accumulation_steps",
        _SIZE,
        "training.gradient_accumulation_steps",
        "passes per rank and step",
    ),
    honoured(
        "optimizer.type",
        _OPTIMIZER,
        "optimizer.optimizer",
        "Adam is AdamW as in DeepSpeed, unless adam_w_mode is false",
        values=lambda value: ({"adam": "adamw"}.get(value.lower(), value.lower()),),
        is_needed=True,
    ),
    _param("lr", _RATE, "learning_rate", "the peak rate; absent or auto it is ours", variants=(*ADAMS, *SGD)),
    _param(
        "lr",
        _RATE,
        "learning_rate muon_learning_rate",
        "both rates",
        values=lambda rate: (rate, rate),
        variants=MUON,
    ),
    _param("adam_lr", _RATE, "learning_rate", "the peak rate of what Muon does not move", variants=MUON),
    _param("muon_lr", _RATE, "muon_learning_rate", "the peak rate of the body's matrices", variants=MUON),
    _param("weight_decay", _RATE, "weight_decay", "on weights; biases and BatchNorm have none", default=0.0),
    _betas("decay rates of the moments", variants=ADAMS, default=[0.9, 0.999]),
    _param("eps", _SHARE, "adam_eps", "added to the root", variants=ADAMS, default=1e-8),
    _param(
        "adam_w_mode",
        TRUTH,
        "optimizer",
        "false with Adam: decay goes into the gradient (L2)",
        values=lambda value: ("adamw" if value else "adam",),
        variants=("Adam",),
    ),
    Key(f"{_ADAM}.adam_w_mode", Meaning.IGNORED, "AdamW is AdamW", variants=("AdamW",)),
    _param("momentum", _SHARE, "momentum", "of SGD", variants=SGD, default=0.0),
    # What is absent is as in DeepSpeed's original_muon.py.
    _param("momentum", _SHARE, "muon_momentum", "of the body's matrices", variants=MUON, default=0.95),
    _betas("decay rates of the moments of the rest", variants=MUON, default=[0.9, 0.95]),
    _param("eps", _SHARE, "adam_eps", "added to the root, for the rest", variants=MUON, default=1e-10),
    Key(f"{_ADAM}.adam_w_mode", Meaning.REFUSED, _ADAMW, only(True, _ADAMW), variants=MUON),
    Key(f"{_ADAM}.per_head_muon", Meaning.REFUSED, _WHOLE, only(False, _WHOLE), variants=MUON),
    Key(f"{_ADAM}.ns_method", Meaning.IGNORED, "the iteration is that of Muon's authors", variants=MUON),
    _param("nesterov", TRUTH, "nesterov", "Nesterov's momentum", variants=SGD, default=False),
    _param(
        "bias_correction",
        TRUTH,
        "adam_bias_correction",
        "correction for moments that start at zero",
        variants=ADAMS,
        default=True,
    ),
    *refused("DeepSpeed's own Adam refuses it too", "amsgrad", _ADAM),
    *refused("momentum is not dampened here", "dampening", _ADAM, only(0, "no dampening")),
    *refused("it would maximize the loss", "maximize", _ADAM),
    *refused("gradient_clipping is the key for it", "max_grad_norm", _ADAM, only(0, "no clipping")),
    *ignored(
        "torch's optimizers are used, the fastest form that the device has",
        "torch_adam fused foreach capturable differentiable set_grad_none fp32_optimizer_states adamw_mode",
        _ADAM,
    ),
    *ignored("it chooses among DeepSpeed's own kernels", "optimizer.legacy_fusion"),
)

_SCHEDULER: tuple[Key, ...] = (
    honoured(
        "scheduler.type",
        word(*SCHEDULERS),
        "optimizer.lr_schedule",
        "the course of the learning rate; a skipped step counts here",
        values=lambda value: (SCHEDULERS[value],),
        is_needed=True,
    ),
    _schedule(
        "warmup_min_lr",
        _RATE,
        "warmup_min_lr",
        "rate that the warm-up begins at",
        variants=WARMUPS[:2],
        default=0.0,
    ),
    _schedule("warmup_max_lr", _RATE, "learning_rate", _PEAK, variants=("WarmupLR",)),
    _schedule("warmup_max_lr", _RATE, "learning_rate", _PEAK, variants=("WarmupDecayLR",), default=0.001),
    _schedule(
        "warmup_min_ratio",
        _SHARE,
        "warmup_min_share",
        "rate that the warm-up begins at, as a share of the peak",
        variants=WARMUPS[2:],
        default=0.0,
    ),
    _schedule(
        "warmup_num_steps", _STEPS, "warmup_steps", "steps of the warm-up", variants=WARMUPS, default=1000
    ),
    _schedule(
        "warmup_type", word("log", "linear"), "warmup_type", "its form", variants=WARMUPS, default="log"
    ),
    _schedule(
        "total_num_steps",
        _STEPS,
        "lr_total_steps",
        "steps until the last rate; auto: those of the run",
        variants=WARMUPS[1:],
        is_needed=True,
    ),
    _schedule(
        "cos_min_ratio",
        _SHARE,
        "lr_final_share",
        "last rate as a share of the peak",
        variants=WARMUPS[2:],
        default=0.0001,
    ),
    _schedule(
        "cycle_min_lr",
        _RATE,
        "cycle_min_lr",
        "rate at both ends of the cycle",
        variants=CYCLE,
        is_needed=True,
    ),
    _schedule("cycle_max_lr", _RATE, "learning_rate", "the peak", variants=CYCLE, is_needed=True),
    _schedule(
        "cycle_first_step_size",
        _STEPS,
        "cycle_first_steps",
        "steps up to the peak",
        variants=CYCLE,
        default=2000,
    ),
    _schedule(
        "cycle_second_step_size",
        _ANY_STEPS,
        "cycle_second_steps",
        "steps back down; absent as many as up",
        variants=CYCLE,
    ),
    _schedule(
        "decay_step_size",
        _ANY_STEPS,
        "cycle_decay_steps",
        "steps of the decay after the cycle",
        variants=CYCLE,
        default=0,
    ),
    _schedule("decay_lr_rate", _RATE, "cycle_decay_rate", "its strength", variants=CYCLE, default=0.0),
    *refused(_STAIRS, "cycle_first_stair_count cycle_second_stair_count", _SCHEDULE, only(0, _STAIRS)),
    Key(
        f"{_SCHEDULE}.cycle_momentum",
        Meaning.REFUSED,
        _MOMENTUM,
        Check("expected false: Adam's momentum is constant here", is_off),
        variants=CYCLE,
    ),
    *ignored(
        "the momentum is constant here",
        "cycle_min_mom cycle_max_mom decay_mom_rate",
        _SCHEDULE,
    ),
    *ignored("the number of the step decides, also after a resume", "last_batch_iteration", _SCHEDULE),
)

_PRECISION: tuple[Key, ...] = (
    honoured(
        "gradient_clipping",
        number(0),
        "optimizer.clip_gradients",
        "largest norm; 0 turns it off; absent: 10 here, 1.0 in DeepSpeed",
    ),
    honoured("fp16.enabled", TRUTH, "training.precision", _AUTOCAST),
    honoured(
        "fp16.loss_scale",
        _SCALE,
        "training.fixed_loss_scale",
        "0 is the dynamic one; a fixed one stays",
    ),
    honoured(
        "fp16.initial_scale_power",
        whole(0, 32),
        "training.loss_scale",
        f"first dynamic scale, as a power of two; above {LARGEST_POWER} it is {LARGEST_POWER}",
        values=lambda value: (2.0 ** min(int(value), LARGEST_POWER),),
    ),
    honoured(
        "fp16.loss_scale_window",
        _STEPS,
        "training.loss_scale_window",
        "good steps until it doubles; DeepSpeed waits for one more after an overflow",
    ),
    honoured(
        "fp16.hysteresis", _STEPS, "training.loss_scale_hysteresis", "overflows until it halves", default=2
    ),
    honoured(
        "fp16.consecutive_hysteresis",
        TRUTH,
        "training.loss_scale_consecutive",
        "whether a good step restarts their count",
    ),
    honoured(
        "fp16.min_loss_scale",
        number(1, 2.0**LARGEST_POWER),
        "training.loss_scale_minimum",
        "it does not go below",
    ),
    honoured("bf16.enabled", TRUTH, "training.precision", _AUTOCAST),
    honoured("torch_autocast.enabled", TRUTH, "training.precision", _AUTOCAST),
    honoured("torch_autocast.dtype", _DTYPE, "training.precision", "which of the two"),
    *ignored(_AUTOCAST, "fp16.auto_cast torch_autocast.lower_precision_safe_modules"),
    *ignored(
        "weights, gradients and optimizer state stay fp32, which is more exact and takes more memory",
        "fp16.fp16_master_weights_and_grads bf16.bf16_master_weights_and_grads bf16.bf16_optimizer_states "
        "data_types",
    ),
    *ignored("gradients are fp32 and need no such thing", "bf16.immediate_grad_update"),
    *ignored("steps without finite gradients are always skipped", "bf16.check_grad_overflow"),
)

_ZERO: tuple[Key, ...] = (
    honoured(
        f"{_Z}.stage",
        Check("expected 0, 1, 2 or 3", whole(0, 3).accepts),
        "training.zero_stage",
        "0: whole weights on every rank",
    ),
    *passed_on(whole(1), "reduce_bucket_size allgather_bucket_size", _Z),
    *passed_on(TRUTH, "contiguous_gradients reduce_scatter enable_sanity_checks", _Z, (1, 2, 3)),
    *passed_on(TRUTH, "use_multi_rank_bucket_allreduce allgather_partitions parameter_alignment", _Z, (1, 2)),
    *passed_on(TRUTH, "ignore_unused_parameters", _Z, (2,)),
    # Not below: with our accumulation all gradients of stages 0 and 1 are reduced after backward.
    *passed_on(TRUTH, "overlap_comm", _Z, (2, 3)),
    *passed_on(whole(0), "sub_group_size", _Z, (3,)),
    *passed_on(TRUTH, "memory_efficient_linear", _Z, (3,)),
    *passed_on(
        whole(0),
        "stage3_prefetch_bucket_size stage3_param_persistence_threshold stage3_model_persistence_threshold "
        "stage3_max_live_parameters stage3_max_reuse_distance",
        _Z,
        (3,),
    ),
    *passed_on(TRUTH, "stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential", _Z, (3,)),
    *passed_on(_CPU, "device", f"{_Z}.offload_optimizer", (1, 2, 3)),
    *passed_on(TRUTH, "pin_memory", f"{_Z}.offload_optimizer", (1, 2, 3)),
    *passed_on(_CPU, "device", f"{_Z}.offload_param", (3,)),
    *passed_on(TRUTH, "pin_memory", f"{_Z}.offload_param", (3,)),
    *ignored(
        _BY_NVME,
        "buffer_count buffer_size pipeline_read pipeline_write fast_init ratio super_offload "
        "cpuadam_cores_perc nvme_path",
        f"{_Z}.offload_optimizer",
    ),
    *ignored(_BY_NVME, "buffer_count buffer_size max_in_cpu nvme_path", f"{_Z}.offload_param"),
    *refused("its optimizer updates weights with gradients of earlier steps", "zenflow", _Z),
    *refused(
        "ZeRO++ rounds what it sends",
        "zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients "
        "zeropp_loco_param",
        _Z,
    ),
    # Seen at stages 1 and 2: get_full_hp_param gives other parameters' state.
    *ignored(
        "an order of partitions; with it DeepSpeed 0.19.8 mixes up the optimizer state of parameters",
        "round_robin_gradients",
        _Z,
    ),
    # Seen: "output with shape [1] doesn't match the broadcast shape" in backward.
    *ignored(
        "how stage 3 gathers weights; DeepSpeed 0.19.8 then fails in this network's backward pass",
        "stage3_module_granularity_threshold",
        _Z,
    ),
    *ignored(
        "where things are kept or how they travel; the results are the same",
        "zero_hpz_partition_size mics_shard_size mics_hierarchical_params_gather legacy_stage1 leaf_module "
        "override_module_apply save_muon_momentum_buffer_in_memory",
        _Z,
    ),
    *ignored("clipping needs the norm, so it is computed", "compute_grad_norm", _Z),
    *ignored(_LOG, "log_trace_cache_warnings", _Z),
    *ignored(
        "checkpoints are this program's own, whole and for any stage",
        "pipeline_loading_checkpoint elastic_checkpoint load_from_fp32_weights "
        "stage3_gather_16bit_weights_on_model_save",
        _Z,
    ),
    *passed_on(word("fp32", "bf16", "fp16"), "communication_data_type"),
    *passed_on(TRUTH, "prescale_gradients"),
    *passed_on(number(0, above=True), "gradient_predivide_factor"),
    *refused(_SUM, "gradient_allreduce_op", check=only("mean", _SUM)),
)

_MONITORS: tuple[Key, ...] = (
    honoured("steps_per_print", _STEPS, "training.log_interval", "steps between lines"),
    honoured("tensorboard.enabled", TRUTH, "run.tensorboard", "whether they are written"),
    *ignored("everything of a run is in its own directory", "output_path job_name", "tensorboard"),
    honoured("wandb.enabled", TRUTH, "run.wandb", "whether figures go there"),
    honoured("wandb.project", TEXT, "run.wandb_project", "their project"),
    honoured("wandb.team", TEXT, "run.wandb_team", "their team"),
    honoured("wandb.group", TEXT, "run.wandb_group", "their group"),
    *ignored("metrics.jsonl of the run has every figure", "csv_monitor"),
    *ignored("--tensorboard and --wandb are the monitors here", "comet"),
    *passed_on(TRUTH, "wall_clock_breakdown memory_breakdown"),
    *passed_on(TRUTH, "enabled", _PROFILE),
    *passed_on(_STEPS, "profile_step", _PROFILE),
    *passed_on(whole(-1), "module_depth", _PROFILE),
    *passed_on(whole(1), "top_modules", _PROFILE),
    *passed_on(TRUTH, "detailed", _PROFILE),
    *passed_on(Check("expected a path", TEXT.accepts), "output_file", _PROFILE),
    *passed_on(Check("expected 0 or 1", whole(0, 1).accepts), "recompute_fwd_factor", _PROFILE),
)

_IGNORED: tuple[Key, ...] = (
    *ignored(
        "--activation-checkpointing names what an attention body computes again; of a tower it is nothing",
        "activation_checkpointing",
    ),
    *ignored("--micro-batch-size auto finds what fits", "autotuning"),
    *ignored(
        "it is no key of DeepSpeed's; the environment variable CUDA_VISIBLE_DEVICES decides",
        "cuda_visible_devices",
    ),
    *ignored("--compile compiles", "compile"),
    *ignored(_LOG, "comms_logger dump_state log_level timers"),
    *ignored("checkpoints are this program's own; see --checkpoint-interval", "checkpoint datastates nebula"),
    *ignored("nothing is offloaded to NVMe", "aio"),
    *ignored(_TORCH, "zero_allow_untested_optimizer", check=only(True, _TORCH)),
    *ignored(_TORCH, "zero_force_ds_cpu_optimizer", check=only(False, _TORCH)),
    *ignored("the trainer accumulates", "managed_gradient_accumulation"),
    *ignored("the data loader is this program's own", "dataloader_drop_last"),
    *ignored("DeepSpeed 0.19.8 reads it and does nothing", "disable_allgather"),
    *ignored("the trainer's own objects need collecting", "disable_python_gc"),
    *ignored(
        "there are no tokens, embeddings or experts in this network",
        "hybrid_engine expert_parallel use_data_before_expert_parallelism "
        "seq_parallel_communication_data_type vocabulary_size sparse_gradients sparse_attention",
    ),
    *ignored("there are no stages in this network", "pipeline"),
    *ignored(_GONE, "eigenvalue graph_harvesting"),
)

_REFUSED: tuple[Key, ...] = (
    *refused(_ONE_DEVICE, "tensor_parallel"),
    *refused(_ONE_DEVICE, "sequence_parallel_size", check=only(1, _ONE_DEVICE)),
    *refused(
        f"it trains another network; {_GONE}",
        "compression_training quantize_training progressive_layer_drop",
    ),
    *refused("it trains another network", "weight_quantization"),
    *refused(f"{_ORDER}, and all of the network is trained", "data_efficiency"),
    *refused(f"{_ORDER}; {_GONE}", "curriculum_learning"),
    *refused(f"{_GONE}; expected torch_autocast, bf16 or fp16", "amp"),
    *refused(
        "it would choose the batch; a run continues on any number of ranks (--max-restarts)",
        "elasticity",
    ),
)

# Other names that DeepSpeed knows a key by.
ALIASES = {
    "bfloat16": "bf16",
    f"{_Z}.gather_16bit_weights_on_model_save": f"{_Z}.stage3_gather_16bit_weights_on_model_save",
    f"{_Z}.gather_fp16_weights_on_model_save": f"{_Z}.stage3_gather_16bit_weights_on_model_save",
    f"{_Z}.stage3_gather_fp16_weights_on_model_save": f"{_Z}.stage3_gather_16bit_weights_on_model_save",
    **{
        f"{_Z}.{key.name.removeprefix('stage3_')}": key.path
        for key in _ZERO
        if key.name.startswith("stage3_")
    },
}
# Names of old whose values were others.
OLD_NAMES = {
    "allgather_size": f"{_Z}.allgather_bucket_size",
    f"{_Z}.cpu_offload": "offload_optimizer",
    f"{_Z}.cpu_offload_param": "offload_param",
    f"{_Z}.cpu_offload_use_pin_memory": "offload_optimizer",
}

_TABLE = (*_BATCH_AND_OPTIMIZER, *_SCHEDULER, *_PRECISION, *_ZERO, *_MONITORS, *_IGNORED, *_REFUSED)
# Objects that are looked into.
BLOCKS = frozenset(block for key in _TABLE for block in (key.block, key.block.rpartition(".")[0]) if block)
KEYS: tuple[Key, ...] = (*_TABLE, *(Key(block, Meaning.HONOURED, "") for block in sorted(BLOCKS)))


def _by_path(keys: Iterable[Key]) -> Mapping[str, tuple[Key, ...]]:
    found: dict[str, tuple[Key, ...]] = {}
    for key in keys:
        found[key.path] = (*found.get(key.path, ()), key)
    return found


# A path has several keys where its meaning depends on the variant of its block.
BY_PATH = _by_path(KEYS)


def key_at(path: str, variant: str) -> Key | None:
    """The key at a path in a block of this variant; None where there is none."""
    return next((key for key in BY_PATH.get(path, ()) if not key.variants or variant in key.variants), None)


def names_in(block: str, variant: str) -> list[str]:
    """The names that an object of this variant may have and that do something."""
    return [key.name for key in KEYS if key.block == block and (not key.variants or variant in key.variants)]
