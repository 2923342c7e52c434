"""The settings of a run with what a ds_config.json says: a flag beats it, it beats presets.

Only a TOML file that the user named can contradict it, which is an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from alphazero.base.errors import ConfigError
from alphazero.settings.deepspeed_file import DeepSpeedSettings, Said, contradiction
from alphazero.settings.sections import Config

# A flag that names another optimizer or schedule leaves all that the file says of its own behind.
CHOOSERS = {"optimizer": "optimizer.optimizer", "scheduler": "optimizer.lr_schedule"}


def merge(config: Config, settings: DeepSpeedSettings) -> Config:
    """`config` with what ds_config.json says.

    Raises ConfigError where a TOML file of the user's says otherwise, or the ZeRO stage that results (of a
    flag, a TOML file or the default) cannot go with options of ds_config.json.
    """
    changes: dict[str, dict[str, object]] = {}
    taken: set[str] = set()
    for said in _last_words(config, settings):
        section = said.target.partition(".")[0]
        current = getattr(getattr(config, section), said.name)
        if said.name in config.set_by_flag:
            continue
        if said.name in config.set_by_file and said.value != current:
            if said.is_default:
                continue
            raise _contradicts_file(config, settings, said.name, f"{said.name} = {said.value!r}", current)
        changes.setdefault(section, {})[said.name] = said.value
        taken.add(said.name)
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
    found = contradiction(settings, merged.training.zero_stage)
    if found is not None:
        raise ConfigError(f"{settings.source}: {found.path} = {found.value!r}: {found.wanted}")
    return merged


def places(settings: DeepSpeedSettings) -> dict[str, str]:
    """By the name of a setting, the file and line that a ds_config.json gives it in."""
    return {said.name: said.place for said in settings.said}


def decided(config: Config, settings: DeepSpeedSettings) -> list[str]:
    """Lines for people: what a ds_config.json decided, what it did not, what of it is ignored.

    config: as `merge` gave it.
    """
    lines = []
    used = [said for said in _last_words(config, settings) if said.name in config.set_by_json]
    if used:
        lines.append(f"{settings.source}: {', '.join(f'{said.name} {_shown(said.value)}' for said in used)}")
    beaten = [said for said in settings.said if said not in used and not said.is_default]
    beaten = [said for said in beaten if _value(config, said) != said.value]
    told = dict.fromkeys(f"{said.path} {_shown(said.value)} ({_by_whom(config, said)})" for said in beaten)
    if told:
        lines.append(f"{settings.source}: not taken: {', '.join(told)}")
    ignored = settings.ignored_line(config.training.zero_stage)
    return [*lines, *filter(None, [ignored])]


def _by_whom(config: Config, said: Said) -> str:
    flag = f"--{said.name.replace('_', '-')}"
    if said.name in config.set_by_flag:
        return f"{flag} {_shown(_value(config, said))}"
    chooser = CHOOSERS.get(said.path.partition(".")[0], "")
    name = chooser.partition(".")[2]
    if name in config.set_by_flag:
        return f"--{name.replace('_', '-')} {getattr(config.optimizer, name)}"
    return f"{said.name} {_shown(_value(config, said))}"


def _value(config: Config, said: Said) -> object:
    return getattr(getattr(config, said.target.partition(".")[0]), said.name)


def _last_words(config: Config, settings: DeepSpeedSettings) -> Iterable[Said]:
    """The last word on each setting, without blocks that a flag leaves behind."""
    left = {block for block, target in CHOOSERS.items() if _is_left(config, settings, target)}
    last = {said.target: said for said in settings.said if said.path.partition(".")[0] not in left}
    return last.values()


def _is_left(config: Config, settings: DeepSpeedSettings, target: str) -> bool:
    section, _, name = target.partition(".")
    value = settings.value_of(target)
    return name in config.set_by_flag and value not in (None, getattr(getattr(config, section), name))


def _contradicts_file(
    config: Config, settings: DeepSpeedSettings, name: str, said: str, current: object
) -> ConfigError:
    return ConfigError(
        f"{settings.source}: {said} contradicts {name} = {current!r} of {config.preset}.toml; "
        "expected one of them absent"
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
