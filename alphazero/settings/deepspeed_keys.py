"""All keys of a ds_config.json in one table: it drives reading, messages and docs/deepspeed.md.

What a key of a ds_config.json may hold.

A key of a ds_config.json, and what becomes of it here.

The keys of the blocks `optimizer` and `scheduler`.

The keys of figures and logs, and all those that ask for what this program does otherwise or not at all.

The keys of the blocks `fp16`, `bf16`, `torch_autocast` and `data_types`, and of clipping.

The keys of `zero_optimization`, and those of the reduction of gradients.

Read from DeepSpeed 0.19.8 (runtime/zero/config.py); what is passed on was tried at the stages named, over two
ranks, with this trainer's way of stepping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from alphazero.base.section import MOST_RATE, MOST_STEPS
from alphazero.settings.sections import (
    MOST_POSITIONS,
    ONE_CYCLE,
    WARMUP_COSINE_LR,
    WARMUP_DECAY_LR,
    WARMUP_LR,
)

# Beyond it Python's whole numbers are none of C's and none of its floats; DeepSpeed's own "no limit".
LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Check:
    """`accepts` a value; `wanted` says to people what it accepts."""

    wanted: str
    accepts: Callable[[Any], bool]


def whole(minimum: int, maximum: int | None = None) -> Check:
    """A whole number; 5e8 is one, as DeepSpeed's documentation writes them."""

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            return False
        return minimum <= value <= (LARGEST if maximum is None else maximum)

    bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    return Check(f"expected a whole number {bounds}", accepts)


def number(minimum: float, maximum: float | None = None, *, above: bool = False) -> Check:
    """A number of at least `minimum`, or above it."""

    def accepts(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        most = LARGEST if maximum is None else maximum
        return value <= most and (value > minimum if above else value >= minimum)

    bounds = f"{'above' if above else 'of at least'} {minimum:g}"
    if maximum is not None:
        bounds = f"{'above' if above else 'from'} {minimum:g} {'up ' if above else ''}to {maximum:g}"
    return Check(f"expected a number {bounds}", accepts)


def only(value: bool | int | str, reason: str) -> Check:
    """One value, which is what happens here anyway."""
    shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

    def accepts(got: object) -> bool:
        return got == value and isinstance(got, bool) == isinstance(value, bool)

    return Check(f"expected {shown} or absent: {reason}", accepts)


def word(*words: str) -> Check:
    """One of some texts."""
    return Check(
        f"expected one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words
    )


def pair(one: Check) -> Check:
    """A list of two values that `one` accepts."""

    def accepts(value: object) -> bool:
        return isinstance(value, list) and len(value) == 2 and all(map(one.accepts, value))

    return Check(f"expected a list of two of these: {one.wanted.removeprefix('expected ')}", accepts)


TRUTH = Check("expected true or false", lambda value: isinstance(value, bool))
TEXT = Check("expected a text", lambda value: isinstance(value, str))


def is_off(value: object) -> bool:
    """True where a value asks for nothing: false, {}, {"device": "none"}, and blocks that are not enabled.

    A block of blocks (compression_training) is off where none of those within is on.
    """
    if not isinstance(value, dict):
        return value is False or value is None
    if not value or value.get("enabled") is False or value.get("device") == "none":
        return True
    switches = list(_switches(value))
    return bool(switches) and not any(switches)


def _switches(block: dict[str, Any]) -> Iterator[bool]:
    """Every "enabled" in a block and the blocks within, whether it is on."""
    blocks = [block]
    while blocks:  # no recursion: a file may be nested as deeply as Python's reader allows
        current = blocks.pop()
        if "enabled" in current:
            yield current["enabled"] is not False
        blocks += [value for value in current.values() if isinstance(value, dict)]


ALL_STAGES = (0, 1, 2, 3)


class Meaning(Enum):
    """What becomes of a key."""

    HONOURED = "honoured"  # it sets settings of ours
    PASSED_ON = "passed on"  # DeepSpeed gets it
    IGNORED = "ignored"  # nothing, and a line says so: the results are the same
    REFUSED = "refused"  # an error: without it the results would be others, and nobody would know


def _first(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any value of JSON
    return (value,)


@dataclass(frozen=True)
class Key:
    """One key.

    path: its names from the top, with dots. why: one sentence for people, of what it does here or why it is
    ignored or refused. check: what it may hold; of a refused or ignored key, what happens here anyway.
    sets: settings as "section.field", and values: from what it holds to theirs. variants: of its block
    (optimizer.type, scheduler.type), for which it means something; all where there are none. default: what
    DeepSpeed takes where the block is there and the key is not (None: the setting stays as it is).
    stages: ZeRO stages at which it means something.
    """

    path: str
    meaning: Meaning
    why: str
    check: Check | None = None
    sets: tuple[str, ...] = ()
    values: Callable[[Any], tuple[Any, ...]] = _first
    variants: tuple[str, ...] = ()
    default: object = None
    is_needed: bool = False
    stages: tuple[int, ...] = ALL_STAGES

    @property
    def name(self) -> str:
        """Its last name."""
        return self.path.rpartition(".")[2]

    @property
    def block(self) -> str:
        """The path of the object it stands in, "" at the top."""
        return self.path.rpartition(".")[0]


def honoured(path: str, check: Check | None, sets: str, why: str, **more: Any) -> Key:  # noqa: ANN401 - fields
    """A key that sets settings; `sets` names them, with spaces between them."""
    return Key(path, Meaning.HONOURED, why, check, tuple(sets.split()), **more)


def passed_on(path: str, check: Check, why: str, stages: tuple[int, ...] = ALL_STAGES) -> Key:
    """A key that DeepSpeed gets as it is."""
    return Key(path, Meaning.PASSED_ON, why, check, stages=stages)


def ignored(why: str, *paths: str, check: Check | None = None) -> tuple[Key, ...]:
    """Keys that change nothing, for one reason; no word of them where they are off, or as `check` says."""
    return tuple(Key(path, Meaning.IGNORED, why, check) for path in paths)


def refused(why: str, *paths: str, check: Check | None = None) -> tuple[Key, ...]:
    """Keys that would change the results, for one reason; accepted where they are off, or as `check` says."""
    return tuple(Key(path, Meaning.REFUSED, why, check) for path in paths)


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
        "correction for moments that start at zero",
        variants=ADAMS,
        default=True,
    ),
    *refused("DeepSpeed's own Adam refuses it too", "optimizer.params.amsgrad"),
    *refused("momentum is not dampened here", "optimizer.params.dampening", check=only(0, "no dampening")),
    *refused("it would maximize the loss", "optimizer.params.maximize"),
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


_RUN = "everything of a run is in its own directory"
_LOG = "DeepSpeed's log is switched off"
_OWN_CHECKPOINTS = "checkpoints are this program's own; --checkpoint-interval says when"
_ONE_DEVICE = "the network fits one device and ranks share out the batch alone"
_NO_TEXT = "there are no tokens, embeddings or experts in this network"
_GONE = "it is not part of DeepSpeed 0.19.8"
_TORCH = "the optimizers are torch's own"
_ORDER = "the order of the data is a function of --seed and the step"

MONITOR_KEYS: tuple[Key, ...] = (
    honoured(
        "steps_per_print",
        whole(1, MOST_STEPS),
        "training.log_interval",
        "steps between lines",
        values=lambda value: (int(value),),
    ),
    honoured("tensorboard", None, "", "TensorBoard events in the run's directory"),
    honoured("tensorboard.enabled", TRUTH, "run.tensorboard", "whether they are written"),
    *ignored(_RUN, "tensorboard.output_path", "tensorboard.job_name"),
    honoured("wandb", None, "", "Weights & Biases"),
    honoured("wandb.enabled", TRUTH, "run.wandb", "whether figures go there"),
    honoured("wandb.project", TEXT, "run.wandb_project", "their project"),
    honoured("wandb.team", TEXT, "run.wandb_team", "their team"),
    honoured("wandb.group", TEXT, "run.wandb_group", "their group"),
    *ignored("metrics.jsonl of the run has every figure", "csv_monitor"),
    *ignored("--tensorboard and --wandb are the monitors here", "comet"),
    passed_on(
        "wall_clock_breakdown",
        TRUTH,
        "DeepSpeed's times of forward, backward and update, printed at every step",
    ),
    passed_on("memory_breakdown", TRUTH, "DeepSpeed's memory figures"),
    honoured("flops_profiler", None, "", "DeepSpeed's profile of one step on rank 0"),
    passed_on("flops_profiler.enabled", TRUTH, "whether it is made"),
    passed_on("flops_profiler.profile_step", whole(1, MOST_STEPS), "of which step"),
    passed_on("flops_profiler.module_depth", whole(-1), "to which depth of modules"),
    passed_on("flops_profiler.top_modules", whole(1), "of how many modules"),
    passed_on("flops_profiler.detailed", TRUTH, "whether it lists every module"),
    passed_on("flops_profiler.output_file", Check("expected a path", TEXT.accepts), "the file it goes to"),
    passed_on(
        "flops_profiler.recompute_fwd_factor", Check("expected 0 or 1", whole(0, 1).accepts), "its reckoning"
    ),
)

IGNORED_KEYS: tuple[Key, ...] = (
    *ignored(
        "no layer is recomputed: BatchNorm would count it twice; a smaller --micro-batch-size saves memory",
        "activation_checkpointing",
    ),
    *ignored("--micro-batch-size auto finds what fits", "autotuning"),
    *ignored(
        "it is no key of DeepSpeed's; the environment variable CUDA_VISIBLE_DEVICES decides",
        "cuda_visible_devices",
    ),
    *ignored("--compile compiles", "compile"),
    *ignored(_LOG, "comms_logger", "dump_state", "log_level", "timers"),
    *ignored(_OWN_CHECKPOINTS, "checkpoint", "datastates", "nebula"),
    *ignored("nothing is offloaded to NVMe", "aio"),
    *ignored(_TORCH, "zero_allow_untested_optimizer", check=only(True, _TORCH)),
    *ignored(_TORCH, "zero_force_ds_cpu_optimizer", check=only(False, _TORCH)),
    *ignored("the trainer accumulates", "managed_gradient_accumulation"),
    *ignored("the data loader is this program's own", "dataloader_drop_last"),
    *ignored("DeepSpeed 0.19.8 reads it and does nothing", "disable_allgather"),
    *ignored("the trainer's own objects need collecting", "disable_python_gc"),
    *ignored(
        _NO_TEXT,
        "hybrid_engine",
        "expert_parallel",
        "use_data_before_expert_parallelism",
        "seq_parallel_communication_data_type",
        "vocabulary_size",
        "sparse_gradients",
        "sparse_attention",
    ),
    *ignored("there are no stages in this network", "pipeline"),
    *ignored(_GONE, "eigenvalue", "graph_harvesting"),
)

REFUSED_KEYS: tuple[Key, ...] = (
    *refused(_ONE_DEVICE, "tensor_parallel"),
    *refused(_ONE_DEVICE, "sequence_parallel_size", check=only(1, _ONE_DEVICE)),
    *refused(
        f"it trains another network; {_GONE}",
        "compression_training",
        "quantize_training",
        "progressive_layer_drop",
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
    passed_on(
        "communication_data_type", word("fp32", "bf16", "fp16"), "the type in which gradients are sent"
    ),
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


# In the order in which a later key beats an earlier one that sets the same.
KEYS: tuple[Key, ...] = (
    *BATCH_KEYS,
    *OPTIMIZER_KEYS,
    *SCHEDULER_KEYS,
    *PRECISION_KEYS,
    *ZERO_KEYS,
    *REDUCTION_KEYS,
    *MONITOR_KEYS,
    *IGNORED_KEYS,
    *REFUSED_KEYS,
)


def _by_path(keys: Iterable[Key]) -> Mapping[str, tuple[Key, ...]]:
    found: dict[str, tuple[Key, ...]] = {}
    for key in keys:
        found[key.path] = (*found.get(key.path, ()), key)
    return found


# A path has several keys where it means unlike things in variants of its block.
BY_PATH = _by_path(KEYS)
# Objects that are looked into.
BLOCKS = frozenset(key.block for key in KEYS) - {""}


def key_at(path: str, variant: str) -> Key | None:
    """The key at a path in a block of this variant; None where there is none."""
    return next((key for key in BY_PATH.get(path, ()) if not key.variants or variant in key.variants), None)


def names_in(block: str, variant: str) -> list[str]:
    """The names that an object of this variant may have and that do something."""
    return [key.name for key in KEYS if key.block == block and (not key.variants or variant in key.variants)]


__all__ = ["ALIASES", "BLOCKS", "BY_PATH", "KEYS", "OLD_NAMES", "key_at", "names_in"]
