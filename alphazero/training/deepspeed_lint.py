"""What may stand in ds_config.json, and what DeepSpeed 0.19.8 or our way of using it cannot take.

DeepSpeed accepts unknown top-level keys in silence; here every key is passed on, translated, or refused
by name with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from alphazero.errors import ConfigError

Table = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What a value must be. minimum: for numbers, inclusive."""

    types: tuple[type, ...]
    wanted: str
    minimum: float | None = None
    choices: tuple[object, ...] = ()

    def accepts(self, value: object) -> bool:
        """True if `value` is one; JSON's true is no number."""
        if not isinstance(value, self.types) or (isinstance(value, bool) and bool not in self.types):
            return False
        if self.choices and value not in self.choices:
            return False
        return self.minimum is None or (isinstance(value, (int, float)) and value >= self.minimum)


SWITCH = Kind((bool,), "true or false")
SIZE = Kind((int,), "a whole number of at least 1", minimum=1)
COUNT = Kind((int,), "a whole number of at least 0", minimum=0)
NUMBER = Kind((int, float), "a number of at least 0", minimum=0)
TABLE = Kind((dict,), "an object")
FACTOR = Kind((int, float), "a number of at least 1", minimum=1)
TRAFFIC = Kind((str,), "'fp32', 'fp16' or 'bf16'", choices=("fp32", "fp16", "bf16"))

# Passed to DeepSpeed as they are.
PASSED_ON = {
    "communication_data_type": TRAFFIC,
    "prescale_gradients": SWITCH,
    "gradient_predivide_factor": FACTOR,
    "comms_logger": TABLE,
    "memory_breakdown": SWITCH,
    "steps_per_print": SIZE,
    "dump_state": SWITCH,
}
# Understood and translated by us.
TRANSLATED = {
    "zero_optimization": TABLE,
    "gradient_clipping": NUMBER,
    "bf16": TABLE,
    "fp16": TABLE,
    "torch_autocast": TABLE,
}
# Known to DeepSpeed, refused here: key -> what is wanted instead.
NO_TIMERS = "DeepSpeed's timers fail on a module that returns more than a loss; --tensorboard has the speed"
CHECKPOINTS_ARE_OURS = "checkpoints are not DeepSpeed's (docs/architecture.md)"
REFUSED = {
    "train_batch_size": "--batch-size owns it",
    "train_micro_batch_size_per_gpu": "--micro-batch-size owns it",
    "gradient_accumulation_steps": "it follows from --batch-size and --micro-batch-size",
    "managed_gradient_accumulation": "passes are counted and weighed by the trainer",
    "optimizer": "--optimizer owns it",
    "scheduler": "--lr-schedule owns it",
    "zero_allow_untested_optimizer": "the optimizer is torch's own, this is set",
    "zero_force_ds_cpu_optimizer": "the optimizer is torch's own, this is set",
    "tensorboard": "--tensorboard owns it",
    "wandb": "--wandb owns it",
    "csv_monitor": "metrics.jsonl in the run directory has all figures",
    "comet": "--wandb, --tensorboard and metrics.jsonl are there",
    "amp": "--precision owns it; NVIDIA apex is not used",
    "wall_clock_breakdown": NO_TIMERS,
    "flops_profiler": NO_TIMERS,
    "data_types": "--precision owns it; gradients add up in fp32",
    "activation_checkpointing": "a residual tower's activations fit; smaller --micro-batch-size saves memory",
    "sparse_gradients": "no layer has any",
    "sparse_attention": "no layer has any",
    "elasticity": "DeepSpeed 0.19.8 has it no more; any number of ranks may resume",
    "autotuning": "--micro-batch-size auto finds the size",
    "checkpoint": CHECKPOINTS_ARE_OURS,
    "nebula": CHECKPOINTS_ARE_OURS,
    "datastates_ckpt": CHECKPOINTS_ARE_OURS,
    "aio": "nothing is offloaded to disk",
    "zenflow": "it needs offloading",
    "compile": "--compile owns it",
    "compression_training": "it changes the network behind the trainer's back",
    "quantize_training": "it changes the network behind the trainer's back",
    "progressive_layer_drop": "it changes the network behind the trainer's back",
    "eigenvalue": "it serves quantisation, which is not used",
    "curriculum_learning": "the order of the data is a function of seed and step",
    "data_efficiency": "the order of the data is a function of seed and step",
    "dataloader_drop_last": "the loader is not DeepSpeed's",
    "pipeline": "the network is not cut into stages",
    "tensor_parallel": "the network is not cut across devices",
    "sequence_parallel_size": "the network is not cut across devices",
    "hybrid_engine": "it serves text generation",
    "disable_allgather": "weights would stay unlike on the ranks",
}

# zero_optimization: key -> kind, by the lowest stage it means something at.
ZERO_ANY_STAGE = {
    "contiguous_gradients": SWITCH,
    "reduce_scatter": SWITCH,
    "reduce_bucket_size": SIZE,
    "use_multi_rank_bucket_allreduce": SWITCH,
    "allgather_partitions": SWITCH,
    "allgather_bucket_size": SIZE,
    "round_robin_gradients": SWITCH,
    "ignore_unused_parameters": SWITCH,
    "enable_sanity_checks": SWITCH,
}
ZERO_STAGE_2 = {"overlap_comm": SWITCH}
ZERO_STAGE_3 = {
    "sub_group_size": SIZE,
    "stage3_prefetch_bucket_size": COUNT,
    "stage3_param_persistence_threshold": COUNT,
    "stage3_model_persistence_threshold": COUNT,
    "stage3_max_live_parameters": COUNT,
    "stage3_max_reuse_distance": COUNT,
    "stage3_module_granularity_threshold": COUNT,
    "stage3_use_all_reduce_for_fetch_params": SWITCH,
    "stage3_allgather_sequential": SWITCH,
    "memory_efficient_linear": SWITCH,
    "log_trace_cache_warnings": SWITCH,
}
NO_OFFLOAD = "offloading needs DeepSpeed's own CPU optimizer; the optimizer here is torch's"
OTHER_ARITHMETIC = "it rounds weights or gradients on their way between ranks"
ZERO_REFUSED = {
    "offload_param": NO_OFFLOAD,
    "offload_optimizer": NO_OFFLOAD,
    "cpu_offload": f"deprecated for offload_optimizer; {NO_OFFLOAD}",
    "cpu_offload_param": f"deprecated for offload_param; {NO_OFFLOAD}",
    "cpu_offload_use_pin_memory": f"deprecated for offload_optimizer; {NO_OFFLOAD}",
    "zenflow": NO_OFFLOAD,
    "zero_hpz_partition_size": "hierarchical partitions are not what the checkpoints gather",
    "zero_quantized_weights": OTHER_ARITHMETIC,
    "zero_quantized_nontrainable_weights": OTHER_ARITHMETIC,
    "zero_quantized_gradients": OTHER_ARITHMETIC,
    "compute_grad_norm": "--clip-gradients needs the norm",
    "elastic_checkpoint": CHECKPOINTS_ARE_OURS,
    "load_from_fp32_weights": CHECKPOINTS_ARE_OURS,
    "pipeline_loading_checkpoint": CHECKPOINTS_ARE_OURS,
    "stage3_gather_16bit_weights_on_model_save": CHECKPOINTS_ARE_OURS,
    "stage3_gather_fp16_weights_on_model_save": f"deprecated; {CHECKPOINTS_ARE_OURS}",
    "legacy_stage1": "DeepSpeed 0.19.8 has it no more",
    "leaf_module": "no layer is one",
    "override_module_apply": "nothing here applies functions to a partitioned network",
    "parameter_alignment": "partitions are what the checkpoints expect without it",
    "save_muon_momentum_buffer_in_memory": "--optimizer has adamw and sgd",
}
PRECISION_KEYS = {
    "bf16": {"enabled": SWITCH},
    "torch_autocast": {
        "enabled": SWITCH,
        "dtype": Kind(
            (str,),
            "'bfloat16' or 'float16'",
            choices=("bfloat16", "torch.bfloat16", "float16", "torch.float16"),
        ),
    },
    "fp16": {
        "enabled": SWITCH,
        "loss_scale": Kind((int, float), "0, a dynamic scale", choices=(0,)),
        "initial_scale_power": Kind((int,), "0 to 24", choices=tuple(range(25))),
        "loss_scale_window": SIZE,
        "min_loss_scale": Kind((int, float), "1", choices=(1,)),
        "hysteresis": Kind((int,), "1: the scale halves at every overflow", choices=(1,)),
    },
}


def read_checked(path: Path) -> Table:
    """ds_config.json with every key known and every value of its kind; "auto" values are left out.

    Raises ConfigError naming file, key, value and what was wanted.
    """
    table = _without_auto(read_object(path))
    _check_keys(path, "", table, {**PASSED_ON, **TRANSLATED}, REFUSED)
    zero = table.get("zero_optimization", {})
    kinds = {"stage": Kind((int,), "0, 1, 2 or 3", choices=(0, 1, 2, 3))}
    kinds |= {**ZERO_ANY_STAGE, **ZERO_STAGE_2, **ZERO_STAGE_3}
    _check_keys(path, "zero_optimization.", zero, kinds, ZERO_REFUSED)
    for block, block_kinds in PRECISION_KEYS.items():
        _check_keys(path, f"{block}.", table.get(block, {}), block_kinds, {})
    enabled = [block for block in PRECISION_KEYS if table.get(block, {}).get("enabled")]
    if len(enabled) > 1:
        raise ConfigError(f"{path}: {' and '.join(enabled)} are both enabled: wanted one of them")
    options = sorted(table.get("fp16", {}).keys() - {"enabled"})
    if options and not table["fp16"].get("enabled"):
        raise ConfigError(f"{path}: fp16.{options[0]} without fp16.enabled: wanted both or neither")
    return table


def check_stage(source: str, table: Mapping[str, object], options: Mapping[str, object], stage: int) -> None:
    """ConfigError where options of `table` and its zero_optimization cannot be at the stage that is to be."""
    if stage >= 2 and table.get("prescale_gradients") and options.get("reduce_scatter", True):
        raise ConfigError(
            f"{source}: prescale_gradients = True contradicts ZeRO stage {stage}: wanted it absent, or "
            f"zero_optimization.reduce_scatter = false"
        )
    for lowest, keys in ((3, ZERO_STAGE_3), (2, ZERO_STAGE_2)):
        for key in keys:
            if stage < lowest and options.get(key):
                wanted = "3" if lowest == 3 else "2 or 3"
                raise ConfigError(
                    f"{source}: zero_optimization.{key} = {options[key]!r} contradicts ZeRO stage {stage}: "
                    f"wanted it absent, or --zero-stage {wanted}"
                )


def _check_keys(
    path: Path, prefix: str, table: Table, kinds: Mapping[str, Kind], refused: Mapping[str, str]
) -> None:
    for key, value in table.items():
        place = f"{path}: {prefix}{key} = {value!r}"
        if key in refused:
            # Switched off is as good as absent.
            if value not in (False, None, {"enabled": False}):
                raise ConfigError(f"{place}: wanted it absent: {refused[key]}")
        elif key not in kinds:
            raise ConfigError(f"{place}: no such key; wanted one of {', '.join(kinds)}")
        elif not kinds[key].accepts(value):
            raise ConfigError(f"{place}: wanted {kinds[key].wanted}")


def _without_auto(table: Table) -> Table:
    """Less what is "auto", which is how other trainers say "you decide"."""
    return {
        key: _without_auto(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value != "auto"
    }


def read_object(path: Path) -> Table:
    """A JSON object in which no key stands twice; ConfigError for anything else."""
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(
            text, object_pairs_hook=lambda pairs: _unique(path, text, pairs), parse_constant=_no_number
        )
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: {error.msg}; wanted JSON") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; wanted JSON") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; wanted JSON") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {table!r}: wanted an object")
    return table


def _unique(path: Path, text: str, pairs: list[tuple[str, Any]]) -> Table:
    table: Table = {}
    for key, value in pairs:
        if key in table:
            lines = [number for number, line in enumerate(text.splitlines(), 1) if f'"{key}"' in line]
            raise ConfigError(f"{path}:{lines[-1]}: {key!r} stands twice; wanted it once")
        table[key] = value
    return table


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
