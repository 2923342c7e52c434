"""lc0's training data (V6, V7): files and archives in chunks of whole games, rebuilt by the core, as rows."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.text import counted, printable, quoted
from alphazero.data.formats.files import HashingFile, Source, read_to_end
from alphazero.data.formats.lc0_files import (
    ARCHIVES,
    GAME_SUFFIX,
    KIND,
    LARGEST_GAME_BYTES,
    ArchiveReader,
    records_in,
)
from alphazero.data.formats.parallel import Format, SourceEnd
from alphazero.data.store.writer import list_column, row_schema, rows_with, text_column

CHUNK_BYTES = 1 << 20  # packed, some 50 MB of records
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class PackedGame:
    """A gzip file of one game's records. name: in messages; source: in the store."""

    name: str
    source: str
    content: bytes


PackedChunk = tuple[PackedGame, ...]


@dataclass(frozen=True)
class Lc0Chunk:
    """Games in the core's columns. None is at fault: the first faulty one ends the import."""

    games: _core.Lc0Games
    sources: tuple[str, ...]  # one a game
    fault: ClassVar[npt.NDArray[np.uint8]] = np.zeros(0, np.uint8)
    quarantined: ClassVar[tuple[_core.PgnQuarantined, ...]] = ()
    lines: ClassVar[int] = 0
    skipped: ClassVar[int] = 0

    @property
    def games_read(self) -> int:
        """Games, one a file."""
        return len(self.games.result)

    @property
    def moves_offset(self) -> npt.NDArray[np.int32]:
        """i32 [G + 1]."""
        return self.games.moves_offset

    @cached_property
    def contradiction(self) -> npt.NDArray[np.uint8]:
        """No header of a game contradicts its board: lc0's results are those of play or adjudication."""
        return np.zeros(self.games_read, np.uint8)


def packed_games(
    source: Source, count_bytes: Callable[[int], None], update: Callable[[memoryview], None]
) -> Iterator[PackedGame]:
    """Each game of a source's files in order; all their bytes are hashed. Raises DataError."""
    for path in source.files:
        name = source.name
        if source.path.is_dir():
            name = printable(path.relative_to(source.path))
        raw = HashingFile(path, count_bytes, KIND.what, update)
        with closing(io.BufferedReader(raw, _READ_BYTES)) as file:
            if path.name.lower().endswith(ARCHIVES):
                yield from _members(path, file, name)
            else:
                content = file.read(min(path.stat().st_size, LARGEST_GAME_BYTES) + 1)
                _check_size(len(content), str(path))
                yield PackedGame(str(path), name, content)
            read_to_end(file)


def _members(path: Path, file: IO[bytes], source: str) -> Iterator[PackedGame]:
    archive = ArchiveReader(file, str(path))
    num_games = 0
    for member in archive.members():
        if not member.name.lower().endswith(GAME_SUFFIX):
            continue  # LICENSE and the like
        num_games += 1
        name = f"{path}: {quoted(member.name)[1:-1]}"
        _check_size(member.size, name)
        yield PackedGame(name, source, archive.content(member))
    if num_games == 0:
        raise DataError(f"{path}: no member ends in {GAME_SUFFIX}; expected one a game")


def _check_size(size: int, name: str) -> None:
    if size > LARGEST_GAME_BYTES:
        raise DataError(
            f"{name}: {counted(size, 'byte')}; expected one game, at most {LARGEST_GAME_BYTES:,} bytes"
        )


GAME = "chess"
TARGET_KIND = "visits"
_V7 = 7
# The value of the store's column `termination` for an end; None: unknown.
TERMINATION: dict[_core.Lc0End, str | None] = {
    end: None if end is _core.Lc0End.UNKNOWN else end.name.lower() for end in _core.Lc0End
}
_OF_V7 = "d_st"
_NUMBERS = tuple(name for name in _core.lc0_number_names() if name != _OF_V7)
_SCHEMA = row_schema([*_NUMBERS, _OF_V7, "best_move"])


def _of_v7(games: _core.Lc0Games, kind: pa.DataType) -> pa.Array[Any]:
    """The number that V7 alone has; null for games of V6."""
    is_v7 = games.version == _V7
    plies = np.diff(games.moves_offset)
    offset = np.concatenate([[0], np.cumsum(plies * is_v7)]).astype(np.int32)
    values = games.number(_OF_V7)[np.repeat(is_v7, plies)]
    return list_column(kind, offset, pa.array(values), is_v7)


class _Lc0(Format[PackedChunk, Lc0Chunk]):
    """lc0's training data as parallel.Format has it. A game that cannot be rebuilt ends the import."""

    kind = KIND
    game = GAME
    chunk_bytes = CHUNK_BYTES

    def chunks(
        self, source: Source, count_bytes: Callable[[int], None], chunk_bytes: int
    ) -> Generator[PackedChunk | SourceEnd, None, None]:
        digest = hashlib.sha256()
        games: list[PackedGame] = []
        size = 0
        for game in packed_games(source, count_bytes, digest.update):
            games.append(game)
            size += len(game.content)
            if size >= chunk_bytes:
                yield tuple(games)
                games, size = [], 0
        if games:
            yield tuple(games)
        yield SourceEnd(digest.hexdigest())

    def parse(self, chunk: PackedChunk) -> Lc0Chunk:
        games = _core.Lc0Games()
        for game in chunk:
            try:
                games.begin()
                for piece in records_in(game.content, game.name):
                    games.take(piece)
                games.finish()
            except _core.GameError as error:
                raise DataError(f"{game.name}: {error}") from error
        return Lc0Chunk(games, tuple(game.source for game in chunk))

    def rows(self, games: Lc0Chunk, source_name: str, begin: int, end: int) -> pa.RecordBatch:
        core = games.games
        lists: dict[str, tuple[npt.NDArray[np.int32], npt.NDArray[Any]]] = {
            name: (core.moves_offset, getattr(core, name))
            for name in ("moves", "flags", "root_q", "root_d", "best_q", "visits", "best_move")
        }
        lists |= {name: (core.moves_offset, core.number(name)) for name in _NUMBERS}
        per_game = np.arange(len(core.moves_offset), dtype=np.int32)
        lists["policy_offsets"] = (core.moves_offset + per_game, core.policy_offset)
        lists["policy_move"] = (core.policy_part_offset, core.policy_move)
        lists["policy_prob"] = (core.policy_part_offset, core.policy_prob)
        num_rows, schema = end - begin, _SCHEMA
        columns: dict[str, pa.Array[Any]] = {
            name: list_column(schema.field(name).type, offset, pa.array(values))
            for name, (offset, values) in lists.items()
        }
        ends = [TERMINATION[_core.Lc0End(code)] for code in core.end[begin:end].tolist()]
        columns |= {
            "game": pa.repeat(GAME, num_rows),
            "variant": pa.repeat("standard", num_rows),
            "start_fen": text_column(core.fen_offset, core.fen_bytes, np.diff(core.fen_offset) > 0),
            "result": pa.array(core.result[begin:end]),
            _OF_V7: _of_v7(core, schema.field(_OF_V7).type),
            "termination": pa.array(ends, pa.utf8()),
            "source": pa.array(games.sources[begin:end], pa.utf8()),
            "target_kind": pa.repeat(TARGET_KIND, num_rows),
        }
        return rows_with(schema, columns, begin, num_rows)


LC0 = _Lc0()
