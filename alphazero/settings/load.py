"""The settings of a run and their one precedence: defaults, preset, ds_config.json, TOML file, flags.

A flag beats ds_config.json, which beats presets. A TOML file that the user named must not contradict it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.section import (
    TomlFile,
    flag_fields,
    json_ready,
    read_toml,
    refuse_section,
    table_of,
    values_of,
    values_of_flags,
)
from alphazero.games.registry import get_game
from alphazero.settings.data import DataConfig
from alphazero.settings.deepspeed_file import DeepSpeedSettings, FileValue, contradiction
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

PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def preset_directory() -> Path:
    """configs/ beside the package in a checkout, within it where it was installed (CMakeLists.txt)."""
    installed = PACKAGE / "share" / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def shipped_deepspeed_config() -> Path:
    """The ds_config.json that is read where the command line names none."""
    return preset_directory().parent / "ds_config.json"


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


def is_preset(path: Path) -> bool:
    """True for a file that ships with the program, by its name or by its path."""
    return path.resolve().parent == preset_directory().resolve()


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
    # Field names chosen for a game of OpenSpiel or a Python file (settings/outside/chosen.py).
    set_by_game: frozenset[str] = frozenset()

    @property
    def asked(self) -> frozenset[str]:
        """Field names requested at this start; a resume takes all others from its checkpoint."""
        # Given weights bring their shape.
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
# What else a file may hold: the launcher reads it (settings/cluster.py), the trainer does not.
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
            values = _values_in(file, name, section)
            set_by_file |= values.keys()
        sections[name] = section(**{**values, **values_of_flags(section, flags)})
    if file is not None:
        for name in file.table:
            if name not in SECTIONS and name not in FOREIGN_SECTIONS:
                refuse_section(file, name, SECTIONS)
    sections["network"] = with_smolgen(sections["network"])
    known = {entry.name for section in SECTIONS.values() for entry in fields(section)}
    shipped = file is not None and is_preset(file.path)
    if shipped and "policy_head" not in flags:
        sections["network"] = _with_head_of_game(sections["network"])
    # Not the policy head: existing runs of these presets may have another, and continue with it.
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


def with_named_rate(config: Config) -> Config:
    """`config` with a learning rate that was named unscaled: presets scale no rate but their own."""
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
    values = _values_in(file, name, section)
    return section(**values), {key: file.place(name, key) for key in values}


def _values_in(file: TomlFile, name: str, section: type) -> dict[str, Any]:
    """The values of a section that a file has; ConfigError for a key that is no setting of a TOML file."""
    entries = table_of(file, name, file.table[name])
    known = {entry.name for entry in flag_fields(section)}
    for key in entries:
        if key not in known and (in_json := key_of(key)):
            raise ConfigError(f"{file.place(name, key)}: {key}: expected {in_json} in a ds_config.json")
    return values_of(section, file, name, entries)


def to_table(config: Config) -> dict[str, Any]:
    """The settings as plain tables (JSON and TOML know no tuples)."""
    return {name: json_ready(dataclasses.asdict(getattr(config, name))) for name in SECTIONS}


# A flag that names another optimizer or schedule discards the file's block.
CHOOSERS = {"optimizer": "optimizer.optimizer", "scheduler": "optimizer.lr_schedule"}


def merge(config: Config, settings: DeepSpeedSettings) -> Config:
    """`config` with the values of ds_config.json.

    Raises ConfigError where a TOML file of the user's contradicts it, or the ZeRO stage that results (of a
    flag, a TOML file or the default) cannot go with options of ds_config.json.
    """
    changes: dict[str, dict[str, object]] = {}
    taken: set[str] = set()
    for one in _effective(config, settings):
        section = one.target.partition(".")[0]
        current = getattr(getattr(config, section), one.name)
        if one.name in config.set_by_flag:
            continue
        if one.name in config.set_by_file and one.value != current:
            if one.is_default:
                continue
            raise _contradicts_file(config, settings, one.name, f"{one.name} = {one.value!r}", current)
        changes.setdefault(section, {})[one.name] = one.value
        taken.add(one.name)
    precision = config.training.precision
    if precision in settings.precisions_off and "precision" in config.set_by_file - config.set_by_flag:
        raise _contradicts_file(config, settings, "precision", f"{precision}.enabled = false", precision)
    sections = {
        name: dataclasses.replace(getattr(config, name), **values) for name, values in changes.items()
    }
    merged = dataclasses.replace(config, **sections, set_by_json=frozenset(taken))
    if "learning_rate" in taken and "lr_scaling" not in config.set_by_flag | config.set_by_file:
        # Its rate is meant for its own batch.
        merged = dataclasses.replace(
            merged, optimizer=dataclasses.replace(merged.optimizer, lr_scaling="none")
        )
    if found := contradiction(settings, merged.training.zero_stage):
        key, value, wanted = found
        raise ConfigError(f"{settings.source}: {key} = {value!r}: {wanted}")
    return merged


def places(settings: DeepSpeedSettings) -> dict[str, str]:
    """By the name of a setting, the file and line that a ds_config.json gives it in."""
    return {one.name: one.place for one in settings.values}


def decided(config: Config, settings: DeepSpeedSettings) -> list[str]:
    """Lines to print: what a ds_config.json decided, what it did not, what DeepSpeed gets, what is ignored.

    config: as `merge` gave it.
    """
    lines = []
    used = [one for one in _effective(config, settings) if one.name in config.set_by_json]
    if used:
        lines.append(f"{settings.source}: {', '.join(f'{one.name} {_shown(one.value)}' for one in used)}")
    beaten = [one for one in settings.values if one not in used and not one.is_default]
    beaten = [one for one in beaten if _value(config, one) != one.value]
    overridden = dict.fromkeys(f"{one.path} {_shown(one.value)} ({_by_whom(config, one)})" for one in beaten)
    if overridden:
        lines.append(f"{settings.source}: not taken: {', '.join(overridden)}")
    stage = config.training.zero_stage
    return [*lines, *filter(None, [settings.passed_on_line(stage), settings.ignored_line(stage)])]


def _by_whom(config: Config, one: FileValue) -> str:
    flag = f"--{one.name.replace('_', '-')}"
    if one.name in config.set_by_flag:
        return f"{flag} {_shown(_value(config, one))}"
    chooser = CHOOSERS.get(one.path.partition(".")[0], "")
    name = chooser.partition(".")[2]
    if name in config.set_by_flag:
        return f"--{name.replace('_', '-')} {getattr(config.optimizer, name)}"
    return f"{one.name} {_shown(_value(config, one))}"


def _value(config: Config, one: FileValue) -> object:
    return getattr(getattr(config, one.target.partition(".")[0]), one.name)


def _effective(config: Config, settings: DeepSpeedSettings) -> Iterable[FileValue]:
    """The last value of each setting, without blocks that a flag discards."""
    left = {block for block, target in CHOOSERS.items() if _is_left(config, settings, target)}
    last = {one.target: one for one in settings.values if one.path.partition(".")[0] not in left}
    return last.values()


def _is_left(config: Config, settings: DeepSpeedSettings, target: str) -> bool:
    section, _, name = target.partition(".")
    value = settings.value_of(target)
    return name in config.set_by_flag and value not in (None, getattr(getattr(config, section), name))


def _contradicts_file(
    config: Config, settings: DeepSpeedSettings, name: str, value: str, current: object
) -> ConfigError:
    return ConfigError(
        f"{settings.source}: {value} contradicts {name} = {current!r} of {config.preset}.toml; "
        "expected one of them absent"
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
