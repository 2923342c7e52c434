"""The checks of a shard that arrives: whoever can write to a place can send one.

Every game is replayed by the rules; every number of its searches lies within its bounds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.text import reason, shortened
from alphazero.data.store.columns import TRAINED_ON, SearchView, check_values
from alphazero.data.store.store import ShardView, view_of
from alphazero.games.registry import get_game, get_spec, make_line
from alphazero.games.tablebases import Tablebases
from alphazero.play import lanes as games
from alphazero.play.actors.pointers import PlaceSettings
from alphazero.play.actors.shard import ShardName, read_shard
from alphazero.play.selfplay import FIXED_POINT

_TOLERANCE = 1e-4  # of a value beyond its bounds: float32 sums of three shares
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ArrivedGames:
    """A shard that passed. batch: GAME_SCHEMA. step: of the weights that played, as its actor says."""

    batch: pa.RecordBatch
    positions: int
    step: int


def check_shard(
    name: ShardName,
    content: bytes,
    settings: PlaceSettings,
    steps: Collection[int],
    tables: Tablebases | None = None,
) -> ArrivedGames:
    """The games of a shard's bytes. settings: by which they must be played. steps: of weights that may play.

    Raises DataError, in one line that begins with the shard's name, for everything that is not as it must be.
    """
    origin, batch = read_shard(name, content)
    if (origin.version, origin.rules) != (settings.version, settings.rules):
        other = shortened(f"version {origin.version} {origin.rules}".rstrip())
        raise DataError(f"{name}: played by {other}; expected {settings.version} {settings.rules}".rstrip())
    if origin.step not in steps:
        raise DataError(f"{name}: weights of step {origin.step}: not published here, or too old")
    try:
        games.check_fit(batch, str(name))
        rows = games.store_rows(batch, settings.game, settings.search.algorithm, "")
        check_values(rows)
        view = view_of(rows, Path(str(name)))
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{name}: {reason(error)}") from None
    if not view.num_plies or not np.all(np.diff(view.moves_offset)):
        raise DataError(f"{name}: a game without moves")
    assert view.search is not None
    _check_order(name, batch)
    _check_searches(name, batch, view, view.search, settings)
    ends = _core.RuledEnds()
    try:
        fault = get_game(settings.game).core.find_illegal_game(
            *(view.moves, view.moves_offset, view.fen_bytes, view.fen_offset, view.search.core_arrays(), ends)
        )
    except _core.GameError as error:
        raise DataError(f"{name}: {reason(error)}") from None
    if fault is not None:
        raise DataError(f"{name}: game {fault.game}, ply {fault.ply}: {shortened(fault.reason)}")
    _check_ends(name, batch, view, ends, settings, tables)
    batch = batch.replace_schema_metadata(None)
    return ArrivedGames(batch, games.num_trained_positions(batch), origin.step)


def _refuse(name: ShardName, wrong: Bools, what: str) -> None:
    """Raise DataError for the first game, or ply of all plies, that is wrong."""
    if wrong.any():
        raise DataError(f"{name}: {what.format(int(np.flatnonzero(wrong)[0]))}")


def _column(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return values


def _check_order(name: ShardName, batch: pa.RecordBatch) -> None:
    """Each game is there once: by lane and number, as an actor writes them."""
    lane, number = _column(batch, "lane"), _column(batch, "number")
    follows = (lane[1:] > lane[:-1]) | ((lane[1:] == lane[:-1]) & (number[1:] > number[:-1]))
    _refuse(name, ~follows, "the game after game {} is not the next by lane and number")


def _check_searches(
    name: ShardName, batch: pa.RecordBatch, view: ShardView, search: SearchView, settings: PlaceSettings
) -> None:
    """Flags, visits, values and policies are those of searches by these settings."""
    flags, visits = games.entries(batch, "flags"), games.entries(batch, "visits")
    own, most = settings.self_play, settings.search.simulations
    is_full = flags == TRAINED_ON
    _refuse(name, flags & ~np.uint8(TRAINED_ON) != 0, "ply {} of all: unknown flags")
    # A tree's last round may go beyond by its leaves.
    limit = np.where(is_full, most, max(most, own.fast_simulations)) + settings.search.leaves
    _refuse(name, visits > limit, "ply {} of all: more visits than simulations")
    _refuse(name, is_full & (visits == 0), "ply {} of all: trained on without a search")
    ply = np.arange(view.num_plies) - np.repeat(view.moves_offset[:-1], np.diff(view.moves_offset))
    is_late = (visits == 0) & (ply >= own.opening_plies)
    _refuse(name, is_late, "ply {} of all: no search, and not of the opening")
    for of in ("root", "best", "orig"):
        q, d = games.entries(batch, f"{of}_q"), games.entries(batch, f"{of}_d")
        _refuse(name, np.abs(q) + d > 1 + _TOLERANCE, f"ply {{}} of all: {of}_q and {of}_d do not fit")
    # Where each ply's policy begins among all policies, and behind the last one.
    lengths = np.diff(search.policy_offsets.values.astype(np.int64))
    lengths = np.delete(lengths, search.policy_offsets.offset[1:-1] - 1)  # from a game to the next
    begin = np.concatenate(([0], np.cumsum(lengths)))
    shares = search.policy_prob.values.astype(np.int64)
    sums = np.diff(np.concatenate(([0], np.cumsum(shares)))[begin])
    # Each legal move's share is rounded, and not there where that gives 0.
    is_whole = np.abs(sums - FIXED_POINT) <= get_spec(settings.game).max_legal_moves / 2
    _refuse(name, is_full != (lengths > 0), "ply {} of all: a policy is there for full searches alone")
    _refuse(name, is_full & ~is_whole, "ply {} of all: the shares of its policy do not add up to 1")
    _refuse(name, shares == 0, "entry {} of all policies: a share of 0")


def _check_ends(
    name: ShardName,
    batch: pa.RecordBatch,
    view: ShardView,
    ends: _core.RuledEnds,
    settings: PlaceSettings,
    tables: Tablebases | None,
) -> None:
    """Each game ended as it says and with the result that follows."""
    own, plies = settings.self_play, np.diff(view.moves_offset)
    end, result = np.array(_known(name, batch, "end", _core.GameEnd)), _column(batch, "result")
    terminations = _known(name, batch, "termination", _core.Termination)
    said = np.array([_core.Termination[text].value for text in terminations])
    by_rules, resigned, adjudicated, too_long = (
        end == kind for kind in ("RULES", "RESIGNATION", "ADJUDICATED", "TOO_LONG")
    )
    _refuse(name, ~(by_rules | resigned | adjudicated | too_long), "game {}: is not over")
    _refuse(name, said != ends.termination, "game {}: the rules end it otherwise")
    _refuse(name, by_rules != (ends.termination > 0), "game {}: the rules end it otherwise")
    _refuse(name, by_rules & (result != ends.result), "game {}: a false result")
    loser_wins = np.where(ends.first_to_move == 1, -1, 1)
    may_resign = (own.resign_threshold > 0) & ~_column(batch, "plays_through")
    _refuse(name, resigned & ~may_resign, "game {}: no side may resign in it")
    _refuse(name, resigned & (result != loser_wins), "game {}: the side that resigned has not lost")
    _refuse(name, plies > own.max_plies, "game {}: is too long")
    _refuse(
        name, too_long & ((plies < own.max_plies) | (result != 0)), "game {}: is not a draw by its length"
    )
    resign_ply = _column(batch, "resign_ply")
    _refuse(name, (resign_ply < -1) | (resign_ply > plies), "game {}: no side can resign there")
    for row in np.flatnonzero(adjudicated).tolist():
        line = make_line(settings.game)
        for move in view.moves[view.moves_offset[row] : view.moves_offset[row + 1]]:
            line.push(int(move))
        known = None if tables is None else tables.result(str(line))
        value = None if known is None else known if line.first_player_to_move else -known
        if value != result[row]:
            raise DataError(f"{name}: game {row}: no tablebase gives this result")


def _known(name: ShardName, batch: pa.RecordBatch, column: str, kind: type[Enum]) -> list[str]:
    """A column whose texts are all names of a kind of end: an array of them is as wide as the longest."""
    texts = [str(text) for text in batch.column(column).to_pylist()]
    if others := sorted(set(texts) - set(kind.__members__)):
        raise DataError(f"{name}: {shortened(others[0])} ends no game")
    return texts
