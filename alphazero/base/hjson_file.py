"""Hjson: JSON with comments, trailing commas and texts without quotes, and the line of each key.

The syntax is that of https://hjson.github.io as hjson for Python reads it, which is DeepSpeed's reader.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import read_at_most
from alphazero.base.text import quoted, shortened

KeyPath = tuple[str, ...]
MOST_BYTES = 256 << 10
MOST_DEPTH = 100
_SPACE = re.compile(r"(?:[ \t\n]|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_KEY = re.compile(r"([^{}\[\],: \t\n]+)[ \t\n]*(?=:)")
_TEXT = {
    mark: re.compile(rf"{mark}((?:[^{mark}\\\x00-\x1f]|\\u[0-9a-fA-F]{{4}}|\\[\"'\\/bfnrt])*){mark}")
    for mark in ('"', "'")
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# A value without quotes where one of these ends it; anything else is a text up to the end of the line.
_WORD = re.compile(
    r"(?:(?P<name>true|false|null)[^\S\n]*|"
    r"(?P<number>-?(?:0|[1-9][0-9]*)(?P<part>\.[0-9]+)?(?P<power>[eE][-+]?[0-9]+)?)[ \t]*)"
    r"(?=[,}\]#\n]|//|/\*|\Z)"
)
_NAMES = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class HjsonFile:
    """An object read from `path`; lines: where each key stands, by its path of keys."""

    path: Path
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def error(self, keys: KeyPath, value: object, wanted: str) -> ConfigError:
        """ConfigError naming file, line, key and value."""
        line = f":{self.lines[keys]}" if keys in self.lines else ""
        return ConfigError(f"{self.path}{line}: {shortened('.'.join(keys))} = {_shown(value)}: {wanted}")


def read_hjson(path: Path) -> HjsonFile:
    """Read an object; ConfigError names file and line of what cannot be read."""
    try:
        content = read_at_most(path, MOST_BYTES)
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; expected JSON") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; expected an object of settings") from error
    reader = _Reader(path, text)
    table = reader.file()
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {_shown(table)}: expected an object")
    return HjsonFile(path, table, reader.lines)


class _Reader:
    """Walks the text once; at: the next character to read."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text, self.at = path, text, 0
        self.lines: dict[KeyPath, int] = {}
        self._line_ends = [end.start() for end in re.finditer("\n", text)]
        self._swallowed = -1  # where a text without quotes begins that holds a bracket

    def file(self) -> object:
        """The value of the file, which may be an object without its braces."""
        bare = self._peek() not in ("{", "[")
        value = self._members((), "") if bare else self._value(())
        if self._peek():
            raise self._error(self.at, f"{self._seen()}: expected the end of the file")
        return value

    def _value(self, keys: KeyPath) -> object:
        mark = self._peek()
        if len(keys) > MOST_DEPTH:
            raise self._error(self.at, "nested too deeply; expected an object of settings")
        if mark == "{":
            self.at += 1
            return self._members(keys, "}")
        if mark == "[":
            self.at += 1
            return self._items(keys)
        if self.text.startswith("'''", self.at):
            return self._long_text()
        return self._quoted() if mark in _TEXT else self._word()

    def _members(self, keys: KeyPath, end: str) -> dict[str, Any]:
        """The keys and values of an object up to `end`."""
        table = {}
        while self._before(end):
            line = self._line(self.at)
            name = self._key()
            path = (*keys, name)
            if path in self.lines:
                raise ConfigError(
                    f"{self.path}:{line}: {shortened('.'.join(path))}: a second time, "
                    f"first on line {self.lines[path]}; expected each key once"
                )
            self.lines[path] = line
            if self._peek() != ":":
                raise self._error(self.at, f"{self._seen()}: expected a colon after the key {quoted(name)}")
            self.at += 1
            table[name] = self._value(path)
            if self._peek() == ",":
                self.at += 1
        return table

    def _items(self, keys: KeyPath) -> list[Any]:
        items: list[Any] = []
        while self._before("]"):
            items.append(self._value((*keys, f"[{len(items)}]")))
            if self._peek() == ",":
                self.at += 1
        return items

    def _before(self, end: str) -> bool:
        """True before a further member; False when `end` has been read."""
        mark = self._peek()
        if mark == "" != end:
            if self._swallowed >= 0:
                text = quoted(self.text[self._swallowed :].partition("\n")[0].strip())
                message = f"{text}: a text without quotes lasts to the end of its line; expected JSON"
                raise self._error(self._swallowed, message)
            raise self._error(self.at, f"the end of the file: expected {end}")
        self.at += mark == end != ""
        return mark != end

    def _key(self) -> str:
        if self.text[self.at] in _TEXT:
            return self._quoted()
        found = _KEY.match(self.text, self.at)
        if found is None:
            raise self._error(self.at, f"{self._seen()}: expected a key and a colon; expected JSON")
        self.at = found.end()
        return found[1]

    def _quoted(self) -> str:
        found = _TEXT[self.text[self.at]].match(self.text, self.at)
        if found is None:
            raise self._error(
                self.at, f"{self._seen()}: expected a text that ends on its line; expected JSON"
            )
        self.at = found.end()
        text = _ESCAPE.sub(_unescaped, found[1])
        # Two escapes make one character beyond \uffff; half of one is none.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _long_text(self) -> str:
        """A text of several lines, each as far to the right as its quotes."""
        begin = self.at + 3
        end = self.text.find("'''", begin)
        if end < 0:
            raise self._error(self.at, "''': expected another ''' at the end of the text")
        indent = self.at - self.text.rfind("\n", 0, self.at) - 1
        self.at = end + 3
        first, *others = self.text[begin:end].split("\n")
        first = first.lstrip(" \t")
        lines = [re.sub(rf"^[ \t]{{0,{indent}}}", "", line) for line in others]
        return "\n".join(lines if not first and others else [first, *lines]).removesuffix("\n")

    def _word(self) -> object:
        if found := _WORD.match(self.text, self.at):
            begin, self.at = self.at, found.end()
            return _NAMES[found["name"]] if found["name"] else self._number(begin, found)
        begin = self.at
        if self.text[begin : begin + 1] in "{}[],:":
            raise self._error(begin, f"{self._seen()}: expected a value; expected JSON")
        self.at = (self.text + "\n").index("\n", begin)
        text = self.text[begin : self.at].strip()
        if self._swallowed < 0 and re.search(r"[}\]]", text):
            self._swallowed = begin
        return text

    def _number(self, begin: int, found: re.Match[str]) -> int | float:
        literal = found["number"]
        try:
            value = float(literal) if found["part"] or found["power"] else int(literal)
        except ValueError:  # of more digits than Python reads
            raise self._error(begin, "holds a number of thousands of digits; expected JSON") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(begin, f"{shortened(literal)}: expected a finite number")
        return value

    def _peek(self) -> str:
        """The next character that is neither space nor comment, "" at the end."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def _line(self, place: int) -> int:
        return bisect_left(self._line_ends, place) + 1

    def _seen(self) -> str:
        return quoted(self.text[self.at :].partition("\n")[0]) if self.at < len(self.text) else "the end"

    def _error(self, place: int, message: str) -> ConfigError:
        return ConfigError(f"{self.path}:{self._line(place)}: {message}")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def _shown(value: object) -> str:
    """`value` as JSON writes it, in the length of a line."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
