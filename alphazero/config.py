"""The settings of a run: dataclasses, their TOML form, and one flag a field.

Defaults stand here; a preset in configs/*.toml holds differences only; a flag beats both.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from alphazero.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = Path(__file__).resolve().parent
# Beside the package in a checkout, within it where it was installed (with ds_config.json; CMakeLists.txt).
PRESET_DIRECTORY = next(
    path for path in (PACKAGE / "share" / "configs", PACKAGE.parent / "configs") if path.is_dir()
)


def setting(
    default: object,
    help_text: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    words: Mapping[str, int] | None = None,
    pattern: str = "",
    wanted: str = "",
) -> Any:  # noqa: ANN401 - a field of any type, as dataclasses.field
    """A dataclass field with what its flag needs: help, allowed words, allowed range (inclusive).

    words: texts that stand for numbers. pattern: what a text must match, said to people as `expected`.
    """
    metadata = {
        "help": help_text,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "words": words or {},
        "pattern": pattern,
        "wanted": wanted,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of the network; two networks of equal NetworkConfig have exchangeable weights."""

    game: str = setting("chess", "game the network plays", choices=("chess", "connect4", "tictactoe"))
    blocks: int = setting(20, "residual blocks of the tower", minimum=1, maximum=256)
    filters: int = setting(256, "channels of the tower", minimum=1, maximum=4096)
    se_ratio: int = setting(
        0, "squeeze-excitation: filters / units in the squeeze; 0 is none", minimum=0, maximum=4096
    )
    value_channels: int = setting(32, "channels of the value head's 1x1 convolution", minimum=1, maximum=4096)
    value_hidden: int = setting(128, "units of the value head's hidden layer", minimum=1, maximum=4096)
    moves_left: bool = setting(False, "add a head that predicts how many plies are left")
    moves_left_channels: int = setting(
        8, "channels of the moves-left head's 1x1 convolution", minimum=1, maximum=4096
    )
    moves_left_hidden: int = setting(
        128, "units of the moves-left head's hidden layer", minimum=1, maximum=4096
    )


@dataclass(frozen=True)
class DataConfig:
    """Where positions come from and how they are read."""

    data: tuple[str, ...] = setting((), "game stores, PGN files or directories to train on")
    validation_data: tuple[str, ...] = setting((), "the same, to validate on")
    validation_share: float = setting(
        0.05, "share of the last games held out when there is no validation data", minimum=0, maximum=0.5
    )
    history_fill: str = setting("fen_only", "positions before a game's first", choices=("no", "fen_only"))
    symmetries: bool = setting(True, "show positions turned or mirrored where the game allows it")
    num_workers: int = setting(-1, "threads that encode positions, a rank; -1 chooses", minimum=-1)
    cache_dir: str = setting("cache", "where imported raw files are kept")


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and the learning rate over the run."""

    optimizer: str = setting("adamw", "optimizer; sgd is with Nesterov momentum", choices=("adamw", "sgd"))
    learning_rate: float = setting(0.001, "peak learning rate", minimum=0)
    lr_scaling: str = setting(
        "none", "scale the rate with batch size / 1024", choices=("none", "sqrt", "linear")
    )
    lr_schedule: str = setting("cosine", "rate after warm-up", choices=("constant", "step", "cosine"))
    lr_milestones: tuple[int, ...] = setting((), "step schedule: steps at which the rate is multiplied")
    lr_decay: float = setting(0.1, "step schedule: the factor", minimum=0, maximum=1)
    lr_final_share: float = setting(0.01, "cosine schedule: last rate / peak rate", minimum=0, maximum=1)
    warmup_steps: int = setting(100, "steps of linear warm-up", minimum=0)
    weight_decay: float = setting(1e-4, "decay, not on biases and BatchNorm", minimum=0)
    momentum: float = setting(0.9, "momentum of sgd", minimum=0, maximum=1)
    adam_beta1: float = setting(0.9, "AdamW's first moment", minimum=0, maximum=1)
    adam_beta2: float = setting(0.999, "AdamW's second moment", minimum=0, maximum=1)
    clip_gradients: float = setting(10.0, "largest gradient norm; 0 is no clipping", minimum=0)


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

    batch_size: int = setting(1024, "positions a step over all ranks", minimum=1)
    micro_batch_size: int = setting(
        0,
        "positions a forward pass; 0 chooses, auto takes the most that fit into memory",
        minimum=0,
        words={"auto": AUTO},
    )
    host_weights: tuple[str, ...] = setting(
        (),
        "shares of unlike hosts, HOST=WEIGHT ..., 1 for those not named (ZeRO 0 and 1)",
        pattern=r"[^=\s]+=([0-9]+\.?[0-9]*|\.[0-9]+)",
        wanted="HOST=WEIGHT, as gpu-node-1=2",
    )
    steps: int = setting(0, "steps of the run; 0 counts epochs instead", minimum=0)
    epochs: float = setting(1.0, "passes over the data when steps is 0", minimum=0)
    precision: str = setting(
        "fp32",
        "arithmetic of the network; auto is bf16 where all devices of the job have it, else fp16 on GPUs, "
        "fp32 on CPUs",
        choices=("fp32", "bf16", "fp16", "auto"),
    )
    loss_scale: float = setting(65536.0, "fp16: first value of the dynamic loss scale", minimum=1)
    loss_scale_window: int = setting(
        1000, "fp16: steps without overflow after which the scale doubles", minimum=1
    )
    tf32: bool = setting(True, "fp32 products in TF32 where the GPU has it")
    compile: bool = setting(False, "compile the network with torch.compile")
    deterministic: bool = setting(False, "only operations that give the same bits every time")
    zero_stage: int = setting(0, "DeepSpeed ZeRO stage", minimum=0, maximum=3)
    ema_decay: float = setting(
        0.0,
        "exponential average of the weights, which is then what is validated and shared; 0 is none",
        minimum=0,
        maximum=1,
    )
    seed: int = setting(0, "seed of weights and data order", minimum=0)
    checkpoint_interval: str = setting(
        "1000",
        "steps between checkpoints, or minutes as 30m",
        pattern="[1-9][0-9]*m?",
        wanted="steps as 1000, or minutes as 30m",
    )
    keep_checkpoints: int = setting(3, "newest checkpoints to keep, the best ones apart", minimum=1)
    max_skipped_steps: int = setting(
        10,
        "steps in a row without finite gradients, after which the last checkpoint is taken up again",
        minimum=1,
    )
    max_rollbacks: int = setting(2, "such returns, after which the run stops", minimum=0)
    validation_interval: int = setting(500, "steps between validations; 0 is never", minimum=0)
    validation_positions: int = setting(8192, "positions a validation", minimum=1)
    log_interval: int = setting(10, "steps between log lines and TensorBoard points", minimum=1)
    channels_last: bool = setting(True, "memory layout that convolutions like")


@dataclass(frozen=True)
class SearchConfig:
    """The tree search of self-play; docs/search.md has the rules."""

    algorithm: str = setting(
        "puct", "AlphaZero's search, or Gumbel AlphaZero's for few simulations", choices=("puct", "gumbel")
    )
    simulations: int = setting(800, "simulations a move", minimum=1, maximum=1_000_000)
    proofs: bool = setting(True, "won and lost positions found by the search prove their parents")
    c_init: float = setting(
        2.5, "puct: exploration beside values of -1..1 (AlphaZero's 1.25 stands beside 0..1)", minimum=0
    )
    c_base: float = setting(19652.0, "puct: growth of the exploration with the visits", minimum=1)
    fpu_reduction: float = setting(0.2, "puct: first-play urgency below the parent's value", minimum=0)
    root_fpu_reduction: float = setting(0.0, "puct: the same at the root", minimum=0)
    noise_epsilon: float = setting(0.25, "puct: share of noise in the root's priors", minimum=0, maximum=1)
    dirichlet_alpha: float = setting(0.3, "puct: shape of that noise", minimum=1e-6)
    forced_playouts: float = setting(0.0, "puct: KataGo's k of forced playouts; 0 is none", minimum=0)
    considered_moves: int = setting(16, "gumbel: moves that sequential halving begins with", minimum=1)
    c_visit: float = setting(50.0, "gumbel: visits added to the weight of the values", minimum=0)
    c_scale: float = setting(1.0, "gumbel: weight of the values", minimum=0)


@dataclass(frozen=True)
class SelfPlayConfig:
    """Games of the network against itself, and how training goes with them."""

    mode: str = setting(
        "supervised",
        "learn from given games, from self-play, or from both",
        choices=("supervised", "selfplay", "mixed"),
    )
    generations: int = setting(100, "generations of games; each is played with the newest weights", minimum=1)
    steps_per_generation: int = setting(100, "training steps after each generation", minimum=1)
    pretraining_steps: int = setting(
        0, "mixed: steps on the given games before the first generation", minimum=0
    )
    historical_share: float = setting(
        0.25, "mixed: share of the given games in each batch afterwards", minimum=0, maximum=1
    )
    reuse: float = setting(4.0, "how often a new position is trained on, at most, on average", minimum=0.01)
    lanes: int = setting(256, "games under way at a time over all ranks", minimum=1)
    moves_per_round: int = setting(
        16, "moves each lane plays at a time; a generation is as many rounds as reuse wants", minimum=1
    )
    evaluation_batch: int = setting(64, "positions an evaluation of the network in self-play", minimum=1)
    evaluation_precision: str = setting(
        "training",
        "arithmetic of the network in self-play; training: that of training",
        choices=("training", "fp32", "bf16", "fp16"),
    )
    full_search_share: float = setting(
        1.0,
        "share of moves with a full search; the others are quick and not trained on",
        minimum=0,
        maximum=1,
    )
    fast_simulations: int = setting(100, "simulations of a quick move", minimum=1)
    temperature: float = setting(1.0, "puct: temperature of the first moves", minimum=0)
    temperature_plies: int = setting(
        30, "puct: plies of a game that are drawn at this temperature", minimum=0
    )
    final_temperature: float = setting(0.0, "puct: temperature afterwards", minimum=0)
    opening_plies: int = setting(0, "games begin with up to as many random moves", minimum=0)
    resign_threshold: float = setting(
        0.0, "a side gives up when its value is below minus this; 0 is never", minimum=0, maximum=1
    )
    resign_playthrough: float = setting(
        0.1, "share of games that are played on, to measure wrong resignations", minimum=0, maximum=1
    )
    max_plies: int = setting(512, "longer games are drawn", minimum=1)
    gate_games: int = setting(
        0,
        "games of new weights against those that play, before they take over; even, 0: they always do",
        minimum=0,
    )
    gate_score: float = setting(0.55, "share of the points they need for it", minimum=0, maximum=1)
    gate_opening_plies: int = setting(4, "random moves these games begin with", minimum=0)
    value_q_ratio: float = setting(
        0.0, "share of the search's value in the value target, beside the result", minimum=0, maximum=1
    )
    window_minimum: int = setting(10_000, "positions of the smallest training window", minimum=1)
    window_alpha: float = setting(0.75, "exponent of the window's growth", minimum=0.01, maximum=1)
    window_beta: float = setting(0.4, "slope of the window's growth", minimum=0, maximum=1)


@dataclass(frozen=True)
class RunConfig:
    """Where a run lives and what it tells."""

    run_name: str = setting("", "name of the run directory; the preset's name if empty")
    runs_dir: str = setting("runs", "directory that holds the runs")
    tensorboard: bool = setting(True, "write TensorBoard events")
    wandb: bool = setting(False, "log to Weights & Biases as well (pip install wandb)")
    health_interval: float = setting(
        30.0, "seconds between looks at the GPUs and host during training; 0 is never", minimum=0
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
    # Field names that a file or a flag named: ds_config.json must not contradict the one silently.
    set_by_file: frozenset[str] = frozenset()
    set_by_flag: frozenset[str] = frozenset()


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


def preset_names() -> list[str]:
    """Names of the presets that ship with the program."""
    return sorted(path.stem for path in PRESET_DIRECTORY.glob("*.toml"))


def add_flags(parser: argparse.ArgumentParser, sections: Mapping[str, type] | None = None) -> None:
    """Give `parser` one flag for every field of the sections, all if None (absent unless typed)."""
    for section_name, section in (SECTIONS if sections is None else sections).items():
        group = parser.add_argument_group(section_name, section.__doc__)
        types_of = typing.get_type_hints(section)
        for entry in fields(section):
            flag = "--" + entry.name.replace("_", "-")
            _add_flag(group, flag, entry, types_of[entry.name])


def _add_flag(group: argparse._ArgumentGroup, flag: str, entry: dataclasses.Field[Any], kind: object) -> None:
    default = entry.default if entry.default not in ((), "") else "none"
    help_text = f"{entry.metadata['help']} (default: {default})"
    if kind is bool:
        group.add_argument(
            flag, default=argparse.SUPPRESS, action=argparse.BooleanOptionalAction, help=help_text
        )
        return
    many = typing.get_origin(kind) is tuple
    # Values stay text here: `_checked` reads them, so that flag and TOML have one set of messages.
    group.add_argument(
        flag,
        default=argparse.SUPPRESS,
        nargs="+" if many else None,
        metavar="{" + ",".join(entry.metadata["choices"]) + "}" if entry.metadata["choices"] else "VALUE",
        help=help_text.replace("%", "%%"),
    )


def load_config(source: str, flags: Mapping[str, object]) -> Config:
    """Defaults, then the preset or TOML file `source` ("" for none), then `flags` by field name.

    Raises ConfigError naming file, line and key, or the flag, with the value got and the value expected.
    """
    path = find_config(source) if source else None
    table = _read_toml(path) if path else {}
    for name in FOREIGN_SECTIONS:
        table.pop(name, None)
    sections: dict[str, Any] = {}
    set_by_file: set[str] = set()
    for name, section in SECTIONS.items():
        from_file = table.pop(name, {})
        if not isinstance(from_file, dict):
            raise ConfigError(f"{_place(path, name)}: {from_file!r}: expected a table [{name}]")
        sections[name] = _build_section(section, from_file, flags, path)
        set_by_file |= from_file.keys()
    for key, value in table.items():
        wanted = ", ".join(f"[{name}]" for name in SECTIONS)
        raise ConfigError(f"{_place(path, key)}: {key!r} = {value!r}: no such section; expected {wanted}")
    known = {entry.name for section in SECTIONS.values() for entry in fields(section)}
    return Config(
        **sections,
        preset=path.stem if path else "",
        set_by_file=frozenset(set_by_file),
        set_by_flag=frozenset(known & flags.keys()),
    )


def read_section(source: str, name: str, section: type) -> tuple[object, dict[str, str]] | None:
    """One section of the preset or TOML file `source` as `section`, and file:line of each key it gives.

    None where the file has no such section. Raises ConfigError as load_config does.
    """
    path = find_config(source)
    table = _read_toml(path).get(name)
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(f"{_place(path, name)}: {table!r}: expected a table [{name}]")
    return _build_section(section, table, {}, path), {key: _place(path, key) for key in table}


def find_config(source: str) -> Path:
    """The file behind `--config`: a path, or the name of a shipped preset."""
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        if not path.is_file():
            raise ConfigError(
                f"{source}: no such file; expected a TOML file or one of {', '.join(preset_names())}"
            )
        return path
    shipped = PRESET_DIRECTORY / f"{source}.toml"
    if not shipped.is_file():
        raise ConfigError(
            f"--config {source}: no such preset; expected a TOML file or one of {', '.join(preset_names())}"
        )
    return shipped


def to_table(config: Config) -> dict[str, Any]:
    """The settings as plain tables (JSON and TOML know no tuples)."""
    return {name: json_ready(dataclasses.asdict(getattr(config, name))) for name in SECTIONS}


def json_ready(value: Any) -> Any:  # noqa: ANN401 - walks any nest of containers
    """`value` with tuples as lists, as JSON and TOML would give it back."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; expected a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error


def _build_section(
    section: type, from_file: dict[str, Any], flags: Mapping[str, object], path: Path | None
) -> object:
    kinds = typing.get_type_hints(section)
    known = {entry.name: entry for entry in fields(section)}
    values: dict[str, Any] = {}
    for key, value in from_file.items():
        if key not in known:
            wanted = ", ".join(known)
            raise ConfigError(
                f"{_place(path, key)}: {key!r} = {value!r}: no such setting; expected one of {wanted}"
            )
        values[key] = _checked(f"{_place(path, key)}: {key}", value, kinds[key], known[key])
    for key, entry in known.items():
        if key in flags:
            values[key] = _checked("--" + key.replace("_", "-"), flags[key], kinds[key], entry)
    return section(**values)


def _place(path: Path | None, key: str) -> str:
    """file:line of a key; tomllib keeps no lines, so the first line that begins with it."""
    if path is None:
        return "config"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if re.match(rf"\s*\[?\s*\"?{re.escape(key)}\"?\s*[=\]]", line):
            return f"{path}:{number}"
    return str(path)


_WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _checked(place: str, value: object, kind: Any, entry: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """`value` (text of a flag, or what TOML held) as `kind`, within the field's choices and range."""
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{place}: {value!r}: expected a list")
        return tuple(_checked(place, item, typing.get_args(kind)[0], entry) for item in value)
    if isinstance(value, str) and value in entry.metadata["words"]:
        return entry.metadata["words"][value]
    converted = _convert(value, kind)
    if converted is None:
        raise ConfigError(f"{place}: {value!r}: expected {_WANTED[kind]}")
    choices, low, high = (entry.metadata[key] for key in ("choices", "minimum", "maximum"))
    if entry.metadata["pattern"] and not re.fullmatch(entry.metadata["pattern"], str(converted)):
        raise ConfigError(f"{place}: {value!r}: expected {entry.metadata['wanted']}")
    if choices and converted not in choices:
        raise ConfigError(f"{place}: {value!r}: expected one of {', '.join(choices)}")
    if (low is not None and converted < low) or (high is not None and converted > high):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        raise ConfigError(f"{place}: {value!r}: expected {bounds}")
    return converted


def _convert(value: object, kind: type) -> object | None:
    """None where `value` is no `kind`; text is read as a flag's, a whole number passes as a float."""
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if kind is str:
        return str(value) if isinstance(value, (str, int)) else None
    try:
        number = kind(value)
    except (TypeError, ValueError):
        return None
    exact = isinstance(value, str) or number == value
    return number if exact and math.isfinite(number) else None
