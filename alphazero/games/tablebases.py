"""Syzygy tablebases of chess: opened from directories, what they know of a position, the moves that keep it.

Files are found and probed by python-chess. A result counts under the fifty-move rule: cursed wins and
blessed losses are draws, unless that rule is switched off. What tables cannot know (castling rights, a table
that is not there) is None.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.base.text import reason
from alphazero.games.core_types import Line

if TYPE_CHECKING:
    import chess

SUFFIXES = (".rtbw", ".rtbz")  # win, draw, loss; distance to the next capture or pawn move (DTZ)
# A table is a multiple of 64 bytes and a checksum of 16 (as Stockfish's src/syzygy/tbprobe.cpp checks it).
_BLOCK_BYTES, _CHECKSUM_BYTES = 64, 16
_WIN = 2  # of WDL; 1 is a win that the fifty-move rule makes a draw
_FIFTY_MOVES = 100  # in plies
_CLAIMED = 2  # earlier occurrences of a position by which a player may claim a draw
_DTZ_BEFORE_ZEROING = {-2: -1, -1: -101, 0: 0, 1: 101, 2: 1}
# Ranks of moves, as in Stockfish's root_probe and lc0's src/syzygy/syzygy.cc.
_CERTAIN = 1000
_WDL_RANKS = {-2: -1000, -1: -899, 0: 0, 1: 899, 2: 1000}


@dataclass(frozen=True)
class BestMoves:
    """The moves of a position among which tables see no difference in the result that they keep.

    result: -1, 0 or 1 for the side to move; None where it depends on a ply of the fifty-move rule, or on a
    missing DTZ table.
    """

    moves: tuple[int, ...]
    result: int | None


class Tablebases:
    """The tables of one or several directories; any thread may ask."""

    def __init__(self, paths: str, source: str, *, fifty_moves: bool = True) -> None:
        """paths: directories, divided by the system's path separator as in lc0. source: how messages name it.

        fifty_moves: False: a win is a win, however long it takes (Stockfish's Syzygy50MoveRule).
        Raises ConfigError for a directory that is not there or holds no table, DataError for a damaged file.
        """
        from alphazero.games.table_files import CheckedTables

        self.paths = paths
        self._source = source
        self._fifty_moves = fifty_moves
        self._tables = CheckedTables()
        sizes: dict[str, int] = {}
        for text in paths.split(os.pathsep):
            for path, size_bytes in _tables_in(Path(text), source).items():
                _check_file(path, size_bytes, source)
                sizes[path.name] = size_bytes
                self._tables.add_file(os.fspath(path))
        self.most_pieces = max(len(name.split(".")[0]) - 1 for name in sizes)
        self._sizes = sizes

    @property
    def identity(self) -> str:
        """Of names and sizes: '35 WDL and 35 DTZ tables of up to 4 pieces (a1b2c3)'."""
        wdl = sum(name.endswith(SUFFIXES[0]) for name in self._sizes)
        digest = hashlib.sha256(repr(sorted(self._sizes.items())).encode()).hexdigest()[:6]
        dtz = len(self._sizes) - wdl
        return f"{wdl} WDL and {dtz} DTZ tables of up to {self.most_pieces} pieces ({digest})"

    def result(self, position: str | chess.Board) -> int | None:
        """-1, 0 or 1 for the side to move, None where it is not known. Raises DataError for a damaged file.

        position: FEN, or python-chess's board without castling rights and with at most `most_pieces`.
        """
        board = self._board(position) if isinstance(position, str) else position
        wdl = None if board is None else self._probe(self._tables.probe_wdl, board)
        if board is None or wdl is None or abs(wdl) < (_WIN if self._fifty_moves else 1):
            return None if wdl is None else 0
        sign = 1 if wdl > 0 else -1
        if board.halfmove_clock == 0 or not self._fifty_moves:
            return sign
        dtz = self._probe(self._tables.probe_dtz, board)
        if dtz is None:
            return None
        # A table may say n where it is n + 1 plies.
        plies = abs(dtz) + board.halfmove_clock
        return sign if plies < _FIFTY_MOVES else 0 if plies > _FIFTY_MOVES else None

    def best_moves(self, line: Line, among: Sequence[int] = (), *, fast: bool = False) -> BestMoves | None:
        """The best of these moves (none: of all legal ones); None where the position is not in the tables.

        Wins that the fifty-move rule cannot spoil count alike, unless a position has come back since the last
        capture or pawn move, or with `fast`: then the nearest capture, pawn move or mate counts, of the moves
        after which no answer stands on the board for the third time. Raises DataError for a damaged file.
        """
        board = self._board(str(line))
        if board is None:
            return None
        wdl = _ranks(line, among or line.legal(), self._rank_by_wdl)
        if not wdl:
            return None
        best = max(wdl.values())
        if best == 0:  # DTZ takes longer and would not change the result
            return BestMoves(_moves_of(wdl, 0), 0)
        clock = board.halfmove_clock
        has_repeated = _has_repeated(line, clock)
        keeps_order = fast or has_repeated
        candidates = [move for move, rank in wdl.items() if (rank > 0) == (best > 0)]
        is_claimed = False  # a draw, whatever is played
        if best > 0 and has_repeated:
            safe = [move for move in candidates if not _can_be_repeated(_after(line, move))]
            is_claimed, candidates = not safe, safe or candidates
        dtz = _ranks(line, candidates, lambda child: self._rank_by_dtz(child, clock, keeps_order))
        ranks = dtz or {move: wdl[move] for move in candidates}
        moves = _moves_of(ranks, max(ranks.values()))
        if is_claimed:
            return BestMoves(moves, 0)
        child = _after(line, moves[0])
        value = self._value_at_end(child)
        result = self.result(str(child)) if value is None else value
        return BestMoves(moves, None if result is None else -result)

    def _board(self, fen: str) -> chess.Board | None:
        """The position; None where it is beyond the tables."""
        import chess

        placement, _, castling = fen.split()[:3]
        if castling != "-" or sum(map(str.isalpha, placement)) > self.most_pieces:
            return None
        return chess.Board(fen)

    def _rank_by_dtz(self, child: Line, clock: int, keeps_order: bool) -> int | None:
        """The rank of the move that led here; clock: of the fifty-move rule before it."""
        dtz = self._dtz_of_move(child)
        if dtz is None or dtz == 0:
            return dtz
        if dtz > 0:
            is_safe = dtz + clock < _FIFTY_MOVES and not keeps_order
            return _CERTAIN if is_safe else _CERTAIN - (dtz + clock)
        return -_CERTAIN if -2 * dtz + clock < _FIFTY_MOVES else -_CERTAIN + (clock - dtz)

    def _dtz_of_move(self, child: Line) -> int | None:
        """DTZ for the side that moved here, that move included; 1: it mates, captures or moves a pawn."""
        value = self._value_at_end(child)
        if value is not None:
            return 1 if value < 0 else 0
        board = self._board(str(child))
        assert board is not None  # fewer pieces and rights than before
        if board.halfmove_clock == 0:
            wdl = self._probe(self._tables.probe_wdl, board)
            return None if wdl is None else _DTZ_BEFORE_ZEROING[-wdl]
        dtz = self._probe(self._tables.probe_dtz, board)
        if dtz is None:
            return None
        return -dtz + (1 if dtz < 0 else -1 if dtz > 0 else 0)

    def _rank_by_wdl(self, child: Line) -> int | None:
        value = self._value_at_end(child)
        if value is not None:
            return _CERTAIN if value < 0 else 0
        board = self._board(str(child))
        assert board is not None
        wdl = self._probe(self._tables.probe_wdl, board)
        if wdl is None or self._fifty_moves or wdl == 0:
            return None if wdl is None else _WDL_RANKS[-wdl]
        return _CERTAIN if wdl < 0 else -_CERTAIN

    def _value_at_end(self, line: Line) -> int | None:
        """Of a game that is over, for the side to move; None for any other, by the rules that count."""
        outcome = line.outcome()
        is_over = outcome.over and (self._fifty_moves or outcome.termination != _core.Termination.FIFTY_MOVES)
        return int(outcome.value) if is_over else None

    def _probe(self, function: Callable[[chess.Board], int], board: chess.Board) -> int | None:
        """None: a table of the material, or of what a capture leaves, is not there."""
        from chess.syzygy import MissingTableError

        from alphazero.games.table_files import DamagedTableError

        try:
            return function(board)
        except MissingTableError:
            return None
        except OSError as error:
            file = error.filename or self.paths
            raise DataError(
                f"{self._source} {file}: cannot be read: {error.strerror or reason(error)}"
            ) from error
        except DamagedTableError as error:
            expected = "expected a Syzygy table as it was downloaded"
            raise DataError(f"{self._source} {reason(error)}; {expected}") from error


def _tables_in(directory: Path, source: str) -> Mapping[Path, int]:
    """The tables of a directory with their sizes, by name. Raises ConfigError where there is none."""
    from chess.syzygy import is_tablename

    try:
        files = sorted(directory.iterdir())
        sizes = {path: path.stat().st_size for path in files if path.suffix in SUFFIXES and path.is_file()}
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise ConfigError(
            f"{source} {str(directory)!r}: {problem}; expected a directory of Syzygy tables"
        ) from None
    sizes = {path: size for path, size in sizes.items() if is_tablename(path.stem)}
    if not any(path.suffix == SUFFIXES[0] for path in sizes):
        raise ConfigError(
            f"{source} {str(directory)!r}: no tables; expected Syzygy files such as KRvK{SUFFIXES[0]}"
        )
    return sizes


def _check_file(path: Path, size_bytes: int, source: str) -> None:
    """Raises DataError unless the file begins and ends as a table does."""
    import chess

    magic = chess.Board.tbw_magic if path.suffix == SUFFIXES[0] else chess.Board.tbz_magic
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise DataError(f"{source} {path}: cannot be read: {error.strerror}") from error
    if begin != magic or size_bytes % _BLOCK_BYTES != _CHECKSUM_BYTES:
        raise DataError(
            f"{source} {path}: damaged, of {size_bytes:,} bytes beginning with {begin.hex() or 'nothing'}; "
            "expected a whole Syzygy table"
        )


def _ranks(line: Line, moves: Sequence[int], rank_of: Callable[[Line], int | None]) -> dict[int, int]:
    """The rank of each move; none where one is not known."""
    ranks: dict[int, int] = {}
    for move in moves:
        rank = rank_of(_after(line, move))
        if rank is None:
            return {}
        ranks[move] = rank
    return ranks


def _after(line: Line, move: int) -> Line:
    line = line.copy()
    line.push(move)
    return line


def _can_be_repeated(line: Line) -> bool:
    """Whether a move leads to a position that stands on the board for the third time."""
    return any(_after(line, move).repetitions >= _CLAIMED for move in line.legal())


def _moves_of(ranks: Mapping[int, int], rank: int) -> tuple[int, ...]:
    return tuple(move for move, own in ranks.items() if own == rank)


def _has_repeated(line: Line, clock: int) -> bool:
    """Whether a position came back in the last `clock` plies: shortest ways to win, then."""
    line = line.copy()
    for _ in range(min(clock, line.num_plies)):
        if line.repetitions:
            return True
        line.pop()
    return False
