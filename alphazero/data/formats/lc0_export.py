"""Games of a store as lc0's training data, V6, a gzip file per game: the rules are in docs/data_format.md."""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.files import fsync_directory, fsync_file
from alphazero.data.formats.lc0 import GAME, TERMINATION
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.store import GameStore, named_faults

# Columns by the names that the core has for them too.
_BY_PLY = ("flags", "root_q", "root_d", "best_q", "visits", "policy_move", "policy_prob", "best_move")
MOST_MISSING = 7  # plies between two records: a position has seven before it in its planes

_END = {name: end for end, name in TERMINATION.items() if name is not None}
# Self-play's own word for a game that a side gave up.
_END["resignation"] = _core.Lc0End.ADJUDICATED


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote. left_out: games that V6 cannot represent, by the reason."""

    games: int
    positions: int
    left_out: Mapping[str, int]


def export_lc0(
    store: GameStore, directory: Path, *, first: int = 0, count: int | None = None
) -> ExportReport:
    """Write games `first` ... of the store into a new directory, written whole or not at all.

    Each is game_%06d.gz, and continues in game_%06d_partN.gz where its records lie far apart.
    Raises DataError for games that V6 cannot hold, and where files cannot be written.
    """
    if store.manifest.game != GAME:
        raise DataError(f"{store.path}: holds games of {store.manifest.game}; lc0 knows {GAME} alone")
    is_used = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if is_used or directory.is_symlink():
        raise DataError(f"{directory}: already exists; expected the name of a new or an empty directory")
    work = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    with named_faults("write", directory, within=True):
        work.mkdir(parents=True)
        try:
            report = _write(store, work, first, count)
            work.rename(directory)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        fsync_directory(directory.parent)
    return report


def _write(store: GameStore, work: Path, first: int, count: int | None) -> ExportReport:
    games = positions = 0
    left_out: Counter[str] = Counter()
    for game in games_of(store, first, count):
        why = _reason_to_leave_out(game)
        records = b"" if why else records_of(game)
        if not records:
            left_out[why or "no position has a policy"] += 1
            continue
        for number, part in enumerate(parts_of(records, game), 1):
            path = work / (f"game_{games:06d}" + (f"_part{number}" if number > 1 else "") + ".gz")
            path.write_bytes(gzip.compress(part, 6, mtime=0))
            fsync_file(path)
        games += 1
        positions += len(records) // _core.LC0_V6_BYTES
    if not games:
        reasons = ", ".join(f"{number} with {why}" for why, number in left_out.items())
        raise DataError(f"{store.path}: no game to write ({reasons or f'none from game {first}'})")
    fsync_directory(work)
    return ExportReport(games, positions, left_out)


def _reason_to_leave_out(game: GameRow) -> str:
    if "result" not in game.values:
        return "no result"
    if game.values["variant"] != "standard":
        return "Chess960, whose rooks input format 1 does not encode"
    return ""


def records_of(game: GameRow) -> bytes:
    """V6 records of a game of standard chess with a result. Raises DataError."""
    lists = game.lists

    def column(name: str) -> npt.NDArray[Any] | None:
        values = lists.get(name)
        return None if values is None else np.ascontiguousarray(values)

    try:
        return _core.lc0_records(
            game.values.get("start_fen", ""),
            np.ascontiguousarray(lists["moves"]),
            game.values["result"],
            _END.get(game.values.get("termination", ""), _core.Lc0End.UNKNOWN),
            policy_offset=column("policy_offsets"),
            numbers=[column(name) for name in _core.lc0_number_names()],
            **{name: column(name) for name in _BY_PLY},
        )
    except _core.GameError as error:
        raise DataError(f"{game.location}: {error}") from error


def parts_of(records: bytes, game: GameRow) -> list[bytes]:
    """The records of a game, split where more plies lack one than the next one's planes can hold."""
    offsets = game.lists.get("policy_offsets")
    if offsets is None:
        return [records]  # of every ply
    plies = np.flatnonzero(np.diff(offsets))
    # Between records k and k + 1 lie plies[k + 1] - plies[k] - 1 without one.
    begins = np.flatnonzero(np.diff(plies) - 1 > MOST_MISSING) + 1
    edges = [_core.LC0_V6_BYTES * int(record) for record in (0, *begins, len(plies))]
    return [records[begin:end] for begin, end in itertools.pairwise(edges)]
