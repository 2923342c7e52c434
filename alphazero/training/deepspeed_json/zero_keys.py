"""The keys of `zero_optimization`, and those of the reduction of gradients.

Read from DeepSpeed 0.19.8 (runtime/zero/config.py); what is passed on was tried at the stages named, over two
ranks, with this trainer's way of stepping.
"""

from __future__ import annotations

from alphazero.training.deepspeed_json.check import TRUTH, Check, number, only, whole, word
from alphazero.training.deepspeed_json.key import Key, honoured, ignored, passed_on, refused

_Z = "zero_optimization"
_BUCKETS = "the size of its buckets, where there are some"
_SHARDED = (1, 2, 3)
_FETCH = "how stage 3 gathers weights"
_PLACE = "where things are kept or how they travel; the results are the same"
_ZERO_PLUS = "ZeRO++ rounds what it sends"
_CPU = Check("expected cpu or none: NVMe needs kernels that are compiled", word("cpu").accepts)
_CHECKPOINTS = "checkpoints are this program's own, whole and for any stage"


def _zero(name: str, check: Check, why: str, stages: tuple[int, ...]) -> Key:
    return passed_on(f"{_Z}.{name}", check, why, stages)


ZERO_KEYS: tuple[Key, ...] = (
    honoured(_Z, None, "", "ZeRO, at stages 0 to 3"),
    honoured(
        f"{_Z}.stage",
        Check("expected 0, 1, 2 or 3", whole(0, 3).accepts),
        "training.zero_stage",
        "0: whole weights on every rank",
        values=lambda value: (int(value),),
    ),
    _zero("reduce_bucket_size", whole(1), _BUCKETS, (0, *_SHARDED)),
    _zero("allgather_bucket_size", whole(1), _BUCKETS, (0, *_SHARDED)),
    _zero("contiguous_gradients", TRUTH, "whether gradients are copied together", _SHARDED),
    _zero("reduce_scatter", TRUTH, "whether each rank gets its part alone", _SHARDED),
    _zero("enable_sanity_checks", TRUTH, "DeepSpeed's checks of itself", _SHARDED),
    _zero("use_multi_rank_bucket_allreduce", TRUTH, "how buckets are cut", (1, 2)),
    _zero("allgather_partitions", TRUTH, "how weights are gathered", (1, 2)),
    _zero("parameter_alignment", TRUTH, "how weights are laid out", (1, 2)),
    _zero("ignore_unused_parameters", TRUTH, "every parameter is used", (2,)),
    # Not below: with our accumulation all gradients of stages 0 and 1 are reduced after backward.
    _zero(
        "overlap_comm", TRUTH, "reduce during backward; below stage 2 gradients are reduced after it", (2, 3)
    ),
    _zero("sub_group_size", whole(1), "elements updated at a time", (3,)),
    _zero("memory_efficient_linear", TRUTH, "how linear layers keep their input", (3,)),
    _zero("stage3_prefetch_bucket_size", whole(0), _FETCH, (3,)),
    _zero("stage3_param_persistence_threshold", whole(0), _FETCH, (3,)),
    _zero("stage3_model_persistence_threshold", whole(0), _FETCH, (3,)),
    _zero("stage3_max_live_parameters", whole(0), _FETCH, (3,)),
    _zero("stage3_max_reuse_distance", whole(0), _FETCH, (3,)),
    _zero("stage3_use_all_reduce_for_fetch_params", TRUTH, _FETCH, (3,)),
    _zero("stage3_allgather_sequential", TRUTH, _FETCH, (3,)),
    honoured(
        f"{_Z}.offload_optimizer", None, "", "optimizer state in the host's memory, with torch's optimizer"
    ),
    _zero("offload_optimizer.device", _CPU, "NVMe needs kernels that are compiled", _SHARDED),
    _zero("offload_optimizer.pin_memory", TRUTH, "page-locked memory", _SHARDED),
    honoured(f"{_Z}.offload_param", None, "", "weights in the host's memory"),
    _zero("offload_param.device", _CPU, "NVMe needs kernels that are compiled", (3,)),
    _zero("offload_param.pin_memory", TRUTH, "page-locked memory", (3,)),
    *ignored(
        "it is for NVMe, or for DeepSpeed's own optimizer",
        f"{_Z}.offload_optimizer.buffer_count",
        f"{_Z}.offload_optimizer.buffer_size",
        f"{_Z}.offload_optimizer.pipeline_read",
        f"{_Z}.offload_optimizer.pipeline_write",
        f"{_Z}.offload_optimizer.fast_init",
        f"{_Z}.offload_optimizer.ratio",
        f"{_Z}.offload_optimizer.super_offload",
        f"{_Z}.offload_optimizer.cpuadam_cores_perc",
        f"{_Z}.offload_optimizer.nvme_path",
        f"{_Z}.offload_param.buffer_count",
        f"{_Z}.offload_param.buffer_size",
        f"{_Z}.offload_param.max_in_cpu",
        f"{_Z}.offload_param.nvme_path",
    ),
    *refused("its optimizer updates weights with gradients of earlier steps", f"{_Z}.zenflow"),
    *refused(
        _ZERO_PLUS,
        f"{_Z}.zero_quantized_weights",
        f"{_Z}.zero_quantized_nontrainable_weights",
        f"{_Z}.zero_quantized_gradients",
        f"{_Z}.zeropp_loco_param",
    ),
    # Seen at stages 1 and 2: get_full_hp_param gives other parameters' state.
    *ignored(
        "an order of partitions; with it DeepSpeed 0.19.8 mixes up the optimizer state of parameters",
        f"{_Z}.round_robin_gradients",
    ),
    # Seen: "output with shape [1] doesn't match the broadcast shape" in backward.
    *ignored(
        "how stage 3 gathers weights; DeepSpeed 0.19.8 then fails in this network's backward pass",
        f"{_Z}.stage3_module_granularity_threshold",
    ),
    *ignored(
        _PLACE,
        f"{_Z}.zero_hpz_partition_size",
        f"{_Z}.mics_shard_size",
        f"{_Z}.mics_hierarchical_params_gather",
        f"{_Z}.legacy_stage1",
        f"{_Z}.leaf_module",
        f"{_Z}.override_module_apply",
        f"{_Z}.save_muon_momentum_buffer_in_memory",
    ),
    *ignored("clipping needs the norm, so it is computed", f"{_Z}.compute_grad_norm"),
    *ignored("DeepSpeed's log is switched off", f"{_Z}.log_trace_cache_warnings"),
    *ignored(
        _CHECKPOINTS,
        f"{_Z}.pipeline_loading_checkpoint",
        f"{_Z}.elastic_checkpoint",
        f"{_Z}.load_from_fp32_weights",
        f"{_Z}.stage3_gather_16bit_weights_on_model_save",
    ),
)

REDUCTION_KEYS: tuple[Key, ...] = (
    passed_on("communication_data_type", word("fp32", "bf16", "fp16"), "in what gradients travel"),
    passed_on("prescale_gradients", TRUTH, "gradients are divided by the ranks before they are added up"),
    passed_on(
        "gradient_predivide_factor",
        number(0, above=True),
        "gradients are divided by it before, and by the rest after they are added up",
    ),
    *refused(
        "a sum would make the step depend on the number of ranks",
        "gradient_allreduce_op",
        check=only("mean", "a sum would make the step depend on the number of ranks"),
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
        for key in ZERO_KEYS
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
