"""The sections of a run's settings but for self-play: one dataclass per section, one field per setting.

Defaults stand here. A preset in configs/*.toml holds differences only, and a flag beats both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alphazero.base.section import MOST_SEED, Scope, rate, setting, share, step_count
from alphazero.games.outside.solvers import EXACT, SOLVER_HELP, read_solver
from alphazero.games.registry import game_names, read_game

# Schedules of DeepSpeed's (deepspeed/runtime/lr_schedules.py), step by step as its classes have them.
WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR = "warmup_lr", "warmup_decay_lr", "warmup_cosine_lr"
ONE_CYCLE = "one_cycle"
DEEPSPEED_SCHEDULES = (WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR, ONE_CYCLE)
# Without a flag: ds_config.json alone sets it.
OF_JSON: Mapping[str, Any] = {"has_flag": False}


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and the learning rate over the run."""

    optimizer: str = setting(
        "adamw",
        "optimizer; adam adds weight decay to the gradient (L2), adamw takes it off the weights; muon makes "
        "the steps of the body's matrices orthogonal and leaves the rest to adamw",
        choices=("adamw", "adam", "sgd", "muon"),
        scope=Scope.RUN,
        is_common=True,
    )
    learning_rate: float = rate(0.001, "peak learning rate", aliases=("lr",), is_common=True)
    lr_scaling: str = setting(
        "none",
        "how the learning rate grows with the batch size, relative to 1024 positions",
        choices=("none", "sqrt", "linear"),
    )
    lr_schedule: str = setting(
        "cosine",
        "course of the learning rate: constant, step and cosine after a linear warm-up; the others are "
        "DeepSpeed's schedulers of these names",
        choices=("constant", "step", "cosine", *DEEPSPEED_SCHEDULES),
        is_common=True,
    )
    lr_milestones: tuple[int, ...] = step_count(
        (), "step schedule: steps at which the rate is multiplied by 0.1"
    )
    lr_final_share: float = share(0.01, "cosine, warmup_cosine_lr: last rate, of the peak rate", **OF_JSON)
    lr_total_steps: int = step_count(
        0, "warmup_decay_lr, warmup_cosine_lr: steps until the last rate; 0: those of the run", **OF_JSON
    )
    warmup_steps: int = step_count(100, "steps of warm-up", is_common=True)
    warmup_type: str = setting(
        "log", "growth of the rate in DeepSpeed's warm-ups", choices=("log", "linear"), **OF_JSON
    )
    warmup_min_lr: float = rate(0.0, "warmup_lr, warmup_decay_lr: first rate", **OF_JSON)
    warmup_min_share: float = share(0.0, "warmup_cosine_lr: first rate, of the peak rate", **OF_JSON)
    cycle_min_lr: float = rate(0.0, "one_cycle: rate at both ends of the cycle", **OF_JSON)
    cycle_first_steps: int = step_count(2000, "one_cycle: steps up to the peak rate", 1, **OF_JSON)
    cycle_second_steps: int = step_count(2000, "one_cycle: steps back down to cycle_min_lr", **OF_JSON)
    cycle_decay_rate: float = rate(
        0.0, "one_cycle: then cycle_min_lr / (1 + this for each cycle_decay_steps)", **OF_JSON
    )
    cycle_decay_steps: int = step_count(0, "one_cycle: steps of this decay; 0 for none", **OF_JSON)
    weight_decay: float = rate(1e-4, "weight decay; biases and BatchNorm have none", is_common=True)
    momentum: float = share(0.9, "momentum of sgd", **OF_JSON)
    nesterov: bool = setting(True, "sgd: Nesterov's momentum", **OF_JSON)
    muon_learning_rate: float = rate(
        0.02, "muon: peak learning rate of the body's matrices, with the schedule of learning_rate"
    )
    muon_momentum: float = share(0.95, "muon: momentum", **OF_JSON)
    adam_beta1: float = share(0.9, "adam, adamw, muon: decay of the first moment", **OF_JSON)
    adam_beta2: float = share(0.999, "adam, adamw, muon: decay of the second moment", **OF_JSON)
    adam_eps: float = share(1e-8, "adam, adamw: added to the root of the second moment", **OF_JSON)
    adam_bias_correction: bool = setting(
        True, "adam, adamw: make up for moments that begin at zero", **OF_JSON
    )
    clip_gradients: float = setting(
        10.0, "largest norm of the gradient; a longer one is shortened, 0: none is", minimum=0, **OF_JSON
    )


# Bounds of settings: far above every sensible value, so that a slip of the keyboard is one line at once.
MOST_POSITIONS = 2**24  # of a batch
MOST_CHANNELS = 4096  # of a layer
ACTIVATIONS = ("relu", "mish", "swish", "relu_2")


def size(default: int, help_text: str, minimum: int = 1, **more: Any) -> Any:  # noqa: ANN401 - as setting()
    """A size of the network."""
    return setting(default, help_text, minimum=minimum, maximum=MOST_CHANNELS, **{"scope": Scope.RUN, **more})


# A new network has lc0's sizes and kinds, so that it can be exported; given weights may have others.
AS_GIVEN: Mapping[str, Any] = {"has_flag": False, "scope": Scope.RUN}


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of the network; two networks of equal NetworkConfig have exchangeable weights."""

    game: str = setting(
        "chess",
        "game the network plays; also openspiel:NAME(PARAMETERS), or FILE.py:CLASS with rules in Python",
        choices=game_names(),
        reads=read_game,
        scope=Scope.RUN,
        is_common=True,
    )
    body: str = setting(
        "residual",
        "a tower of residual blocks, or encoders with attention between the squares",
        choices=("residual", "attention"),
        scope=Scope.RUN,
        is_common=True,
    )
    blocks: int = setting(
        20, "residual blocks or encoders", minimum=1, maximum=256, scope=Scope.RUN, is_common=True
    )
    filters: int = size(256, "channels of the body", is_common=True)
    heads: int = size(8, "attention: heads of an encoder")
    ffn_width: int = size(512, "attention: units of an encoder's feed-forward layer")
    smolgen_channels: int = size(
        32,
        "attention: channels per square from which smolgen makes its part of the scores, with layers of 8 "
        "times as many units; 0 is none",
        0,
    )
    se_ratio: int = size(
        0, "squeeze-excitation: the tower's channels divided by the units of the squeeze; 0 turns it off", 0
    )
    policy_head: str = setting(
        "convolution",
        "policy head: planes of moves by convolutions, or attention between the squares that a move goes "
        "from and to, which learns faster (chess)",
        choices=("convolution", "attention"),
        scope=Scope.RUN,
    )
    value_channels: int = size(32, "channels of the value head's first layer", **AS_GIVEN)
    value_hidden: int = size(128, "units of the value head's hidden layer", **AS_GIVEN)
    moves_left: bool = setting(
        False, "add a head that predicts how many plies the game still lasts", scope=Scope.RUN
    )
    moves_left_channels: int = size(8, "channels of the moves-left head's first layer", **AS_GIVEN)
    moves_left_hidden: int = size(128, "units of the moves-left head's hidden layer", **AS_GIVEN)
    # Of attention bodies; a width of 0 is that of the layer before. load.py sets the two of smolgen.
    smolgen_hidden: int = size(256, "units of smolgen's hidden layer", **AS_GIVEN)
    smolgen_size: int = size(256, "numbers per head from which smolgen makes its scores", **AS_GIVEN)
    embedding: str = setting(
        "dense",
        "attention: what shows a square the board: a layer of all pieces (dense, lc0's PE_DENSE) or a fixed "
        "map of the squares in its reach (map, PE_MAP)",
        choices=("dense", "map"),
        scope=Scope.RUN,
    )
    embedding_width: int = size(64, "numbers per square of the dense embedding", **AS_GIVEN)
    attention_width: int = size(0, "channels of queries, keys and values", 0, **AS_GIVEN)
    embedding_ffn_width: int = size(0, "units of the dense embedding's feed-forward layer", 0, **AS_GIVEN)
    policy_width: int = size(0, "channels of the policy head's embedding", 0, **AS_GIVEN)
    policy_key_width: int = size(0, "channels of the policy head's queries and keys", 0, **AS_GIVEN)
    gates: bool = setting(True, "a factor and a term for each channel of each square", **AS_GIVEN)
    activation: str = setting(
        "mish", "activation of the body and its heads", choices=ACTIVATIONS[:2], **AS_GIVEN
    )
    ffn_activation: str = setting(
        "mish", "activation of feed-forward layers", choices=ACTIVATIONS, **AS_GIVEN
    )
    smolgen_activation: str = setting("swish", "activation of smolgen", choices=ACTIVATIONS, **AS_GIVEN)
    other_heads: str = setting("", "layers of heads that do not play and their sizes", **AS_GIVEN)


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms of the loss in training: measurements report each term, without a weight."""

    value_weight: float = setting(1.0, "weight of the value loss", minimum=0, of_training=True)


# --micro-batch-size auto
AUTO = -1
# Largest micro-batch chosen unasked. CPU: the activations of a small tower stay near the caches.
# CUDA: 20x256 in bf16 keeps about 4 MB of activations per position, 8,192 of them half of an 80 GB device; a
# smaller one is found by trying.
LARGEST_MICRO_BATCH = {"cpu": 256, "cuda": 8192}


@dataclass(frozen=True)
class TrainingConfig:
    """Length, batches, precision and rhythm of training."""

    batch_size: int = setting(
        1024,
        "positions per step, over all ranks",
        minimum=1,
        maximum=MOST_POSITIONS,
        aliases=("train-batch-size",),
        scope=Scope.RUN,
        is_common=True,
    )
    micro_batch_size: int = setting(
        0,
        "positions per forward and backward pass; 0 chooses, auto takes the most that fit into memory",
        minimum=0,
        maximum=MOST_POSITIONS,
        words={"auto": AUTO},
        aliases=("train-micro-batch-size-per-gpu",),
        is_common=True,
    )
    gradient_accumulation_steps: int = setting(
        0,
        "passes per rank and step, from which the sizes follow that are not given; 0 follows from these",
        minimum=0,
        maximum=MOST_POSITIONS,
        scope=Scope.START,
        **OF_JSON,
    )
    value_q_ratio: float = share(
        0.0,
        "share of the search's value (self-play, lc0's games), or else of the evaluations in PGN comments, "
        "in the value target; the rest is the result",
    )
    host_weights: tuple[str, ...] = setting(
        (),
        "shares of hosts of unequal speed, HOST=WEIGHT ...; a host that is not named has 1",
        pattern=r"[^=\s]+=([0-9]{1,6}(\.[0-9]{0,6})?|\.[0-9]{1,6})",
        expected="HOST=WEIGHT, as gpu-node-1=2",
    )
    steps: int = step_count(0, "steps of the run; 0 counts epochs instead", is_common=True)
    epochs: float = setting(
        1.0, "passes over the data when steps is 0", minimum=0, maximum=1e6, is_common=True
    )
    precision: str = setting(
        "fp32",
        "arithmetic of the network; auto is bf16 where all GPUs of the job have it, else fp16; on CPUs bf16 "
        "with AMX, or with AVX512-BF16 and one thread per rank, else fp32",
        choices=("fp32", "bf16", "fp16", "auto"),
        words={"amp": "auto"},
        is_common=True,
    )
    loss_scale: float = setting(
        65536.0, "fp16: first value of the dynamic loss scale", minimum=1, maximum=2.0**32, **OF_JSON
    )
    loss_scale_window: int = step_count(
        1000, "fp16: steps without overflow after which the loss scale doubles", 1, **OF_JSON
    )
    loss_scale_minimum: float = setting(
        1.0, "fp16: least value of the dynamic loss scale", minimum=1, maximum=2.0**24, **OF_JSON
    )
    loss_scale_hysteresis: int = step_count(1, "fp16: overflows at which the loss scale halves", 1, **OF_JSON)
    loss_scale_consecutive: bool = setting(
        False, "fp16: any step without overflow restarts that count, not only a doubling", **OF_JSON
    )
    fixed_loss_scale: float = setting(
        0.0, "fp16: a loss scale that stays; 0 for the dynamic one", minimum=0, maximum=2.0**24, **OF_JSON
    )
    tf32: bool = setting(True, "compute fp32 products in TF32 where the GPU has it")
    compile: bool = setting(
        False,
        "compile the network with torch.compile; unless given, an attention body on GPUs is where that "
        "is faster",
        is_common=True,
    )
    activation_checkpointing: str = setting(
        "none",
        "attention bodies: what the backward pass computes again instead of keeping it: the attention scores "
        "or whole encoders",
        choices=("none", "scores", "encoders"),
    )
    cuda_graphs: bool = setting(
        True, "run the network's passes in training as CUDA graphs (GPUs; where ranks keep whole gradients)"
    )
    deterministic: bool = setting(False, "use only operations that give the same bits every time")
    zero_stage: int = setting(0, "DeepSpeed ZeRO stage", minimum=0, maximum=3, is_common=True)
    ema_decay: float = share(
        0.0,
        "decay of the exponential moving average (EMA) of the weights, which is then what is validated and "
        "saved for play; 0 keeps no average",
        is_common=True,
    )
    init_weights: str = setting(
        "",
        "weights that a new run begins with, of any form that --weights takes",
        scope=Scope.RUN,
        is_common=True,
    )
    seed: int = setting(
        0,
        "seed of the weights and of the order of the data",
        minimum=0,
        maximum=MOST_SEED,
        scope=Scope.RUN,
        is_common=True,
    )
    checkpoint_interval: str = setting(
        "1000",
        "steps between checkpoints, or minutes as 30m",
        pattern="[1-9][0-9]{0,8}m?",
        expected="steps as 1000, or minutes as 30m",
        scope=Scope.REPORTING,
        is_common=True,
    )
    keep_checkpoints: int = step_count(
        3, "newest checkpoints to keep; the best ones are kept besides", scope=Scope.REPORTING, minimum=1
    )
    max_skipped_steps: int = step_count(
        10,
        "steps in a row without finite gradients before the run goes back to its last checkpoint",
        minimum=1,
    )
    validation_interval: int = step_count(500, "steps between validations; 0 turns them off", is_common=True)
    validation_positions: int = step_count(8192, "positions per validation", minimum=1)
    solver: str = setting("", SOLVER_HELP, choices=(EXACT,), reads=read_solver, is_common=True)
    log_interval: int = step_count(
        10, "steps between log lines and TensorBoard points", scope=Scope.REPORTING, is_common=True, minimum=1
    )


# What a run warns of, by name (docs/health.md).
ALARMS = ("throughput", "idle-gpus", "slow-rank", "disk", "memory", "health")


@dataclass(frozen=True)
class RunConfig:
    """Where a run is kept and what it reports."""

    run_name: str = setting(
        "",
        "name of the run directory; the preset's name if empty",
        scope=Scope.START,
        is_place=True,
        is_common=True,
    )
    runs_dir: str = setting(
        "runs", "directory that holds the runs", scope=Scope.NODE, is_place=True, is_common=True
    )
    git_diff: bool = setting(
        True, "record the uncommitted changes of files that git tracks (started-*.json)", scope=Scope.NODE
    )
    tensorboard: bool = setting(True, "write TensorBoard events", scope=Scope.NODE, is_common=True)
    tensorboard_dir: str = setting(
        "",
        "directory of the runs' TensorBoard events; that of each run if empty",
        scope=Scope.NODE,
        **OF_JSON,
    )
    wandb: bool = setting(
        False, "log to Weights & Biases as well (pip install wandb)", scope=Scope.NODE, is_common=True
    )
    wandb_project: str = setting("alphazero", "project of Weights & Biases", scope=Scope.NODE, **OF_JSON)
    wandb_team: str = setting("", "team; your own account if empty", scope=Scope.NODE, **OF_JSON)
    wandb_group: str = setting("", "group of runs; none if empty", scope=Scope.NODE, **OF_JSON)
    mute: tuple[str, ...] = setting((), "alarms that are not printed (docs/health.md)", choices=ALARMS)
    log_format: str = setting(
        "text",
        "form of the lines on stderr and of the run's log: text, or json for a JSON object a line",
        choices=("text", "json"),
        scope=Scope.NODE,
    )
    quiet: bool = setting(
        False,
        "show only warnings, validations and the end; the run's log has all lines",
        scope=Scope.NODE,
        is_common=True,
    )
    profile: str = setting(
        "",
        "steps to record with torch's profiler, into profile/ of the run: 101-103 of rank 0, 101-103@0,3, "
        "101-103@all",
        pattern="([1-9][0-9]{0,8}-[1-9][0-9]{0,8}(@(all|[0-9]{1,6}(,[0-9]{1,6})*))?)?",
        expected="the first and the last step, as 101-103, and ranks behind @",
        scope=Scope.START,
        metavar="STEPS",
    )
    health_interval: float = setting(
        30.0,
        "seconds between checks of the GPUs and the host during training; 0 turns them off",
        minimum=0,
        maximum=1e6,
        scope=Scope.NODE,
    )
