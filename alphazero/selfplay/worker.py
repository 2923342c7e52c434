"""Plays this rank's lanes of self-play: endless rows of games, a stretch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alphazero import _core
from alphazero.errors import DataError
from alphazero.games.registry import get_game, history_fill
from alphazero.search.batched import PoolEvaluator, num_trees, run_pool


def new_lane(number: int) -> _core.SelfPlayGame:
    """A lane whose first game has not begun."""
    game = _core.SelfPlayGame()
    game.lane = number
    return game


def check_lanes(game_name: str, lanes: Sequence[_core.SelfPlayGame], what: str) -> None:
    """Raises DataError, which begins with `what`, unless every lane's game can go on."""
    pool = get_game(game_name).core.self_play(_core.SelfPlaySettings(), 1, 1, 1, history_fill("fen_only"))
    for lane in lanes:
        try:
            pool.add_lane(lane)
        except _core.GameError as error:
            raise DataError(f"{what}: {error}") from error


def lanes_of(rank: int, world_size: int, num_lanes: int) -> range:
    """The lanes of a rank: lane i is rank i mod N's, so that a remainder begins at rank 0."""
    return range(rank, num_lanes, world_size)


@dataclass(frozen=True)
class Played:
    """What a stretch of play gave: games that ended, by lane and number, and every lane's game under way.

    is_complete: every lane made its moves; else it was broken off, and the games under way stand somewhere
    between. Counts are this rank's: searched moves, simulations, positions that the network evaluated, those
    whose evaluation the cache knew, and the batches that the network got.
    """

    is_complete: bool
    finished: list[_core.SelfPlayGame]
    under_way: list[_core.SelfPlayGame]
    moves: int
    simulations: int
    evaluations: int
    cached: int
    batches: int


def new_cache(mebibytes: int) -> _core.EvaluationCache | None:
    """A cache of evaluations of this size, for one network's play; None where there is to be none."""
    return _core.EvaluationCache(mebibytes << 20) if mebibytes else None


def play(
    game_name: str,
    settings: _core.SelfPlaySettings,
    lanes: Sequence[_core.SelfPlayGame],
    moves: int,
    evaluator: PoolEvaluator,
    *,
    cache: _core.EvaluationCache | None = None,
    fill: str = "fen_only",
    num_threads: int = 1,
    on_progress: Callable[[int, int], bool] = lambda moves, games: True,
) -> Played:
    """Let every lane play `moves` searched moves; its games go on from where they stand.

    A game is a function of the settings, its lane and number, and the evaluator's weights: what else is
    played beside it, with how many threads, and what the cache knows, changes nothing. cache: evaluations
    by the same weights and with the same fill, which are not asked for again; new ones are added. on_progress
    is told the moves and games so far after each batch; where it says False play is broken off. Raises
    GameError for a lane whose moves are not legal or whose game is over, ConfigError for more leaves of a
    tree than the evaluator takes.
    """
    groups = evaluator.batches_ahead
    slots = max(1, min(num_trees(settings.search, evaluator.batch_size), -(-len(lanes) // groups)))
    pool = get_game(game_name).core.self_play(settings, slots, groups, num_threads, history_fill(fill), cache)
    for lane in lanes:
        pool.add_lane(lane)
    pool.begin(moves)
    batches = 0

    def after_batch(size: int) -> bool:
        nonlocal batches
        batches += 1
        return on_progress(pool.moves, pool.games)

    is_complete = run_pool(pool, evaluator, after_batch)
    return Played(
        is_complete,
        pool.take_finished(),
        pool.games_under_way(),
        pool.moves,
        pool.simulations,
        pool.evaluations,
        pool.cached,
        batches,
    )
