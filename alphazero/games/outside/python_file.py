"""Games that are classes in a Python file of the user's."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import math
import operator
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from alphazero.base.errors import ConfigError, RulesError
from alphazero.base.text import quoted
from alphazero.games.outside.names import DIGEST_DIGITS, ClassName
from alphazero.games.outside.rules import (
    METHODS,
    MOST_ACTIONS,
    MOST_PLIES,
    Explainer,
    Rules,
    answered,
    check_sizes,
    shape_of_board,
    watched,
)

USUAL_LENGTH = 10_000  # plies, where the class does not say
IMPORTS_S = 240.0  # more than for an answer: libraries that a file imports may come from a slow disk


def load(name: ClassName) -> Rules:
    """Run the file and make a state at the start of the game.

    Raises ConfigError for a file or class that is none, RulesError for one that fails.
    """
    path = Path(name.file)
    explain = Explainer(str(path), str(path))
    try:
        with watched():
            return _rules(path, name)
    except ConfigError:
        raise
    except Exception as error:
        raise RulesError(explain(error)) from error


def _rules(path: Path, name: ClassName) -> Rules:
    kind = _class_in(path, name)
    start = kind(**dict(name.parameters))
    missing = [
        method for method in METHODS if method != "clone" and not callable(getattr(start, method, None))
    ]
    if missing:
        raise ConfigError(
            f"{path}: class {name.of} has no method {missing[0]}; expected {', '.join(METHODS[:-1])}, "
            "and clone or a state that copy.deepcopy copies"
        )
    if start.is_terminal():
        raise ConfigError(f"{path}: class {name.of}: is_terminal() is true at the start; expected a game")
    rules = Rules(
        name=name.recorded,
        place=f"{path}:{name.of}",
        start=start,
        clone=None if callable(getattr(start, "clone", None)) else copy.deepcopy,
        shape=_shape(start),
        num_actions=_number(start, "num_distinct_actions", path, name.of, None, MOST_ACTIONS),
        max_plies=_number(start, "max_game_length", path, name.of, USUAL_LENGTH, MOST_PLIES),
    )
    check_sizes(rules.place, rules.num_actions, rules.shape, rules.max_plies)
    return rules


@cache
def run_file(path: Path, digest: str) -> ModuleType:
    """What a file that the user named defines: it is run once in a process. Raises whatever it raises."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS] != digest:
        raise ConfigError(f"{path}: it was changed while this program ran; expected the file as it was named")
    module_name = f"alphazero_game_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickle look there
    answered(IMPORTS_S)
    exec(compile(content, str(path), "exec"), module.__dict__)
    answered()
    return module


def _class_in(path: Path, name: ClassName) -> type[Any]:
    module = run_file(path, name.digest)
    kind = getattr(module, name.of, None)
    if not isinstance(kind, type):
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        raise ConfigError(
            f"{path}: no class {quoted(name.of)}; expected one of {', '.join(classes) or 'its classes'}"
        )
    return kind


def _shape(start: Any) -> tuple[int, int, int]:  # noqa: ANN401
    """Of an observation: as the class says, else as the first one is."""
    import numpy as np

    said = getattr(start, "observation_tensor_shape", None)
    said = said() if callable(said) else said
    with np.errstate(over="ignore"):  # what is infinite is refused later, with its place
        seen = np.asarray(start.observation_tensor(start.current_player()), dtype=np.float32)
    shape: Sequence[int] = tuple(int(length) for length in (seen.shape if said is None else said))
    if math.prod(shape) != seen.size:
        raise ValueError(
            f"observation_tensor has {seen.size} numbers; expected {shape}, as observation_tensor_shape says"
        )
    return shape_of_board(shape)


def _number(start: Any, key: str, path: Path, of: str, usual: int | None, most: int) -> int:  # noqa: ANN401
    value = getattr(start, key, usual)
    value = value() if callable(value) else value
    if value is None:
        raise ConfigError(f"{path}: class {of} has no {key}; expected a number: all actions are below it")
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if not 1 <= number <= most:
        raise ConfigError(
            f"{path}: class {of}: {key} is {quoted(value)}; expected a whole number, 1 to {most:,}"
        )
    return number
