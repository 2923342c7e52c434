"""The settings of a run: one dataclass per section of its TOML form, one flag per field.

Defaults stand here; a preset in configs/*.toml holds differences only; a flag beats both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from alphazero.filter_settings import SampleFilters
from alphazero.games.registry import game_names, get_game
from alphazero.optimizer_settings import OptimizerConfig as OptimizerConfig  # a section like the others here
from alphazero.presets import find_config, is_preset
from alphazero.self_play_settings import SearchConfig as SearchConfig
from alphazero.self_play_settings import SelfPlayConfig as SelfPlayConfig
from alphazero.settings import (
    MOST_SEED,
    MOST_STEPS,
    json_ready,
    read_toml,
    refuse_section,
    setting,
    table_of,
    values_of,
    values_of_flags,
)

# Bounds of settings: far above every sensible value, so that a slip of the keyboard is one line at once.
MOST_POSITIONS = 2**24  # of a batch
MOST_CHANNELS = 4096  # of a layer


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of the network; two networks of equal NetworkConfig have exchangeable weights."""

    game: str = setting("chess", "game the network plays", choices=game_names())
    blocks: int = setting(20, "residual blocks of the tower", minimum=1, maximum=256)
    filters: int = setting(256, "channels of the tower", minimum=1, maximum=MOST_CHANNELS)
    se_ratio: int = setting(
        0,
        "squeeze-excitation: the tower's channels divided by the units of the squeeze; 0 turns it off",
        minimum=0,
        maximum=MOST_CHANNELS,
    )
    policy_head: str = setting(
        "convolution",
        "policy head: planes of moves by convolutions, or attention between the squares that a move goes "
        "from and to, which learns faster (chess)",
        choices=("convolution", "attention"),
    )
    value_channels: int = setting(
        32, "channels of the value head's 1x1 convolution", minimum=1, maximum=MOST_CHANNELS
    )
    value_hidden: int = setting(
        128, "units of the value head's hidden layer", minimum=1, maximum=MOST_CHANNELS
    )
    moves_left: bool = setting(False, "add a head that predicts how many plies the game still lasts")
    moves_left_channels: int = setting(
        8, "channels of the moves-left head's 1x1 convolution", minimum=1, maximum=MOST_CHANNELS
    )
    moves_left_hidden: int = setting(
        128, "units of the moves-left head's hidden layer", minimum=1, maximum=MOST_CHANNELS
    )


@dataclass(frozen=True)
class DataConfig(SampleFilters):
    """Where positions come from, which of them are used (docs/filters.md) and how they are read."""

    data: tuple[str, ...] = setting((), "game stores, PGN files or directories to train on")
    validation_data: tuple[str, ...] = setting((), "game stores, PGN files or directories to validate on")
    validation_share: float = setting(
        0.05,
        "share of the games, the last ones, held out for validation when there is no validation data",
        minimum=0,
        maximum=0.5,
    )
    history_fill: str = setting(
        "fen_only",
        "what stands for the positions before a game's first: nothing (no), or the first position again "
        "where the game begins from a FEN (fen_only)",
        choices=("no", "fen_only"),
    )
    data_value_q_ratio: float = setting(
        0.0,
        "share of the search's value (lc0's games, self-play), or else of the evaluations in PGN comments, "
        "in the value target of given games; the rest is the result",
        minimum=0,
        maximum=1,
    )
    symmetries: bool = setting(True, "show positions rotated or mirrored where the game allows it")
    mirror: bool = setting(
        False, "chess: show positions in which nobody may castle any more mirrored, left to right, by chance"
    )
    num_workers: int = setting(
        -1,
        "threads that encode positions, per rank; -1 chooses for the hardware",
        minimum=-1,
        maximum=1024,
    )
    cache_dir: str = setting("cache", "directory in which imported raw files are kept")
    verify_data: bool = setting(True, "compare the sha256 of the data with its manifest, once per host")


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms of the loss."""

    policy_weight: float = setting(1.0, "weight of the policy loss", minimum=0)
    value_weight: float = setting(1.0, "weight of the value loss", minimum=0)
    moves_left_weight: float = setting(0.01, "weight of the moves-left loss", minimum=0)
    mask_illegal: bool = setting(True, "give illegal moves no share of the policy")


# --micro-batch-size auto
AUTO = -1


@dataclass(frozen=True)
class TrainingConfig:
    """Length, batches, precision and rhythm of training."""

    batch_size: int = setting(
        1024,
        "positions per step, over all ranks",
        minimum=1,
        maximum=MOST_POSITIONS,
        aliases=("train-batch-size",),
    )
    micro_batch_size: int = setting(
        0,
        "positions per forward and backward pass; 0 chooses, auto takes the most that fit into memory",
        minimum=0,
        maximum=MOST_POSITIONS,
        words={"auto": AUTO},
        aliases=("train-micro-batch-size-per-gpu",),
    )
    gradient_accumulation_steps: int = setting(
        0,
        "passes per rank and step; they give the micro-batch size, or the batch size where that is not "
        "given; 0: as many as the two ask for",
        minimum=0,
        maximum=MOST_POSITIONS,
    )
    host_weights: tuple[str, ...] = setting(
        (),
        "shares of hosts of unequal speed, HOST=WEIGHT ...; a host that is not named has 1 (ZeRO 0 and 1)",
        pattern=r"[^=\s]+=([0-9]{1,6}(\.[0-9]{0,6})?|\.[0-9]{1,6})",
        expected="HOST=WEIGHT, as gpu-node-1=2",
    )
    steps: int = setting(0, "steps of the run; 0 counts epochs instead", minimum=0, maximum=MOST_STEPS)
    epochs: float = setting(1.0, "passes over the data when steps is 0", minimum=0, maximum=1e6)
    precision: str = setting(
        "fp32",
        "arithmetic of the network; auto is bf16 where all GPUs of the job have it, else fp16; on CPUs bf16 "
        "or fp32, whichever is faster when timed at the start",
        choices=("fp32", "bf16", "fp16", "auto"),
    )
    loss_scale: float = setting(
        65536.0, "fp16: first value of the dynamic loss scale", minimum=1, maximum=2.0**32
    )
    loss_scale_window: int = setting(
        1000,
        "fp16: steps without overflow after which the loss scale doubles",
        minimum=1,
        maximum=MOST_STEPS,
    )
    loss_scale_minimum: float = setting(
        1.0, "fp16: the dynamic loss scale does not go below it", minimum=1, maximum=2.0**24
    )
    loss_scale_hysteresis: int = setting(
        1, "fp16: overflows at which the loss scale halves", minimum=1, maximum=MOST_STEPS
    )
    loss_scale_consecutive: bool = setting(
        False,
        "fp16: a step without overflow begins the count of these overflows anew; otherwise only a loss scale "
        "that doubles does",
    )
    fixed_loss_scale: float = setting(
        0.0, "fp16: a loss scale that never moves; 0 for the dynamic one", minimum=0, maximum=2.0**24
    )
    tf32: bool = setting(True, "compute fp32 products in TF32 where the GPU has it")
    compile: bool = setting(False, "compile the network with torch.compile")
    cuda_graphs: bool = setting(
        True, "run the network's passes in training as CUDA graphs (GPUs, ZeRO stage 0)"
    )
    deterministic: bool = setting(False, "use only operations that give the same bits every time")
    zero_stage: int = setting(0, "DeepSpeed ZeRO stage", minimum=0, maximum=3)
    ema_decay: float = setting(
        0.0,
        "decay of the exponential moving average (EMA) of the weights, which is then what is validated and "
        "saved for play; 0 keeps no average",
        minimum=0,
        maximum=1,
    )
    init_weights: str = setting("", "weights that a new run begins with, of any form that --weights takes")
    seed: int = setting(0, "seed of the weights and of the order of the data", minimum=0, maximum=MOST_SEED)
    checkpoint_interval: str = setting(
        "1000",
        "steps between checkpoints, or minutes as 30m",
        pattern="[1-9][0-9]{0,8}m?",
        expected="steps as 1000, or minutes as 30m",
    )
    keep_checkpoints: int = setting(
        3, "newest checkpoints to keep; the best ones are kept besides", minimum=1, maximum=MOST_STEPS
    )
    max_skipped_steps: int = setting(
        10,
        "steps in a row without finite gradients before the run goes back to its last checkpoint",
        minimum=1,
        maximum=MOST_STEPS,
    )
    max_rollbacks: int = setting(
        2, "times the run may go back to a checkpoint before it stops", minimum=0, maximum=MOST_STEPS
    )
    validation_interval: int = setting(
        500, "steps between validations; 0 turns them off", minimum=0, maximum=MOST_STEPS
    )
    validation_positions: int = setting(8192, "positions per validation", minimum=1, maximum=MOST_STEPS)
    log_interval: int = setting(
        10, "steps between log lines and TensorBoard points", minimum=1, maximum=MOST_STEPS
    )
    channels_last: bool = setting(True, "use the memory layout that convolutions are fastest in")
    pin_ranks: bool = setting(True, "keep the rank of a GPU on processors near it")


# What a run warns of, by name (docs/alarms.md).
ALARMS = (
    "throughput",
    "idle-gpus",
    "slow-rank",
    "overfitting",
    "entropy",
    "resignations",
    "disk",
    "memory",
    "clock",
    "network",
    "health",
)


@dataclass(frozen=True)
class RunConfig:
    """Where a run is kept and what it reports."""

    run_name: str = setting("", "name of the run directory; the preset's name if empty")
    runs_dir: str = setting("runs", "directory that holds the runs")
    tensorboard: bool = setting(True, "write TensorBoard events")
    wandb: bool = setting(False, "log to Weights & Biases as well (pip install wandb)")
    wandb_project: str = setting("alphazero", "project of Weights & Biases")
    wandb_team: str = setting("", "team of Weights & Biases; your own account if empty")
    wandb_group: str = setting("", "group of runs of Weights & Biases; none if empty")
    mute: tuple[str, ...] = setting((), "alarms that are not told (docs/alarms.md)", choices=ALARMS)
    log_format: str = setting(
        "text",
        "form of the lines on stderr and of the run's log: text, or json for a JSON object a line",
        choices=("text", "json"),
    )
    quiet: bool = setting(False, "show only warnings, validations and the end; the run's log has all lines")
    health_interval: float = setting(
        30.0,
        "seconds between checks of the GPUs and the host during training; 0 turns them off",
        minimum=0,
        maximum=1e6,
    )


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    self_play: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    run: RunConfig = field(default_factory=RunConfig)
    preset: str = ""
    # Field names that a flag gave, a TOML file of the user's own (no preset) and ds_config.json. A flag beats
    # the others; ds_config.json beats presets, and must not contradict a file that the user named.
    set_by_flag: frozenset[str] = frozenset()
    set_by_file: frozenset[str] = frozenset()
    set_by_json: frozenset[str] = frozenset()
    # Fields of the network that a preset gave which the user named: what one asks for with its name.
    set_by_preset: frozenset[str] = frozenset()

    @property
    def asked(self) -> frozenset[str]:
        """Field names asked for at this start; a resume takes all others from its checkpoint."""
        # Weights that are given have a shape of their own.
        of_preset = self.set_by_preset & {"game"} if self.training.init_weights else self.set_by_preset
        return self.set_by_flag | self.set_by_file | self.set_by_json | of_preset


SECTIONS: dict[str, type] = {
    "network": NetworkConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "loss": LossConfig,
    "training": TrainingConfig,
    "search": SearchConfig,
    "self_play": SelfPlayConfig,
    "run": RunConfig,
}
# What else a file may hold: the launcher reads it (cluster/plan/cluster_section.py), the trainer does not.
FOREIGN_SECTIONS = ("cluster",)


def load_config(source: str, flags: Mapping[str, object], *, is_named: bool = True) -> Config:
    """Defaults, then the preset or TOML file `source` ("" for none), then `flags` by field name.

    is_named: by the user, and not chosen for the machine. Raises ConfigError naming file, line and key, or
    the flag, with the value got and the value expected.
    """
    file = read_toml(find_config(source)) if source else None
    sections: dict[str, Any] = {}
    set_by_file: set[str] = set()
    for name, section in SECTIONS.items():
        values: dict[str, Any] = {}
        if file is not None and name in file.table:
            values = values_of(section, file, name, table_of(file, name, file.table[name]))
            set_by_file |= values.keys()
        sections[name] = section(**{**values, **values_of_flags(section, flags)})
    if file is not None:
        for name in file.table:
            if name not in SECTIONS and name not in FOREIGN_SECTIONS:
                refuse_section(file, name, SECTIONS)
    known = {entry.name for section in SECTIONS.values() for entry in fields(section)}
    shipped = file is not None and is_preset(file.path)
    if shipped and "policy_head" not in flags:
        sections["network"] = _with_head_of_game(sections["network"])
    # Not the policy head: presets of earlier versions had another, and runs that began with them go on.
    of_network = {entry.name for entry in fields(NetworkConfig)} - {"policy_head"}
    return Config(
        **sections,
        preset=file.path.stem if file else "",
        set_by_file=frozenset() if shipped else frozenset(set_by_file),
        set_by_flag=frozenset(known & flags.keys()),
        set_by_preset=frozenset(set_by_file & of_network) if shipped and is_named else frozenset(),
    )


def _with_head_of_game(network: NetworkConfig) -> NetworkConfig:
    """A preset's policy head is for its own game: a flag may have named one that has no such head."""
    if get_game(network.game).attention_map is None:
        return dataclasses.replace(network, policy_head="convolution")
    return network


def with_named_rate(config: Config) -> Config:
    """`config` with a learning rate that somebody named as it is: presets scale no rate but their own."""
    if "learning_rate" not in config.asked or "lr_scaling" in config.asked:
        return config
    return dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, lr_scaling="none"))


def read_section(source: str, name: str, section: type) -> tuple[object, dict[str, str]] | None:
    """One section of the preset or TOML file `source` as `section`, and file:line of each key it gives.

    None where the file has no such section. Raises ConfigError as load_config does.
    """
    file = read_toml(find_config(source))
    if name not in file.table:
        return None
    values = values_of(section, file, name, table_of(file, name, file.table[name]))
    return section(**values), {key: file.place(name, key) for key in values}


def to_table(config: Config) -> dict[str, Any]:
    """The settings as plain tables (JSON and TOML know no tuples)."""
    return {name: json_ready(dataclasses.asdict(getattr(config, name))) for name in SECTIONS}
