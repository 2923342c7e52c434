"""A JSON file that a person wrote: no key twice, no number that is none, and the line of every key."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.errors import ConfigError
from alphazero.text import quoted, shortened

KeyPath = tuple[str, ...]
# Line ends, strings (the only place where a brace is none), whether they are keys, and what opens and closes.
_TOKEN = re.compile(r'(?P<text>"(?:[^"\\]|\\.)*")(?P<key>\s*:)?|[{}\[\]\n]')
MOST_BYTES = 256 << 10


@dataclass(frozen=True)
class JsonFile:
    """An object read from `path`; lines: where each key stands, by its path of keys."""

    path: Path
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def error(self, keys: KeyPath, value: object, wanted: str) -> ConfigError:
        """ConfigError naming file, line, key and value."""
        line = f":{self.lines[keys]}" if keys in self.lines else ""
        return ConfigError(f"{self.path}{line}: {shortened('.'.join(keys))} = {_shown(value)}: {wanted}")

    def block(self, key: str) -> dict[str, Any]:
        """The object under `key`, empty where there is none; ConfigError where it is no object."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            raise self.error((key,), value, "expected an object")
        return value


def read_json_file(path: Path) -> JsonFile:
    """Read an object; ConfigError names file and line of what cannot be meant."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{path}: over {MOST_BYTES:,} bytes; expected an object of settings")
        text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; expected JSON") from error
    try:
        table = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: {error.msg}; expected JSON") from error
    except _NoNumberError as error:
        line = _line(text, _place_of_literal(text, str(error)))
        raise ConfigError(f"{path}:{line}: {shortened(str(error))}: expected a finite number") from error
    except ValueError as error:  # a whole number of more digits than Python reads
        raise ConfigError(f"{path}: holds a number of thousands of digits; expected JSON") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply; expected an object of settings") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {_shown(table)}: expected an object")
    return JsonFile(path, table, _lines_of_keys(path, text))


class _NoNumberError(Exception):
    """A literal that Python's reader takes for a number and JSON has not."""


def _no_number(literal: str) -> float:
    raise _NoNumberError(literal)


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise _NoNumberError(literal)
    return value


def _place_of_literal(text: str, literal: str) -> int:
    """Where `literal` first stands outside a string."""
    found = re.search(rf'"(?:[^"\\]|\\.)*"|(?P<literal>(?<![\w.+-]){re.escape(literal)})', text)
    while found is not None and found["literal"] is None:
        found = re.compile(found.re.pattern).search(text, found.end())
    return found.start() if found else 0


def _lines_of_keys(path: Path, text: str) -> dict[KeyPath, int]:
    """The line of each key of valid JSON; ConfigError where an object has one twice."""
    lines: dict[KeyPath, int] = {}
    # What is open: the key it stands under ("" in a list or at the top); its newest key.
    open_keys: list[str] = []
    newest = ""
    line = 1
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "\n":
            line += 1
        elif mark in "{[":
            # Objects in a list share a path: the running number of the place keeps them apart.
            open_keys.append(newest if newest else f"[{token.start()}]")
            newest = ""
        elif mark in "}]":
            open_keys.pop()
            newest = ""
        elif token["key"]:
            newest = json.loads(token["text"])
            keys = (*open_keys[1:], newest)
            if keys in lines:
                raise ConfigError(
                    f"{path}:{line}: {shortened('.'.join(keys))}: a second time, "
                    f"first on line {lines[keys]}; expected each key once"
                )
            lines[keys] = line
            line += token[0].count("\n")
        else:
            newest = ""
    return lines


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _shown(value: object) -> str:
    """`value` as JSON writes it, in the length of a line."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return quoted(value)
    return text if len(text) <= 60 else text[:57] + "..."
