"""Frozen dataclasses as JSON and back: what processes write for each other, checked against its types."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
import typing
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from alphazero.base.text import quoted

T = TypeVar("T")
_hints = cache(typing.get_type_hints)


def to_json(record: Any) -> str:  # noqa: ANN401 - any dataclass
    """A record as one line of JSON."""
    return json.dumps(dataclasses.asdict(record), default=str)


def from_json(kind: type[T], text: str | bytes) -> T:
    """The record of this kind in a text of `to_json`; ValueError for any other text."""
    try:
        return from_table(kind, json.loads(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def from_output(kind: type[T], mark: str, output: str) -> T | None:
    """The record in the last line of a program's output that begins with `mark`; None where there is none.

    A login script of the host may print other things before it.
    """
    lines = [line for line in output.splitlines() if line.startswith(mark)]
    try:
        return from_json(kind, lines[-1][len(mark) :])
    except (IndexError, ValueError):
        return None


def from_table(kind: type[T], table: object) -> T:
    """The record of this kind in a table of JSON; ValueError where the table holds something else."""
    record: T = _value(kind, table)
    return record


def _value(kind: Any, value: Any) -> Any:  # noqa: ANN401 - of any type
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind, value)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (argument for argument in arguments if argument is not type(None))
        return _value(kind, value)
    if origin is tuple and isinstance(value, list):
        if arguments[-1] is Ellipsis:
            return tuple(_value(arguments[0], element) for element in value)
        return tuple(_value(argument, item) for argument, item in zip(arguments, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {name: _named(name, arguments[1], entry) for name, entry in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum | Path) and isinstance(value, str):
        return kind(value)
    if kind is float and type(value) is int:
        with contextlib.suppress(OverflowError):
            return float(value)
    if kind is not Any and type(value) is not kind:
        raise ValueError(f"{quoted(value)}: expected {kind.__name__}")
    return value


def _named(name: str, kind: Any, value: Any) -> Any:  # noqa: ANN401 - of any type
    try:
        return _value(kind, value)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def _record(kind: Any, table: object) -> Any:  # noqa: ANN401 - a dataclass
    hints = _hints(kind)
    if not isinstance(table, dict) or not table.keys() <= hints.keys():
        raise ValueError(f"{quoted(table)}: expected the fields of {kind.__name__}")
    try:
        return kind(**{name: _named(name, hints[name], value) for name, value in table.items()})
    except TypeError as error:  # a field is missing
        raise ValueError(f"{kind.__name__}: {error}") from error
