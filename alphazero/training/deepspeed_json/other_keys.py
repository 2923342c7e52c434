"""The keys of figures and logs, and all those that ask for what this program does otherwise or not at all."""

from __future__ import annotations

from alphazero.settings import MOST_STEPS
from alphazero.training.deepspeed_json.check import TEXT, TRUTH, Check, only, whole
from alphazero.training.deepspeed_json.key import Key, honoured, ignored, passed_on, refused

_RUN = "everything of a run is in its own directory"
_LOG = "DeepSpeed's log is switched off"
_OWN_CHECKPOINTS = "checkpoints are this program's own; --checkpoint-interval says when"
_ONE_DEVICE = "the network fits one device and ranks share out the batch alone"
_NO_TEXT = "there are no tokens, embeddings or experts in this network"
_GONE = "it is no part of DeepSpeed 0.19.8 any more"
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
        "it would choose the batch; a run goes on with any number of ranks anyway (--max-restarts)",
        "elasticity",
    ),
)
