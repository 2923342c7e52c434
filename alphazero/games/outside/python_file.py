"""Games that are classes in a Python file of the user's."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import math
import operator
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.log import program_line
from alphazero.base.text import quoted, reason
from alphazero.games.outside.names import DIGEST_DIGITS, ClassName
from alphazero.games.outside.rules import (
    METHODS,
    MOST_ACTIONS,
    MOST_PLIES,
    AnswerError,
    Explainer,
    Rules,
    answered,
    as_floats,
    check_sizes,
    watched,
)

USUAL_LENGTH = 10_000  # plies, where the class does not say
MOST_PRINTS = 20  # of a file of rules in a process
IMPORTS_S = 240.0  # more than for an answer: libraries that a file imports may come from a slow disk


def load(name: ClassName) -> Rules:
    """Run the file and make a state at the start of the game.

    Raises ConfigError for a file or class that is none, RulesError for one that fails.
    """
    path, label = name.file, f"{name.file}: class {name.of}"
    with Explainer(path, path).faults(), watched():
        new_start = defined(name)
        start = new_start()
        for method in METHODS:
            if method != "clone" and not callable(getattr(start, method, None)):
                raise ConfigError(
                    f"{label} has no method {method}; expected {', '.join(METHODS[:-1])}, and clone or a "
                    "state that copy.deepcopy copies"
                )
        if start.is_terminal():
            raise ConfigError(f"{label}: is_terminal() is true at the start; expected a game")
        rules = Rules(
            name=name.recorded,
            explain=Explainer(f"{path}:{name.of}", path),
            start=start,
            new_start=new_start,
            clone=None if callable(getattr(start, "clone", None)) else _deep_copy,
            observed=_shape(start),
            num_actions=_number(start, "num_distinct_actions", label, None, MOST_ACTIONS),
            max_plies=_number(start, "max_game_length", label, USUAL_LENGTH, MOST_PLIES),
        )
        check_sizes(rules.explain.name, rules.num_actions, rules.shape, rules.max_plies)
        return rules


def defined(name: ClassName) -> partial[Any]:
    """The class or function that a name means, with its parameters. Raises whatever its file raises."""
    module = run_file(Path(name.file), name.digest)
    member = getattr(module, name.of, None)
    if not callable(member):
        own = [
            key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        ]
        expected = f"expected one of {', '.join(own) or 'its classes'}"
        raise ConfigError(f"{name.file}: no class or function {quoted(name.of)}; {expected}")
    return partial(member, **dict(name.parameters))


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
    module.__dict__["print"] = _few_prints(path)
    answered(IMPORTS_S)
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except ModuleNotFoundError as error:
        beside = path.parent / f"{(error.name or '').partition('.')[0]}.py"
        if not beside.is_file() and not beside.with_suffix("").is_dir():
            raise
        what = f"{Explainer(str(path), str(path))(error)}: {beside.name} beside it is not imported, as only"
        raise ConfigError(
            f"{what} {path.name} is recorded; expected one file, or an installed package"
        ) from None
    answered()
    return module


def _few_prints(path: Path) -> Callable[..., None]:
    """`print` for a file of rules: to stderr, MOST_PRINTS lines of it, so that no log fills the disk."""
    count = 0

    def limited(*values: object, **how: Any) -> None:  # noqa: ANN401
        nonlocal count
        if how.get("file") not in (None, sys.stdout, sys.stderr):
            print(*values, **how)
            return
        count += 1
        if count <= MOST_PRINTS:
            print(*values, **{**how, "file": sys.stderr})
        if count == MOST_PRINTS:
            line = f"{path}: print() was called {MOST_PRINTS} times; what it prints from here on is left out"
            print(program_line(line), file=sys.stderr)

    return limited


def _shape(start: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Of an observation: as the class says, else as the first one is."""
    import numpy as np

    said = getattr(start, "observation_tensor_shape", None)
    said = said() if callable(said) else said
    seen = start.observation_tensor(start.current_player())
    size = as_floats(seen).size
    if said is None:
        return np.shape(seen)
    shape = tuple(int(length) for length in said)
    if math.prod(shape) != size:
        raise AnswerError(
            f"observation_tensor() has {size} numbers; expected {shape}, as observation_tensor_shape says"
        )
    return shape


def _deep_copy(state: Any) -> Any:  # noqa: ANN401
    try:
        return copy.deepcopy(state)
    except Exception as error:
        what = f"no clone(), and copy.deepcopy fails: {reason(error)}"
        raise AnswerError(f"{what}; expected a method clone()") from error


def _number(start: Any, key: str, label: str, usual: int | None, most: int) -> int:  # noqa: ANN401
    value: Any = getattr(start, key, usual)
    value = value() if callable(value) else value
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if not 1 <= number <= most:
        raise ConfigError(f"{label}: {key} is {quoted(value)}; expected a whole number, 1 to {most:,}")
    return number
