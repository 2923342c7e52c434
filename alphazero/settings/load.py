"""The settings of a run and their one precedence: defaults, preset, ds_config.json, TOML file, flags.

A flag beats ds_config.json, which beats presets. A TOML file that the user named must not contradict it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.section import (
    TomlFile,
    flag_fields,
    flag_of,
    json_ready,
    read_toml,
    refuse_section,
    table_of,
    values_of,
    values_of_flags,
)
from alphazero.games.registry import get_game
from alphazero.machine.environment import shipped
from alphazero.settings.data import DataConfig
from alphazero.settings.deepspeed_file import DeepSpeedSettings, FileValue
from alphazero.settings.flags import key_of
from alphazero.settings.sections import (
    MOST_CHANNELS,
    LossConfig,
    NetworkConfig,
    OptimizerConfig,
    RunConfig,
    TrainingConfig,
)
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig


def preset_directory() -> Path:
    """Where the presets are."""
    return shipped("configs")


def preset_names() -> list[str]:
    """Names of the presets that ship with the program."""
    return sorted(path.stem for path in preset_directory().glob("*.toml"))


def find_config(source: str) -> Path:
    """The file behind `--config`: the name of a shipped preset, or a path."""
    path = Path(source)
    if path.suffix == ".toml" or (path.exists() and source not in preset_names()):
        if not path.is_file():
            raise ConfigError(
                f"{source}: no such file; expected a TOML file or one of {', '.join(preset_names())}"
            )
        return path
    shipped = preset_directory() / f"{source}.toml"
    if not shipped.is_file():
        raise ConfigError(
            f"--config {source}: no such preset; expected a TOML file or one of {', '.join(preset_names())}"
        )
    return shipped


@dataclass(frozen=True)
class Config:
    """All settings of a run. deepspeed: the ds_config.json that gave some of them."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    self_play: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    run: RunConfig = field(default_factory=RunConfig)
    deepspeed: DeepSpeedSettings = field(default_factory=DeepSpeedSettings)
    preset: str = ""
    # Field names that a flag gave, a TOML file of the user's own (no preset) and ds_config.json. A flag beats
    # the others; ds_config.json beats presets, and must not contradict a file that the user named.
    set_by_flag: frozenset[str] = frozenset()
    set_by_file: frozenset[str] = frozenset()
    set_by_json: frozenset[str] = frozenset()
    # Fields of the network's shape that a preset gave which the user named: what one asks for with its name.
    set_by_preset: frozenset[str] = frozenset()
    # Field names chosen for a game of OpenSpiel or a Python file (settings/chosen.py).
    set_by_game: frozenset[str] = frozenset()

    @property
    def asked(self) -> frozenset[str]:
        """Field names requested at this start; a resume takes all others from its checkpoint."""
        # Given weights bring their shape.
        of_preset = self.set_by_preset & {"game"} if self.training.init_weights else self.set_by_preset
        return self.set_by_flag | self.set_by_file | self.set_by_json | of_preset


# What a preset's name says of its network; the kind of its blocks and heads may change with a version.
SHAPE = {"game", "body", "blocks", "filters"}
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
# What else a file may hold: the launcher reads it (settings/cluster.py), the trainer does not.
FOREIGN_SECTIONS = ("cluster",)


def load_config(
    source: str,
    flags: Mapping[str, object],
    deepspeed: DeepSpeedSettings | None = None,
    *,
    is_named: bool = True,
) -> Config:
    """Defaults, then the preset or TOML file `source` ("" for none), ds_config.json, `flags` by field name.

    is_named: `source` is the user's choice, and was not chosen for the machine. Raises ConfigError naming
    file, line and key, or the flag, with the value got and the value expected; also where a TOML file of the
    user's contradicts ds_config.json.
    """
    file = read_toml(find_config(source)) if source else None
    # By its name or by its path.
    is_shipped = file is not None and file.path.resolve().parent == preset_directory().resolve()
    by_file: dict[str, Any] = {}
    by_flag: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        by_flag |= values_of_flags(section, flags)
        if file is not None and name in file.table:
            by_file |= values_in(file, name, section)
    if file is not None:
        for name in file.table:
            if name not in SECTIONS and name not in FOREIGN_SECTIONS:
                refuse_section(file, name, SECTIONS)
    by_user = {} if is_shipped else by_file
    values = {**by_file, **by_flag}
    by_json = _taken(deepspeed, values, by_user, by_flag, source) if deepspeed else {}
    values |= by_json
    asked = by_user.keys() | by_flag.keys() | by_json.keys()
    if "learning_rate" in asked and "lr_scaling" not in asked:
        values["lr_scaling"] = "none"  # presets scale no rate but their own
    network = with_smolgen(_section(NetworkConfig, values))
    if is_shipped and "policy_head" not in by_flag:
        network = _with_head_of_game(network)
    return Config(
        **{name: _section(section, values) for name, section in SECTIONS.items() if name != "network"},
        network=network,
        deepspeed=deepspeed or DeepSpeedSettings(),
        preset=file.path.stem if file else "",
        set_by_file=frozenset(by_user),
        set_by_flag=frozenset(by_flag),
        set_by_json=frozenset(by_json),
        set_by_preset=frozenset(by_file.keys() & SHAPE) if is_shipped and is_named else frozenset(),
    )


def _section(section: type, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any section
    return section(**{entry.name: values[entry.name] for entry in fields(section) if entry.name in values})


def _with_head_of_game(network: NetworkConfig) -> NetworkConfig:
    """A preset's policy head is for its own game: a flag may have named one that has no such head."""
    if get_game(network.game).policy_moves is None:
        return dataclasses.replace(network, policy_head="convolution")
    if network.body == "attention":
        return dataclasses.replace(network, policy_head="attention")
    return network


# Units of smolgen's layers per channel of its first one, as in lc0's networks of 32 channels and 256 units.
SMOLGEN_UNITS = 8


def with_smolgen(network: NetworkConfig) -> NetworkConfig:
    """A new network with the layers of smolgen as large as its channels ask for."""
    if network.body != "attention" or not network.smolgen_channels:
        return network
    units = min(SMOLGEN_UNITS * network.smolgen_channels, MOST_CHANNELS)
    return dataclasses.replace(network, smolgen_hidden=units, smolgen_size=units)


def values_in(file: TomlFile, name: str, section: type) -> dict[str, Any]:
    """The values of a section that a file has; ConfigError for a key that is not a setting of a TOML file."""
    entries = table_of(file, name, file.table[name])
    known = {entry.name for entry in flag_fields(section)}
    for key in entries:
        if key not in known and (in_json := key_of(key)):
            raise ConfigError(f"{file.location(name, key)}: {key}: expected {in_json} in a ds_config.json")
    return values_of(section, file, name, entries)


def to_table(config: Config) -> dict[str, Any]:
    """The settings as plain tables (JSON and TOML know no tuples)."""
    return {name: json_ready(dataclasses.asdict(getattr(config, name))) for name in SECTIONS}


# A flag that names another optimizer or schedule discards the file's block.
CHOOSERS = {"optimizer": "optimizer", "scheduler": "lr_schedule"}


def _taken(
    settings: DeepSpeedSettings,
    values: Mapping[str, Any],
    by_user: Mapping[str, Any],
    by_flag: Mapping[str, Any],
    source: str,
) -> dict[str, Any]:
    """What ds_config.json sets, by field. values: of all files and flags; by_user: of the user's own file."""
    values = {**{entry.name: entry.default for kind in SECTIONS.values() for entry in fields(kind)}, **values}
    taken: dict[str, Any] = {}
    for setting in _effective(settings, values, by_flag):
        name, value = setting.name, setting.value
        if name in by_flag:
            if setting.is_flag and value != values[name]:
                typed, key = f"{flag_of(name)} {_shown(values[name])}", f"{setting.path}={_shown(value)}"
                raise ConfigError(f"{setting.location} {key} contradicts {typed}; expected one of them")
            continue
        if name in by_user and value != values[name] and not setting.is_flag:
            if setting.is_default:
                continue
            raise _contradiction(settings, source, name, values, f"{name} = {value!r}")
        taken[name] = value
    precision = values["precision"]
    if precision in settings.precisions_off and "precision" in by_user.keys() - by_flag.keys():
        raise _contradiction(settings, source, "precision", values, f"{precision}.enabled = false")
    return taken


def _contradiction(
    settings: DeepSpeedSettings, source: str, name: str, values: Mapping[str, Any], said: str
) -> ConfigError:
    return ConfigError(
        f"{settings.source}: {said} contradicts {name} = {values[name]!r} of {Path(source).name}; "
        "expected one of them absent"
    )


def _effective(
    settings: DeepSpeedSettings, values: Mapping[str, Any], by_flag: Collection[str]
) -> list[FileValue]:
    """The last value of each setting, without blocks that a flag discards."""
    given = {setting.name: setting.value for setting in settings.values}
    left = {
        block
        for block, name in CHOOSERS.items()
        if name in by_flag and given.get(name) not in (None, values[name])
    }
    kept = (setting for setting in settings.values if setting.path.partition(".")[0] not in left)
    return list({setting.name: setting for setting in kept}.values())


def decided(config: Config) -> list[str]:
    """Lines to print: what a ds_config.json decided and what not, what DeepSpeed gets, what is ignored."""
    settings = config.deepspeed
    values = {name: value for section in SECTIONS for name, value in vars(getattr(config, section)).items()}
    last = _effective(settings, values, config.set_by_flag)
    used = [setting for setting in last if setting.name in config.set_by_json]
    texts = [f"{setting.name} {_shown(setting.value)}" for setting in used]
    lines = [f"{settings.source}: {', '.join(texts)}"] if texts else []
    beaten = {}
    for setting in settings.values:
        name, value = setting.name, setting.value
        if setting in used or setting.is_default or values[name] == value:
            continue
        by, chooser = f"{name} {_shown(values[name])}", CHOOSERS.get(setting.path.partition(".")[0], "")
        if name in config.set_by_flag:
            by = f"{flag_of(name)} {_shown(values[name])}"
        elif chooser in config.set_by_flag:
            by = f"{flag_of(chooser)} {values[chooser]}"
        beaten[f"{setting.path} {_shown(value)} ({by})"] = setting
    if beaten:
        lines.append(f"{settings.source}: not taken: {', '.join(beaten)}")
    stage = config.training.zero_stage
    return [*lines, *filter(None, [settings.passed_on_line(stage), settings.ignored_line(stage)])]


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
