"""The settings of self-play and of its tree search."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from alphazero.base.place_name import read_place
from alphazero.base.section import Scope, setting, share, step_count

# Bounds: far above every sensible value, so that a slip of the keyboard is one line at once.
MOST_UNITS = 65_536  # positions per evaluation, moves of a position
MOST_SIMULATIONS = 1_000_000
MOST_BUDGET = 10**9  # simulations of a round
MOST_GAMES = 2**20
MOST_PLIES = 65_535  # of a game
MOST_MEBIBYTES = 2**20


@dataclass(frozen=True)
class SearchConfig:
    """The tree search of self-play; docs/search.md has the rules."""

    algorithm: str = setting(
        "puct", "AlphaZero's search, or Gumbel AlphaZero's for few simulations", choices=("puct", "gumbel")
    )
    simulations: int = setting(
        800, "simulations per move", minimum=1, maximum=MOST_SIMULATIONS, is_common=True
    )
    leaves: int = setting(
        1,
        "puct: leaves per tree and round, with virtual loss; more fill batches from fewer trees",
        minimum=1,
        maximum=MOST_UNITS,
    )
    c_init: float = setting(
        2.5,
        "puct: weight of exploration for values from -1 to 1 (AlphaZero's 1.25 is for values from 0 to 1)",
        minimum=0,
    )
    fpu_reduction: float = setting(
        0.2,
        "puct: first-play urgency (the value of a move not yet visited) below the parent's value",
        minimum=0,
    )
    noise_epsilon: float = share(0.25, "puct: share of Dirichlet noise in the root's priors")
    dirichlet_alpha: float = setting(0.3, "puct: shape of that noise", minimum=1e-6)
    forced_playouts: float = setting(0.0, "puct: KataGo's k of forced playouts; 0 turns them off", minimum=0)


@dataclass(frozen=True)
class SelfPlayConfig:
    """Games of the network against itself, and how training goes with them.

    Training draws from the window: the newest positions, more of them as the run continues.
    """

    mode: str = setting(
        "supervised",
        "learn from given games (supervised), from self-play, or from both (mixed)",
        choices=("supervised", "selfplay", "mixed"),
        is_common=True,
        of_training=True,
    )
    generations: int = step_count(
        100,
        "generations of games; each is played with the newest weights",
        is_common=True,
        of_training=True,
        minimum=1,
    )
    steps_per_generation: int = step_count(
        100, "training steps after each generation", of_training=True, minimum=1
    )
    pretraining_steps: int = step_count(
        0, "mixed: steps on the given games before the first generation", of_training=True
    )
    historical_share: float = share(
        0.25, "mixed: share of the given games in each batch afterwards", of_training=True
    )
    reuse: float = setting(
        4.0,
        "how often a new position is trained on at most, on average",
        minimum=0.01,
        maximum=1e6,
        of_training=True,
    )
    lanes: int = setting(
        0,
        "games in progress at a time, over all ranks; auto (0) takes at the start of the run two batches for "
        "each rank",
        minimum=0,
        maximum=MOST_GAMES,
        words={"auto": 0},
        is_common=True,
    )
    simulations_per_round: int = setting(
        0,
        "simulations by which each game advances at a time, and on to the end of the move; a generation "
        "has as many such rounds as reuse asks for; auto (0) takes at the start of the run those of 24 "
        "full searches, or fewer where a generation is short",
        minimum=0,
        maximum=MOST_BUDGET,
        words={"auto": 0},
        of_training=True,
    )
    evaluation_batch: int = setting(
        64, "positions per evaluation of the network in self-play", minimum=1, maximum=MOST_UNITS
    )
    evaluation_precision: str = setting(
        "auto",
        "arithmetic of the network in self-play; training takes that of training; auto takes int8 on a CPU, "
        "elsewhere that of training",
        choices=("auto", "training", "fp32", "bf16", "fp16", "int8"),
        of_training=True,
    )
    evaluation_cache: int = setting(
        256,
        "MiB per rank to remember evaluations in, so that a position seldom needs a second one from the same "
        "weights; the games stay the same, 0 turns it off",
        minimum=0,
        maximum=MOST_MEBIBYTES,
    )
    full_search_share: float = setting(
        1.0,
        "share of moves with a full search; the others get a quick one and are not trained on",
        minimum=0.01,
        maximum=1,
    )
    fast_simulations: int = setting(100, "simulations of a quick search", minimum=1, maximum=MOST_SIMULATIONS)
    temperature: float = setting(
        1.0, "puct: temperature at which the first moves are drawn; 0 plays the best", minimum=0
    )
    temperature_plies: int = setting(
        30, "puct: plies at the start of a game drawn at this temperature", minimum=0, maximum=MOST_PLIES
    )
    opening_plies: int = setting(
        0, "most random moves that a game begins with", minimum=0, maximum=MOST_PLIES
    )
    resign_threshold: float = share(0.0, "a side resigns when its value is below minus this; 0 never resigns")
    resign_playthrough: float = share(
        0.1, "share of games played to the end without resignation, to measure wrong resignations"
    )
    syzygy: str = setting(
        "",
        "chess: directories of Syzygy tablebases; a game ends with their result at the first position that "
        "they know (docs/play.md)",
        metavar="DIR",
        is_place=True,
    )
    max_plies: int = setting(512, "plies after which a game is drawn", minimum=1, maximum=MOST_PLIES)
    gate_games: int = setting(
        0,
        "games of the new weights against the playing ones before they replace them; an even number, "
        "0 replaces them always",
        minimum=0,
        maximum=MOST_GAMES,
        of_training=True,
    )
    gate_score: float = share(
        0.55, "share of the points that the new weights need in these games", of_training=True
    )
    self_play_from: str = setting(
        "here",
        "who plays the games: the ranks (here), actors that meet them in a place (elsewhere), or both "
        "(docs/actors.md)",
        choices=("here", "elsewhere", "both"),
        of_training=True,
    )
    place: str = setting(
        "",
        "directory or URL where actors bring their games (default: the directory `place` of the run)",
        reads=lambda source, text: read_place(source, text) if text else text,
        metavar="PLACE",
        scope=Scope.START,
        is_place=True,
        of_training=True,
    )
    replay: str = setting(
        "",
        "train on the games of this run, generation by generation, and play none",
        metavar="RUN",
        scope=Scope.START,
        is_place=True,
        of_training=True,
    )
    window_minimum: int = setting(
        10_000, "positions of the smallest training window", minimum=1, maximum=10**12, of_training=True
    )


# Two batches for each rank: one is searched while the network evaluates the other, or, on the CPU, lanes
# take turns and stay at about the same place of their rounds. More lanes would hold more games that cannot
# be learned from before they end (docs/performance.md).
BATCHES_PER_RANK = 2
# Lanes stop with a move, up to a full search apart: the longer a round, the fuller its batches
# (docs/decisions.md).
SEARCHES_PER_ROUND = 24


def settled(
    self_play: SelfPlayConfig, search: SearchConfig, batch_size: int, num_ranks: int
) -> SelfPlayConfig:
    """The settings of a run that begins on so many ranks: lanes and a budget of simulations in place of auto.

    batch_size: of training. Later starts of the run keep them, whatever their number of ranks.
    """
    leaves = search.leaves if search.algorithm == "puct" else 1
    trees = max(1, self_play.evaluation_batch // leaves)
    lanes = self_play.lanes or min(MOST_GAMES, BATCHES_PER_RANK * trees * num_ranks)
    share = self_play.full_search_share
    positions = self_play.steps_per_generation * batch_size / self_play.reuse
    per_position = search.simulations + (1 - share) / share * self_play.fast_simulations
    # A round longer than a generation would play more games than --reuse asks for.
    of_generation = math.ceil(positions * per_position / lanes)
    budget = min(SEARCHES_PER_ROUND * search.simulations, max(search.simulations, of_generation))
    return replace(self_play, lanes=lanes, simulations_per_round=self_play.simulations_per_round or budget)
