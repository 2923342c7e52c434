"""Settings chosen for a game of OpenSpiel or a Python file, from its board and what random games are like.

A flag or a TOML file of the user's beats them, and they beat the preset own_game. They aim at two CPU cores:
a first training step within about a minute, and generations of some ten seconds to a minute.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from alphazero.base.text import counted
from alphazero.games.core_types import core_types
from alphazero.games.outside.use import rules_of, use_rules
from alphazero.settings.load import SECTIONS, Config
from alphazero.settings.self_play import MOST_GAMES, MOST_PLIES

OUTSIDE_PRESET = "own_game"  # has all that is not chosen

# Lines of play of a game for which the smallest network is enough, as a power of ten: tic-tac-toe has 6,
# dots and boxes of 2x2 boxes 10, hex 4x4 12.
SMALL_GAME = 11.0
SMALL, USUAL, LARGE = (2, 32), (4, 64), (6, 64)  # blocks, filters
# Two 3x3 convolutions of a block see 2 squares further: 4 blocks see all of an 8x8 board from any square.
USUAL_SQUARES = 64
# Units for each number of what is no board: all units see all numbers, so that more numbers need more.
UNITS_PER_NUMBER = 6
MOST_FILTERS = 256

# Gumbel's search halves at most 16 candidates (docs/search.md): with 32 simulations each of them is visited
# once or twice before the halving, and a game with more moves needs more visits to tell them apart.
SIMULATIONS = ((10, 32), (40, 48))  # up to so many legal moves on average
SIMULATIONS_FOR_MANY = 64

# A sixth of a game at random leads to positions that the network would not reach, and leaves most of the
# result to it. A small game can be learned whole, late positions that good play never reaches included: with
# 6 of the 8 plies of tic-tac-toe at random, two minutes on two cores leave no error in any position; with 4,
# two minutes on one core leave 46 in 3,191. In the shortest games nothing would be left, in long ones more
# than 8 spoil the position.
SHARE_OF_OPENING, SHARE_OF_SMALL = 1 / 6, 3 / 4
SHORTEST_WITH_OPENING, MOST_OPENING = 6, 8

# Of two cores: multiplications of the network a second, and simulations a second whatever the network.
WORK_PER_S = 40e9
SIMULATIONS_PER_S = 20_000
GENERATION_S = 20.0  # of play; training on it takes about half as long
# Fewer are a handful of games; more would leave a small game without new weights for long.
LEAST_POSITIONS, MOST_POSITIONS = 800, 6_400
# All lanes begin at once, so the first games end when all lanes have played one. Together they have the
# positions of a generation, as far as batches stay large enough to be worth their while.
LEAST_LANES, MOST_LANES = 16, 256
LEAST_BATCH, MOST_BATCH = 16, 64

# Positions of a game share its result: a window needs games. But the random games that a run begins with
# must leave it early in the run.
WINDOW_GAMES, WINDOW_GENERATIONS = 400, 10
LEAST_WINDOW, MOST_WINDOW = 5_000, 50_000

# Games end by their own limit. One that only a far one ends, or none, is drawn after this many plies, or
# after several times as many as a random game has.
USUAL_LIMIT, LENGTHS_TO_LIMIT = 512, 4


# Counts and no seconds, so that every rank of every host measures the same. Half a second at 50 us a ply.
RANDOM_GAMES = 100
RANDOM_PLIES = 10_000  # of all games together


@dataclass(frozen=True)
class Measured:
    """What random games are like. planes, height, width: of an observation, one square where it is no board.

    limit: plies that no game exceeds, as the rules have it. longest: the longest of the random games.
    """

    name: str
    planes: int
    height: int
    width: int
    limit: int
    mean_plies: float
    longest: int
    mean_legal: float

    @property
    def squares(self) -> int:
        return self.height * self.width


@cache
def measure(name: str) -> Measured:
    """Play random games of a recorded name through the core, which guards against rules that fail or loop.

    Raises ConfigError or RulesError. A game that the count of plies cuts short has no length, unless it is
    the first.
    """
    rules = rules_of(name)
    use_rules(name)
    make_line, draw = core_types(name).line, random.Random(1)
    lengths: list[int] = []
    plies = num_legal = 0
    while len(lengths) < RANDOM_GAMES and plies < RANDOM_PLIES:
        line, length = make_line(), 0
        while not (is_over := line.outcome().over) and length < rules.max_plies and plies < RANDOM_PLIES:
            legal = sorted(line.legal())
            num_legal += len(legal)
            line.push(draw.choice(legal))
            length += 1
            plies += 1
        if is_over or length == rules.max_plies or not lengths:
            lengths.append(length)
        if not length:
            break
    planes, height, width = rules.shape
    return Measured(
        name=name,
        planes=planes,
        height=height,
        width=width,
        limit=rules.max_plies,
        mean_plies=sum(lengths) / len(lengths),
        longest=max(lengths),
        mean_legal=num_legal / max(1, plies),
    )


def _is_small(measured: Measured) -> bool:
    return measured.mean_plies * math.log10(max(1.0, measured.mean_legal)) < SMALL_GAME


def shape_of_network(measured: Measured) -> tuple[int, int]:
    """Blocks and filters."""
    is_small = _is_small(measured)
    if measured.squares > 1:
        return SMALL if is_small else USUAL if measured.squares <= USUAL_SQUARES else LARGE
    blocks, least = SMALL if is_small else USUAL
    return blocks, min(MOST_FILTERS, max(least, _power_of_two(UNITS_PER_NUMBER * measured.planes)))


def positions_of_generation(measured: Measured, shape: tuple[int, int], simulations: int) -> int:
    """As many as two cores play in GENERATION_S with a network of this shape, within bounds."""
    blocks, filters = shape
    kernel = 9 if measured.squares > 1 else 1
    work = 2 * blocks * filters**2 * kernel * measured.squares
    per_s = min(SIMULATIONS_PER_S, WORK_PER_S / work)
    return round(min(MOST_POSITIONS, max(LEAST_POSITIONS, GENERATION_S * per_s / simulations)))


def chosen(
    measured: Measured, batch_size: int, reuse: float, given: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """The values by the name of their field.

    batch_size, reuse: of training, as they are settled. given: values of fields that are not chosen, which
    the others follow.
    """
    blocks, filters = shape_of_network(measured)
    shape = given.get("blocks", blocks), given.get("filters", filters)
    fitting = (number for legal, number in SIMULATIONS if measured.mean_legal <= legal)
    simulations = given.get("simulations", next(fitting, SIMULATIONS_FOR_MANY))
    plies = max(1.0, measured.mean_plies)
    positions = positions_of_generation(measured, shape, simulations)
    lanes = min(MOST_LANES, max(LEAST_LANES, _power_of_two(positions / plies)))
    share = SHARE_OF_SMALL if _is_small(measured) else SHARE_OF_OPENING
    opening = math.ceil(plies * share) if plies >= SHORTEST_WITH_OPENING else 0
    window = round(min(WINDOW_GAMES * plies, WINDOW_GENERATIONS * positions) / 1000) * 1000
    limit = min(measured.limit, max(USUAL_LIMIT, LENGTHS_TO_LIMIT * measured.longest), MOST_PLIES)
    return {
        "blocks": shape[0],
        "filters": shape[1],
        "simulations": simulations,
        "steps_per_generation": max(1, round(positions * reuse / batch_size)),
        "lanes": lanes,
        # Two batches: one is searched while the network evaluates the other.
        "evaluation_batch": min(MOST_BATCH, max(LEAST_BATCH, (given.get("lanes") or lanes) // 2)),
        "opening_plies": min(MOST_OPENING, opening),
        "max_plies": max(1, limit),
        "window_minimum": min(MOST_WINDOW, max(LEAST_WINDOW, window)),
    }


def with_chosen(config: Config, measured: Measured) -> Config:
    """`config` with the chosen values of all fields that no flag and no file of the user's gives."""
    left_alone = set(config.asked)
    if config.search.algorithm != "gumbel":
        left_alone.add("simulations")
    if config.training.init_weights:  # which bring their shape
        left_alone |= {"blocks", "filters"}
    sections = {name: getattr(config, name) for name in SECTIONS}
    values = {name: value for section in sections.values() for name, value in vars(section).items()}
    given = {name: values[name] for name in left_alone if name in values}
    of_game = chosen(measured, config.training.batch_size, config.self_play.reuse, given)
    taken = {name: value for name, value in of_game.items() if name not in left_alone}
    for name, section in sections.items():
        of_section = {key: value for key, value in taken.items() if hasattr(section, key)}
        sections[name] = dataclasses.replace(section, **of_section)
    return dataclasses.replace(config, **sections, set_by_game=frozenset(taken))


def lanes_over(config: Config, num_ranks: int) -> int:
    """Lanes for so many ranks: where they were chosen, as many for each two of them."""
    if "lanes" not in config.set_by_game:
        return config.self_play.lanes
    return min(MOST_GAMES, config.self_play.lanes * math.ceil(num_ranks / 2))


def line_of(config: Config, measured: Measured) -> str:
    """'chosen for GAME: 4x64, 48 simulations, ... (games of 21 plies, 15 moves a ply)'; "" for nothing."""
    network, own = config.network, config.self_play
    texts = {
        "blocks": f"{network.blocks}x{network.filters}",
        "simulations": f"{config.search.simulations} simulations",
        "opening_plies": f"openings of {counted(own.opening_plies, 'ply', 'plies')}",
        "steps_per_generation": f"{own.steps_per_generation} steps a generation",
        "window_minimum": f"window from {own.window_minimum:,} positions",
    }
    named = [text for name, text in texts.items() if name in config.set_by_game]
    if not named:
        return ""
    of_games = f"games of {measured.mean_plies:.0f} plies, {measured.mean_legal:.0f} moves a ply"
    return f"chosen for {measured.name}: {', '.join(named)} ({of_games})"


def _power_of_two(least: float) -> int:
    """The smallest one from `least` on."""
    return int(2 ** math.ceil(math.log2(max(1.0, least))))
