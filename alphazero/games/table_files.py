"""Syzygy files read by python-chess, whose answers to damaged ones are undefined: checked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import chess
import chess.syzygy
import numpy as np
from chess.syzygy import DtzTable, MissingTableError, PairsData, Table, WdlTable

_KINDS = " PNBRQK"  # by the number that a file has for a piece; 8 more for the other side's
_MOST_PLIES = {0: 0, 1: 2000, 2: 100}  # of DTZ, by the size of WDL
_MOST_BLOCKS = 2**22  # of an index that is read whole: all with 5 pieces, and most with 6
_INDEX = np.dtype([("block", "<u4"), ("offset", "<u2")])


class DamagedTableError(ValueError):
    """A file of tables that no generator made."""


class CheckedTables(chess.syzygy.Tablebase):
    """Probing ends, and its results are in range; else it raises DamagedTableError, which names the file.

    A file is checked when it is first asked: it has the pieces of its name, and its index leads to every
    position within it, as its generator (github.com/syzygy1/tb, compress_tmpl.c) makes one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked: set[str] = set()

    def probe_wdl_table(self, board: chess.Board) -> int:
        """From -2 to 2."""
        with self._checks(self.wdl, board):
            wdl = super().probe_wdl_table(board)
            if not -2 <= wdl <= 2:
                raise ValueError(f"win, draw, loss is {wdl}")
            return wdl

    def probe_dtz_table(self, board: chess.Board, wdl: int) -> tuple[int, int]:
        """Plies, and 1; or -1 where the file has only the other side to move."""
        with self._checks(self.dtz, board):
            plies, side = super().probe_dtz_table(board, wdl)
            if side >= 0 and plies > _MOST_PLIES[abs(wdl)]:
                raise ValueError(f"{plies} plies to a capture or pawn move")
            return plies, side

    @contextmanager
    def _checks(self, tables: Mapping[str, Table], board: chess.Board) -> Iterator[None]:
        table = tables.get(chess.syzygy.calc_key(board))
        try:
            if table is not None and table.path not in self._checked:
                assert isinstance(table, (WdlTable, DtzTable))
                _check(table)
                self._checked.add(table.path)
            yield
        except (MissingTableError, OSError):
            raise
        except Exception as error:  # of python-chess: of any kind
            path = table.path if table is not None else ""
            raise DamagedTableError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def _check(table: WdlTable | DtzTable) -> None:
    if isinstance(table, WdlTable):
        table.init_table_wdl()
    else:
        table.init_table_dtz()
    white, _, black = Path(table.path).stem.partition("v")
    named = sorted([*map(_KINDS.index, white), *(8 + _KINDS.index(kind) for kind in black)])
    if any(sorted(pieces) != named for pieces in _pieces_of(table)):
        raise ValueError("other pieces than in its name")
    for number, pairs in _pairs_of(table):
        _check_index(table, number, pairs)


def _pieces_of(table: WdlTable | DtzTable) -> Iterator[list[int]]:
    """By side to move, and by file of the first pawn."""
    for part in table.files if table.has_pawns else [table]:
        pieces = part.pieces
        yield from pieces.values() if isinstance(pieces, dict) else [pieces]


def _pairs_of(table: WdlTable | DtzTable) -> Iterator[tuple[int, PairsData]]:
    """The compressed parts, with their numbers in the file."""
    sides = 2 if isinstance(table, WdlTable) else 1
    for number, part in enumerate(table.files if table.has_pawns else [table]):
        pairs = getattr(part, "precomp", {})
        for side, of_side in pairs.items() if isinstance(pairs, dict) else [(0, pairs)]:
            yield sides * number + side, of_side


def _check_index(table: WdlTable | DtzTable, number: int, pairs: PairsData) -> None:
    """Raises ValueError unless the blocks hold all positions, and the index says in which each is."""
    num_indices, num_blocks = table.size[3 * number] // 6, table.size[3 * number + 1] // 2
    if pairs.idxbits == 0 or num_blocks > _MOST_BLOCKS:
        return
    assert table.data is not None
    if pairs.data + table.size[3 * number + 2] > len(table.data):
        raise ValueError("blocks beyond its end")
    positions = np.frombuffer(table.data, "<u2", num_blocks, pairs.sizetable).astype(np.int64) + 1
    begins = np.concatenate([[0], np.cumsum(positions)])
    index = np.frombuffer(table.data, _INDEX, num_indices, pairs.indextable)
    middles = (2 * np.arange(num_indices) + 1) << (pairs.idxbits - 1)
    num_full = table.size[3 * number + 2] >> pairs.blocksize
    if begins[num_full] != table.tb_size[number] or not np.array_equal(
        begins[index["block"]] + index["offset"], middles
    ):
        raise ValueError("an index that does not fit its blocks")
