"""Games of OpenSpiel, an optional package: those for two players, without chance and hidden information."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.text import one_of, quoted, reason
from alphazero.games.outside.names import OPENSPIEL
from alphazero.games.outside.rules import MOST_ACTIONS, Explainer, Rules, check_sizes, shape_of_board

# Of its tree search: open_spiel/python/examples/mcts.py has this c; the tree is thrown away after each move.
UCT_C, MCTS_MIB = 2.0, 1024
# Of any number among a game's parameters. A square board of 65,536 actions, the most that a network here has,
# has sides of 256; and OpenSpiel multiplies two such numbers in 32 bits, so that no product can be checked.
MOST_PARAMETER = 10_000
_NUMBER = re.compile(r"\d+(?:\.\d*)?")
INSTALL = "pip install open_spiel"


def load(name: str) -> Rules:
    """The rules of openspiel:NAME(PARAMETERS). Raises ConfigError."""
    spiel = _pyspiel(name)
    game = _load(spiel, name)
    shape = tuple(game.observation_tensor_shape())
    if len(shape) == 3 and game.observation_tensor_layout() == spiel.TensorLayout.HWC:
        raise ConfigError(
            f"game {quoted(name)}: its planes are the last of three numbers; expected the first"
        )
    with _errors_of(name):
        start = game.new_initial_state()
    return Rules(
        name=recorded(name),
        explain=Explainer(name, ""),
        start=start,
        new_start=game.new_initial_state,
        clone=None,
        observed=shape,
        num_actions=game.num_distinct_actions(),
        max_plies=game.max_game_length(),
    )


def recorded(name: str) -> str:
    """The one name of a game: only parameters that differ from the defaults, in alphabetical order."""
    spiel = _pyspiel(name)
    game = _load(spiel, name)
    kind = game.get_type()
    usual, values = kind.parameter_specification, game.get_parameters()
    named = spiel.game_parameters_from_string(name.removeprefix(OPENSPIEL))  # others follow from these
    given = [key for key in sorted(values) if key in named and values[key] != usual.get(key)]
    text = ",".join(f"{key}={values[key]}" for key in given)
    return f"{OPENSPIEL}{kind.short_name}" + (f"({text})" if text else "")


def names_that_fit() -> list[str]:
    """The games of the installed OpenSpiel that can be learned with their default parameters."""
    spiel = _pyspiel(OPENSPIEL)
    with _errors_of(OPENSPIEL):  # some print warnings
        return [
            kind.short_name
            for kind in spiel.registered_games()
            if kind.default_loadable
            and not _why_not_kind(spiel, kind)
            and not _why_not(spiel, spiel.load_game(kind.short_name))
        ]


def mcts(name: str, simulations: int, seed: int) -> Callable[[Sequence[int]], int]:
    """OpenSpiel's own tree search with random playouts: the action that it chooses after some actions."""
    spiel = _pyspiel(name)
    game = _load(spiel, name)
    bot = spiel.MCTSBot(
        game, spiel.RandomRolloutEvaluator(1, seed), UCT_C, simulations, MCTS_MIB, True, seed, False
    )

    def choose(actions: Sequence[int]) -> int:
        state = game.new_initial_state()
        for action in actions:
            state.apply_action(action)
        return int(bot.step(state))

    return choose


def _why_not(spiel: ModuleType, game: Any) -> str:  # noqa: ANN401 - pyspiel has no types
    """Why a game cannot be learned here; "" for one that can."""
    if fault := _why_not_kind(spiel, game.get_type()):  # that of its parameters
        return fault
    if game.num_players() != 2:
        return f"it is for {game.num_players()} players; expected 2"
    if (game.min_utility(), game.max_utility()) != (-1.0, 1.0):
        return f"its results go from {game.min_utility():g} to {game.max_utility():g}; expected -1, 0 and 1"
    return ""


def _why_not_kind(spiel: ModuleType, kind: Any) -> str:  # noqa: ANN401
    of = spiel.GameType
    faults = {
        f"it is for {kind.min_num_players} players or more; expected 2": kind.min_num_players > 2,
        "it is for one player; expected 2": kind.max_num_players < 2,
        "its players move at the same time; expected turns": kind.dynamics != of.Dynamics.SEQUENTIAL,
        "chance plays in it; expected none": kind.chance_mode != of.ChanceMode.DETERMINISTIC,
        "it hides information; expected none": kind.information != of.Information.PERFECT_INFORMATION,
        "what one wins the other does not lose; expected that": kind.utility != of.Utility.ZERO_SUM,
        "it has no observation tensors to learn from": not kind.provides_observation_tensor,
    }
    return next((fault for fault, is_so in faults.items() if is_so), "")


def _pyspiel(name: str) -> ModuleType:
    try:
        import pyspiel
    except ImportError:
        raise ConfigError(f"game {quoted(name)}: OpenSpiel is not installed; expected {INSTALL}") from None
    module: ModuleType = pyspiel
    return module


def _load(spiel: ModuleType, name: str) -> Any:  # noqa: ANN401
    """The game, which fits. Raises ConfigError."""
    text = name.removeprefix(OPENSPIEL)
    short, _, parameters = text.partition("(")
    for number in _NUMBER.findall(parameters):
        if float(number) > MOST_PARAMETER:
            raise ConfigError(
                f"game {quoted(name)}: {quoted(number)}: expected numbers of at most {MOST_PARAMETER:,}"
            )
    kinds = {kind.short_name: kind for kind in spiel.registered_games()}
    if short not in kinds:
        expected = one_of(short, names_that_fit())
        raise ConfigError(f"game {quoted(name)}: OpenSpiel has no such game; {expected}")
    # First of all: a name may come from a file, and games that do not fit read files that parameters name.
    if fault := _why_not_kind(spiel, kinds[short]):
        raise ConfigError(f"game {quoted(name)}: {fault}")
    with _errors_of(name):
        given = spiel.game_parameters_from_string(text)
        if short == "gomoku" and int(given.get("size", 15)) ** int(given.get("dims", 2)) > MOST_ACTIONS:
            raise ValueError(f"more than {MOST_ACTIONS:,} squares")  # to load it takes memory for all of them
        game = spiel.load_game(text)
    if fault := _why_not(spiel, game):
        raise ConfigError(f"game {quoted(name)}: {fault}")
    # Before a state is made, which may take the memory of the machine.
    shape = shape_of_board(game.observation_tensor_shape())
    check_sizes(f"game {quoted(name)}", game.num_distinct_actions(), shape, game.max_game_length())
    return game


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """What OpenSpiel raises as ConfigError. It prints that as well: stderr is silent meanwhile."""
    stderr, silence = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        yield
    except Exception as error:  # SpielError, and what the games raise
        raise ConfigError(f"game {quoted(name)}: {reason(error)}") from None
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)
