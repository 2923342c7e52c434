"""Self-play: the lanes of a rank played for a budget of moves, figures of the games, recording to a store.

A lane is an endless sequence of games.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError, RulesError
from alphazero.games.lines import first_player_moves
from alphazero.games.registry import CHESS, get_game, history_fill
from alphazero.games.tablebases import Tablebases
from alphazero.play import lanes as games
from alphazero.search.batched import PoolEvaluator, num_trees, run_pool
from alphazero.settings.self_play import SelfPlayConfig


def new_lane(number: int) -> _core.SelfPlayGame:
    """A lane whose first game has not begun."""
    game = _core.SelfPlayGame()
    game.lane = number
    return game


def check_lanes(game_name: str, lanes: Sequence[_core.SelfPlayGame], what: str) -> None:
    """Raises DataError, which begins with `what`, unless every lane's game can continue."""
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
    """The result of `play`: the games that ended, by lane and number, and every lane's game in progress.

    is_complete: every lane made its moves; else play was interrupted. Counts are this rank's: searched moves,
    simulations, positions that the network evaluated, those found in the cache, and batches of the network.
    """

    is_complete: bool
    finished: list[_core.SelfPlayGame]
    under_way: list[_core.SelfPlayGame]
    moves: int
    simulations: int
    evaluations: int
    cached: int
    batches: int

    def then(self, later: Played) -> Played:
        """This and what was played after it, as one."""
        added = ("finished", "moves", "simulations", "evaluations", "cached", "batches")
        sums = {name: getattr(self, name) + getattr(later, name) for name in added}
        return replace(later, is_complete=self.is_complete and later.is_complete, **sums)


def tables_of(own: SelfPlayConfig, game: str) -> Tablebases | None:
    """The tables that end games; None without. Raises ConfigError and DataError."""
    if not own.syzygy:
        return None
    if game != CHESS:
        raise ConfigError(f"--syzygy {own.syzygy}: tablebases are of chess; this is {game}")
    return Tablebases(own.syzygy, "--syzygy")


def new_cache(mebibytes: int) -> _core.EvaluationCache | None:
    """A cache of evaluations by one network; None for 0. Raises ConfigError where memory is short."""
    try:
        return _core.EvaluationCache(mebibytes << 20) if mebibytes else None
    except MemoryError:
        message = f"--evaluation-cache {mebibytes}: expected MiB that this machine has"
        raise ConfigError(message) from None


class TableJudge:
    """Tables as the core asks them, on its threads. error: what they raised, for the thread that plays."""

    def __init__(self, tables: Tablebases) -> None:
        self.tables = tables
        self.error: BaseException | None = None

    def __call__(self, position: str) -> int | None:
        """The result for the side to move, None where it is not known."""
        try:
            return self.tables.result(position)
        except BaseException as error:  # no exception may cross the core's threads
            self.error = self.error or error
            return None

    def raise_error(self) -> None:
        """Raise what the tables raised, if they did."""
        error, self.error = self.error, None  # or the core, which holds this object, would hold itself
        if error is not None:
            raise error


def play(
    game_name: str,
    settings: _core.SelfPlaySettings,
    lanes: Sequence[_core.SelfPlayGame],
    budget: int,
    evaluator: PoolEvaluator,
    *,
    in_simulations: bool = False,
    cache: _core.EvaluationCache | None = None,
    num_threads: int = 1,
    to_the_end: bool = False,
    tables: Tablebases | None = None,
    on_progress: Callable[[int, int], bool] = lambda moves, games: True,
    on_fault: Callable[[list[_core.SelfPlayGame]], None] = lambda finished: None,
) -> Played:
    """Play `budget` searched moves in every lane, continuing its game; to_the_end: at most to its end.

    in_simulations: a lane stops instead at the end of the move at which it has used `budget` simulations.
    A game is a function of the settings, its lane and number, and the evaluator's weights: other lanes, the
    number of threads and the cache change nothing. cache: evaluations by the same weights; new ones are
    added. tables: end games with their result (chess). on_progress is called after each batch with the moves
    and games so far; False interrupts play. on_fault gets the games that ended before the rules of a game
    failed.
    Raises GameError for a lane whose moves are illegal or whose game is over, ConfigError for more leaves of
    a tree than the evaluator takes, DataError for tables that cannot be read.
    """
    groups = evaluator.batches_ahead
    slots = max(1, min(num_trees(settings.search, evaluator.batch_size), -(-len(lanes) // groups)))
    core, fill = get_game(game_name).core, history_fill("fen_only")
    pool = core.self_play(settings, slots, groups, num_threads, fill, cache)
    for lane in lanes:
        pool.add_lane(lane)
    if to_the_end:
        pool.stop_at_ends()
    judge = None if tables is None else TableJudge(tables)
    if judge is not None:
        pool.adjudicate(judge, judge.tables.most_pieces)
    pool.begin(budget, in_simulations)
    batches = 0

    def after_batch(size: int) -> bool:
        nonlocal batches
        batches += 1
        return on_progress(pool.moves, pool.games) and (judge is None or judge.error is None)

    try:
        is_complete = run_pool(pool, evaluator, after_batch)
    except RulesError:
        on_fault(pool.take_finished())
        raise
    if judge is not None:
        judge.raise_error()
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


FIXED_POINT = 65535.0


def figures_of(batch: pa.RecordBatch, game: str) -> dict[str, float]:
    """Figures of finished games (GAME_SCHEMA) of `game`, at least one.

    games, plies (a game), positions (trained on), first_player_wins, draws, too_long, resigned, adjudicated
    (by tablebases): shares of the games; policy_entropy: mean in nats of the policies trained on;
    checked_resignations: games played through in which a side would have resigned, and wrong_resignations:
    the share of them in which that side did not lose (both absent without any).
    """
    results = batch.column("result").to_numpy(zero_copy_only=False)
    ends = np.array(batch.column("end").to_pylist())
    shares = np.arange(1, 1 << 16) / FIXED_POINT
    counts = np.bincount(games.entries(batch, "policy_prob"), minlength=1 << 16)[1:]
    positions = games.num_trained_positions(batch)
    figures = {
        "games": float(batch.num_rows),
        "plies": len(games.entries(batch, "moves")) / batch.num_rows,
        "positions": float(positions),
        "first_player_wins": float((results > 0).mean()),
        "draws": float((results == 0).mean()),
        "too_long": float((ends == "TOO_LONG").mean()),
        "resigned": float((ends == "RESIGNATION").mean()),
        "adjudicated": float((ends == "ADJUDICATED").mean()),
        "policy_entropy": float(-(counts * shares * np.log(shares)).sum() / max(1, positions)),
    }
    return figures | checked_resignations(batch, game)


def checked_resignations(batch: pa.RecordBatch, game: str) -> dict[str, float]:
    """How many games continued after a side would have resigned, and the share that it did not lose."""
    resign_ply = batch.column("resign_ply").to_numpy(zero_copy_only=False)
    played = batch.column("plays_through").to_numpy(zero_copy_only=False) & (resign_ply >= 0)
    if not played.any():
        return {}
    results = batch.column("result").to_numpy(zero_copy_only=False)[played]
    moves: Any = batch.column("moves")
    by_first = [
        # With the move that was made there, as the games continued.
        first_player_moves(game, moves[row].values.to_numpy()[: ply + 1])[-1]
        for row, ply in zip(np.flatnonzero(played), resign_ply[played], strict=True)
    ]
    for_resigner = np.where(by_first, results, -results)
    wrong = float((for_resigner >= 0).mean())
    return {"checked_resignations": float(played.sum()), "wrong_resignations": wrong}


def describe(figures: dict[str, float]) -> str:
    """The figures in one line."""
    parts = [
        f"{figures['games']:,.0f} games of {figures['plies']:.1f} plies",
        f"{figures['positions']:,.0f} positions",
        f"first player {figures['first_player_wins']:.0%}, drawn {figures['draws']:.0%}",
        f"policy entropy {figures['policy_entropy']:.2f}",
    ]
    if figures["adjudicated"]:
        parts.append(f"{figures['adjudicated']:.0%} ended by tablebases")
    if "wrong_resignations" in figures:
        wrong = figures["wrong_resignations"]
        parts.append(f"resigned {figures['resigned']:.0%}, wrongly {wrong:.1%} of those played on")
    return " | ".join(parts)


MOVES_PER_ROUND = 16  # searched of each lane, before its place is given to another game


def play_first_games(
    game_name: str,
    settings: _core.SelfPlaySettings,
    own: SelfPlayConfig,
    numbers: Sequence[int],
    at_a_time: int,
    evaluator: PoolEvaluator,
    *,
    tables: Tablebases | None,
    keep: Callable[[pa.RecordBatch], None],
    on_progress: Callable[[int], bool],
    num_threads: int,
) -> None:
    """Play the first game of each lane of `numbers`, `at_a_time` of them side by side.

    So the games are the same ones for any number of lanes at a time and whichever end first. keep gets the
    finished games (GAME_SCHEMA) after each round of moves. on_progress gets the number of games so far after
    each batch; False ends play.
    """
    lanes: list[_core.SelfPlayGame] = []
    begun = done = 0
    cache = new_cache(own.evaluation_cache)

    def on_batch(moves: int, ended: int) -> bool:
        return on_progress(done + ended)

    while done < len(numbers):
        last = min(len(numbers), begun + at_a_time - len(lanes))
        lanes += [new_lane(number) for number in numbers[begun:last]]
        begun = last
        played = play(
            game_name,
            settings,
            lanes,
            MOVES_PER_ROUND,
            evaluator,
            cache=cache,
            num_threads=num_threads,
            to_the_end=True,
            tables=tables,
            on_progress=on_batch,
            on_fault=lambda finished: keep(games.to_batch(finished)) if finished else None,
        )
        lanes = [lane for lane in played.under_way if lane.number == 0]
        done += len(played.finished)
        if played.finished:
            keep(games.to_batch(played.finished))
        if not played.is_complete:
            break
