"""The game outside the core that this process plays: found by its name, and given to the core."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from alphazero.base.errors import AlphaZeroError, ConfigError, RulesError
from alphazero.games.outside import openspiel, python_file
from alphazero.games.outside.names import class_of, named_class
from alphazero.games.outside.rules import Explainer, Rules, as_floats, watch


@cache
def rules_of(name: str) -> Rules:
    """The rules of a recorded name. Raises ConfigError, and RulesError where they fail at once."""
    asked = class_of(name)
    return openspiel.load(name) if asked is None else python_file.load(named_class(name))


def explainer_of(name: str) -> Explainer:
    """What makes one line of an exception of these rules."""
    file = "" if class_of(name) is None else named_class(name).file
    return Explainer(rules_of(name).place, file)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """What the rules of this game raise within the block becomes a RulesError."""
    try:
        yield
    except AlphaZeroError:
        raise
    except Exception as error:
        raise RulesError(explainer_of(name)(error)) from error


def use_rules(name: str) -> None:
    """Make the core's Foreign this game. Raises ConfigError while positions of another one are in use."""
    import alphazero._core as _core

    if name == _core.ForeignLine.NAME:
        return
    rules = rules_of(name)
    planes, height, width = rules.shape
    watch()
    gc.collect()  # positions of another game that nothing but a cycle of objects holds
    try:
        _core.use_rules(
            name,
            height=height,
            width=width,
            num_planes=planes,
            num_moves=rules.num_actions,
            max_plies=rules.max_plies,
            start=rules.start,
            clone=rules.clone,
            explain=explainer_of(name),
            array=as_floats,
        )
    except _core.GameError as error:
        raise ConfigError(f"game {error}") from None
