"""What a section of settings is: a frozen dataclass, read from TOML and flags, each value checked alike.

`setting()` declares what a field means and which values it takes; the dataclass gives its type. Messages
name file, line and key, or the flag, with the value got and the value expected.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import read_at_most
from alphazero.base.text import near_match, one_of, quoted, reason

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Beyond every sensible value and within what 64 bits and a double hold: a slip of the keyboard ends here and
# not in a loop or an allocation.
MOST = 2**53
MOST_STEPS = 10**9
MOST_RATE = 1e6  # of learning and of decay
MOST_SEED = 2**62  # seeds of parts of a run are sums with this one
MANY = 100_000  # numbers from here on are written with commas
# The parser's time grows with the square of a key's parts (a.b.c): no key here has more than three.
MOST_TOML_BYTES = 256 << 10
MOST_DOTS = 1000  # of a line, outside of texts
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")


class Scope(Enum):
    """Who may change a setting when a run is continued, from the least free to the freest.

    All but START and NODE come from the checkpoint unless they are requested. All but NODE must be equal on
    all ranks.
    """

    RUN = "fixed at the start of the run: another value is refused"
    KEPT = "may be changed; the log lists the change"
    REPORTING = "may be changed; results do not depend on it, so the log is silent"
    START = "chosen at each start"
    NODE = "chosen at each start, by each node for itself"


def setting(
    default: object,
    help_text: str,
    *,
    choices: tuple[str, ...] = (),
    reads: Callable[[str, str], str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    words: Mapping[str, int | str] | None = None,
    pattern: str = "",
    expected: str = "",
    aliases: tuple[str, ...] = (),
    metavar: str = "VALUE",
    scope: Scope = Scope.KEPT,
    is_common: bool = False,
    is_place: bool = False,
    has_flag: bool = True,
    of_training: bool = False,
) -> Any:  # noqa: ANN401 - a field of any type, as dataclasses.field
    """A dataclass field with all that there is to know of a setting.

    default: also what runs did that are older than the setting. reads: what makes a value of a text that is
    none of the choices, or raises ConfigError; it gets the source for its message as well. minimum, maximum:
    inclusive. words: texts that stand for values. pattern: what a text must match, shown in messages as
    `expected`. aliases: other names of the flag. metavar: what --help calls its value. is_common: listed by
    --help, the others by --help all. is_place: names where files lie, which reports do not compare. has_flag:
    it has a flag and a TOML key; else ds_config.json or given weights alone set it. of_training: it has no
    meaning, and no flag, where games are played without training on them.
    """
    facts = {name: value for name, value in locals().items() if name != "default"}
    return field(default=default, metadata={**facts, "words": words or {}})


def step_count(default: Any, help_text: str, minimum: int = 0, **more: Any) -> Any:  # noqa: ANN401 - as setting()
    """A setting that counts steps of training."""
    return setting(default, help_text, minimum=minimum, maximum=MOST_STEPS, **more)


def rate(default: float, help_text: str, **more: Any) -> Any:  # noqa: ANN401 - as setting()
    """A setting that is a rate of learning or of decay."""
    return setting(default, help_text, minimum=0, maximum=MOST_RATE, **more)


def share(default: float, help_text: str, maximum: float = 1, **more: Any) -> Any:  # noqa: ANN401 - as setting()
    """A setting from 0 to 1."""
    return setting(default, help_text, minimum=0, maximum=maximum, **more)


def scope_of(section: type, name: str) -> Scope:
    scope = section.__dataclass_fields__[name].metadata["scope"]  # type: ignore[attr-defined]
    assert isinstance(scope, Scope)
    return scope


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def kinds_of(section: type) -> dict[str, Any]:
    """The type of each field's values: `kind` where the field is of type `kind | None`."""
    kinds = typing.get_type_hints(section)
    return {
        name: typing.get_args(kind)[0] if type(None) in typing.get_args(kind) else kind
        for name, kind in kinds.items()
    }


def flag_fields(section: type) -> list[dataclasses.Field[Any]]:
    """The fields that have a flag and a TOML key."""
    return [entry for entry in fields(section) if entry.metadata["has_flag"]]


@dataclass(frozen=True)
class HiddenHelp:
    """Help texts that --help leaves out and --help all lists."""

    texts: list[tuple[object, str, str | None]] = field(default_factory=list)

    def hide(self, owner: argparse.Action | argparse._ArgumentGroup, attribute: str) -> None:
        self.texts.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, argparse.SUPPRESS)

    def reveal(self) -> None:
        for owner, attribute, text in self.texts:
            setattr(owner, attribute, text)


def add_flags(
    parser: argparse.ArgumentParser,
    sections: Mapping[str, type],
    hidden: HiddenHelp | None = None,
    *,
    trains: bool = True,
) -> None:
    """Give `parser` one flag for every setting of the sections; a flag not typed leaves no attribute.

    hidden: takes the help of flags that are not common; without it all are listed. trains: the command trains
    a network; one that does not has no flags of settings that are of_training.
    """
    for section_name, section in sections.items():
        group, kinds, rare = parser.add_argument_group(section_name, section.__doc__), kinds_of(section), []
        for entry in flag_fields(section):
            if entry.metadata["of_training"] and not trains:
                continue
            action = _add_flag(group, entry, kinds[entry.name])
            rare += [] if entry.metadata["is_common"] else [action]
        if hidden is None:
            continue
        for action in rare:
            hidden.hide(action, "help")
        if len(rare) == len(flag_fields(section)):
            hidden.hide(group, "description")


def _names(entry: dataclasses.Field[Any]) -> list[str]:
    return [flag_of(name) for name in (entry.name, *entry.metadata["aliases"])]


def _add_flag(group: argparse._ArgumentGroup, entry: dataclasses.Field[Any], kind: object) -> argparse.Action:
    default = entry.default if entry.default not in ((), "") else "none"
    # Where None is the default, the help text describes what it stands for.
    suffix = "" if default is None else f" (default: {default})"
    help_text = f"{entry.metadata['help_text']}{suffix}".replace("%", "%%")
    names, quiet = _names(entry), argparse.SUPPRESS
    if kind is bool:
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
    else:
        # Values stay text here: `checked` reads them, so that flag and TOML have one set of messages.
        choices = entry.metadata["choices"]
        metavar = "{" + ",".join(choices) + "}" if choices else entry.metadata["metavar"]
        how = {"nargs": "+" if typing.get_origin(kind) is tuple else None, "metavar": metavar}
    return group.add_argument(*names, dest=entry.name, default=quiet, help=help_text, **how)


@dataclass(frozen=True)
class TomlFile:
    """A TOML file, and where in it a key stands."""

    path: Path
    text: str
    table: dict[str, Any]

    def location(self, section: str, key: str = "") -> str:
        """file:line of a section, or of a key in it; a section of "" is the top of the file.

        The parser keeps no lines: this is the first line of the section that begins with the key.
        """
        current, of_section = "", 0
        name = re.escape(key or section)
        dotted = rf"(?:{re.escape(section)}\s*\.\s*)?" if key and section else ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            header = re.match(r"\s*\[+\s*\"?([^\]\".]+)", line)
            current = header[1].strip() if header else current
            if header and current == section:
                of_section = of_section or number
            is_key = re.match(rf"\s*{dotted}\"?{name}\"?\s*[=.]", line)
            is_here = current == section or (dotted and not current) if key else not current
            if (header and current == section and not key) or (is_key and is_here):
                return f"{self.path}:{number}"
        return f"{self.path}:{of_section}" if of_section else str(self.path)


def read_toml(path: Path) -> TomlFile:
    """The file. Raises ConfigError where it cannot be read or is no TOML."""
    try:
        text = read_at_most(path, MOST_TOML_BYTES).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        _refuse_long_keys(path, text)
        return TomlFile(path, text, tomllib.loads(text))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # also of large files, and of numbers of thousands of digits
        raise ConfigError(f"{path}: {reason(error)}; expected a TOML file of settings") from error


def _refuse_long_keys(path: Path, text: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MOST_DOTS and (dots := _QUOTED.sub("", line).count(".")) > MOST_DOTS:
            raise ConfigError(f"{path}:{number}: {dots:,} dots; expected a key of a few parts")


def table_of(file: TomlFile, name: str, entries: object) -> dict[str, Any]:
    """What stands under `name` in a file. Raises ConfigError where it is no table."""
    if not isinstance(entries, dict):
        raise ConfigError(f"{file.location(name)}: {quoted(entries)}: expected a table [{name}]")
    return entries


def refuse_section(file: TomlFile, name: str, known: Mapping[str, type]) -> typing.NoReturn:
    """Raise ConfigError for a section that means nothing."""
    sections = [f"[{section}]" for section in known]
    near = near_match(f"[{name}]", sections)
    expected = f"did you mean {near}? Expected" if near else "expected"
    raise ConfigError(
        f"{file.location(name)}: {quoted(name)}: no such section; {expected} {', '.join(sections)}"
    )


def values_of(section: type, file: TomlFile, name: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The values that section `name` of a file gives to fields of `section`.

    Raises ConfigError for a key or value that cannot be.
    """
    kinds = kinds_of(section)
    known = {entry.name: entry for entry in flag_fields(section)}
    values: dict[str, Any] = {}
    for key, value in entries.items():
        location = file.location(name, key)
        if key not in known:
            raise ConfigError(
                f"{location}: {quoted(key)} = {quoted(value)}: no such setting; {one_of(key, known)}"
            )
        values[key] = checked(f"{location}: {key}", value, kinds[key], known[key])
    return values


def values_of_flags(section: type, flags: Mapping[str, object]) -> dict[str, Any]:
    """The values that `flags`, by field name, give to fields of `section`; others are left alone."""
    kinds = kinds_of(section)
    return {
        entry.name: checked(flag_of(entry.name), flags[entry.name], kinds[entry.name], entry)
        for entry in flag_fields(section)
        if entry.name in flags
    }


def checked(source: str, value: object, kind: Any, entry: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """`value` (text of a flag, or what TOML held) as `kind`, within the field's choices and range."""
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{source}: {quoted(value)}: expected a list of {_PLURALS[item]}")
        return tuple(checked(source, part, item, entry) for part in value)
    if isinstance(value, str) and value in entry.metadata["words"]:
        return entry.metadata["words"][value]
    converted = _convert(value, kind)
    if isinstance(converted, str) and entry.metadata["reads"] and converted not in entry.metadata["choices"]:
        return entry.metadata["reads"](source, converted)
    if converted is None or not _is_allowed(converted, entry.metadata):
        raise ConfigError(f"{source}: {quoted(value)}: expected {_expected(kind, entry.metadata)}")
    return converted


def _is_allowed(value: Any, metadata: Mapping[str, Any]) -> bool:  # noqa: ANN401 - of any kind
    low, high = metadata["minimum"], metadata["maximum"]
    return (
        (not metadata["pattern"] or re.fullmatch(metadata["pattern"], str(value)) is not None)
        and (not metadata["choices"] or value in metadata["choices"])
        and (low is None or value >= low)
        and (high is None or value <= high)
    )


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_PLURALS = {bool: "truth values", int: "whole numbers", float: "numbers", str: "texts"}


def _expected(kind: type, metadata: Mapping[str, Any]) -> str:
    """What a value must be, in words."""
    if metadata["choices"]:
        return f"one of {', '.join(metadata['choices'])}"
    if metadata["pattern"]:
        return str(metadata["expected"])
    words = "".join(f" or {word}" for word in metadata["words"])
    return _NAMES[kind] + range_text(metadata["minimum"], metadata["maximum"]) + words


def range_text(low: float | None, high: float | None) -> str:
    """' from 1 to 256', ' of at least 1', ' of at most 256' or ''; a bound that only guards is not shown."""
    is_shown = high is not None and high < MOST
    if low is not None and is_shown:
        return f" from {_bound(low)} to {_bound(high)}"
    if low is not None:
        return f" of at least {_bound(low)}"
    return f" of at most {_bound(high)}" if is_shown else ""


def _bound(bound: float | None) -> str:
    if bound is not None and bound == int(bound):
        return f"{int(bound):,}" if bound >= MANY else str(int(bound))
    return f"{bound:g}"


def _convert(value: object, kind: type) -> object | None:
    """None where `value` is no `kind`; text is read as a flag's, a whole number passes as a float."""
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if kind is str and not isinstance(value, (str, int)):
        return None
    try:
        converted = kind(value)
        is_number = kind is str or math.isfinite(converted)
    except (TypeError, ValueError, OverflowError):
        return None
    is_exact = isinstance(value, str) or kind is str or converted == value
    return converted if is_number and is_exact else None


def json_ready(value: Any) -> Any:  # noqa: ANN401 - walks any nest of containers
    """`value` with tuples as lists, as JSON and TOML would give it back."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return value
