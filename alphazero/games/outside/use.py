"""The game outside the core that this process plays: found by its name, and given to the core."""

from __future__ import annotations

import gc
from functools import cache

from alphazero.base.errors import ConfigError
from alphazero.games.outside import openspiel, python_file
from alphazero.games.outside.names import class_of, named_class
from alphazero.games.outside.rules import Rules, as_floats, watch


@cache
def rules_of(name: str) -> Rules:
    """The rules of a recorded name. Raises ConfigError, and RulesError where they fail at once."""
    asked = class_of(name)
    return openspiel.load(name) if asked is None else python_file.load(named_class(name))


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
            explain=rules.explain,
            array=as_floats,
        )
    except _core.GameError as error:
        raise ConfigError(f"game {error}") from None
