"""Hjson, as DeepSpeed reads it (https://hjson.github.io), and the line of each key."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hjson import HjsonDecodeError, HjsonDecoder
from hjson.decoder import NUMBER_RE, JSONArray, JSONObject, make_scanner

from alphazero.base.errors import ConfigError
from alphazero.base.files import read_at_most
from alphazero.base.text import quoted, shortened

KeyPath = tuple[str, ...]
Scan = Callable[[str, int], tuple[object, int]]
MOST_BYTES = 64 << 10
MOST_DEPTH = 50


@dataclass(frozen=True)
class HjsonFile:
    """An object read from `path`; lines: where the value of each key stands, by its path of keys.

    flag: of the command line, which gave the values of `by_flag`.
    """

    path: Path
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]
    flag: str = ""
    by_flag: frozenset[KeyPath] = frozenset()

    def location(self, keys: KeyPath) -> str:
        """Flag, or file and line, that a value comes from."""
        if any(keys[:end] in self.by_flag for end in range(1, len(keys) + 1)):
            return self.flag
        return f"{self.path}:{self.lines[keys]}" if keys in self.lines else str(self.path)

    def error(self, keys: KeyPath, value: object, wanted: str) -> ConfigError:
        """ConfigError naming file, line, key and value."""
        text = shortened(json.dumps(value))
        return ConfigError(f"{self.location(keys)}: {shortened('.'.join(keys))} = {text}: {wanted}")

    def with_values(self, flag: str, given: Sequence[str]) -> HjsonFile:
        """The same with values of a flag, KEY=VALUE each, which beat the file's. Raises ConfigError."""
        table, by_flag = copy.deepcopy(self.table), set()
        for text in given:
            name, sign, value = text.partition("=")
            keys = tuple(name.split("."))
            inner: Any = table
            for key in keys[:-1]:
                inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
            if not sign or not all(keys) or not isinstance(inner, dict) or len(keys) > MOST_DEPTH:
                raise ConfigError(
                    f"{flag} {quoted(text)}: expected KEY=VALUE, with dots between the names of a key"
                )
            try:
                inner[keys[-1]] = json.loads(value)
            except (ValueError, RecursionError):
                inner[keys[-1]] = value
            by_flag.add(keys)
        return replace(self, table=table, flag=flag, by_flag=frozenset(by_flag))


def read_hjson(path: Path) -> HjsonFile:
    """Read an object; ConfigError names file and line of what cannot be read."""
    decoder = _Decoder(path)
    try:
        text = read_at_most(path, MOST_BYTES).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        table = decoder.decode(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except HjsonDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: {shortened(str(error))}; expected JSON") from error
    except (ValueError, IndexError, OverflowError) as error:
        raise ConfigError(f"{path}: {shortened(str(error))}; expected an object of settings") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {shortened(json.dumps(table))}: expected an object")
    return HjsonFile(path, table, decoder.lines)


class _Decoder(HjsonDecoder):  # type: ignore[misc]  # a class without types
    """hjson's decoder, which notes lines, reads no key twice and ends at a depth."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.keys: KeyPath = ()  # of the value that is read
        self.lines: dict[KeyPath, int] = {}
        self.parse_object, self.parse_array = self._object, self._array
        self.scan_once, self.scan_object_once = make_scanner(self)

    def _object(self, state: tuple[str, int], encoding: str, strict: bool, scan: Scan, *more: Any) -> Any:  # noqa: ANN401
        key, bare = _LastKey(), more[3:]
        return JSONObject(
            state,
            encoding,
            strict,
            lambda text, at: self._value(key.name, scan, text, at),
            None,
            None,
            key,
            *bare,
        )

    def _array(self, state: tuple[str, int], scan: Scan) -> Any:  # noqa: ANN401
        number = itertools.count()
        return JSONArray(state, lambda text, at: self._value(f"[{next(number)}]", scan, text, at))

    def _value(self, name: str, scan: Scan, text: str, at: int) -> tuple[object, int]:
        outer, self.keys, line = self.keys, (*self.keys, name), text.count("\n", 0, at) + 1
        where = f"{self.path}:{line}: {shortened('.'.join(self.keys))}"
        if self.keys in self.lines:
            raise ConfigError(f"{where}: first on line {self.lines[self.keys]}; expected each key once")
        if len(self.keys) > MOST_DEPTH:
            raise ConfigError(f"{where}: nested too deeply; expected an object of settings")
        self.lines[self.keys] = line
        try:
            value = scan(text, at)
        except HjsonDecodeError:
            raise
        except (ValueError, OverflowError) as error:  # infinity; a whole number of thousands of digits
            number = shortened(NUMBER_RE.match(text, at)[0].strip())
            raise ConfigError(f"{where} = {number}: too large; expected a number below 1e308") from error
        self.keys = outer
        return value


class _LastKey:
    """What hjson asks for a key that it knew before, once it has read one."""

    name = ""

    def setdefault(self, key: str, _: str) -> str:
        """Note the key."""
        self.name = key
        return key
