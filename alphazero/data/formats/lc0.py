"""Sources of lc0's training data in chunks of whole games, unpacked and rebuilt by the core.

Import of lc0's training data into a game store.

Games of lc0's training data as rows of the store.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.text import counted, printable, quoted
from alphazero.data.formats.files import Source, open_file
from alphazero.data.formats.importer import ALL_GAMES, Format, ImportReport, import_sources, to_stderr
from alphazero.data.formats.lc0_files import (
    ARCHIVE_SUFFIX,
    GAME_SUFFIX,
    KIND,
    LARGEST_GAME_BYTES,
    ArchiveReader,
    files_of,
    find_sources,
    sha256_of_source,
    unpacked,
)
from alphazero.data.formats.parallel import DescribedFault, ParsedChunk, SourceEnd, parse_in_order
from alphazero.data.store.writer import SHARD_GAMES, SHARD_PLIES, row_schema
from alphazero.settings.sections import GameFilters

CHUNK_BYTES = 1 << 20  # packed, some 50 MB of records
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class PackedGame:
    """A gzip file of one game's records. name: in messages; source: in the store."""

    name: str
    source: str
    content: bytes


@dataclass(frozen=True)
class PackedChunk:
    """Games of a source, the first of which begins at byte `offset`."""

    games: tuple[PackedGame, ...]
    offset: int


@dataclass(frozen=True)
class Lc0Chunk:
    """Games in the core's columns. None is at fault: the first faulty one ends the import."""

    games: _core.Lc0Games
    sources: tuple[str, ...]  # one a game

    @property
    def games_read(self) -> int:
        """Games, one a file."""
        return len(self.games.result)

    @cached_property
    def game(self) -> npt.NDArray[np.int32]:
        """Numbers of the games in the chunk."""
        return np.arange(self.games_read, dtype=np.int32)

    @property
    def moves_offset(self) -> npt.NDArray[np.int32]:
        """i32 [G + 1]."""
        return self.games.moves_offset

    @cached_property
    def contradiction(self) -> npt.NDArray[np.uint8]:
        """No header of a game contradicts its board: lc0's results are those of play or adjudication."""
        return np.zeros(self.games_read, np.uint8)

    @property
    def faulty_game(self) -> npt.NDArray[np.int32]:
        """None."""
        return np.zeros(0, np.int32)

    @property
    def fault(self) -> npt.NDArray[np.uint8]:
        """None."""
        return np.zeros(0, np.uint8)

    @property
    def quarantined(self) -> Sequence[DescribedFault]:
        """None."""
        return ()

    @property
    def lines(self) -> int:
        """Records have no lines."""
        return 0


class _CountedFile:
    """A file that tells of the bytes that are read from it. Raises DataError."""

    def __init__(
        self, path: Path, count_bytes: Callable[[int], None], hashed: Callable[[bytes], None]
    ) -> None:
        self._path = path
        raw = open_file(path, KIND.what)
        self._file = io.BufferedReader(raw, _READ_BYTES)
        self.size_bytes = os.fstat(raw.fileno()).st_size
        self._count_bytes = count_bytes
        self._hashed = hashed
        self.num_bytes = 0  # read so far

    def read(self, size: int, /) -> bytes:
        """As files do: fewer bytes at the end alone."""
        try:
            content = self._file.read(size)
        except OSError as error:
            raise DataError(f"{self._path}: cannot read: {error.strerror}") from error
        self._hashed(content)
        self._count_bytes(len(content))
        self.num_bytes += len(content)
        return content

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


@dataclass(frozen=True)
class Lc0Source:
    """One source to be read, from byte `skip_bytes` on, where a game begins."""

    source_index: int
    source: Source
    skip_bytes: int
    chunk_bytes: int
    count_bytes: Callable[[int], None]  # told what of the files was read

    def items(self) -> Generator[PackedChunk | SourceEnd, None, None]:
        """The games in chunks, then the end. Raises DataError."""
        digest = hashlib.sha256()
        games: list[PackedGame] = []
        offset = size = 0
        for place, game in self._games(digest.update):
            if place < self.skip_bytes:
                continue
            offset = offset if games else place
            games.append(game)
            size += len(game.content)
            if size >= self.chunk_bytes:
                yield PackedChunk(tuple(games), offset)
                games, size = [], 0
        if games:
            yield PackedChunk(tuple(games), offset)
        yield SourceEnd(self.source_index, digest.hexdigest())

    def parse(self, chunk: PackedChunk) -> ParsedChunk[Lc0Chunk]:
        """The games of a chunk. Raises DataError."""
        games = _core.Lc0Games()
        for game in chunk.games:
            try:
                games.begin()
                for piece in unpacked(game.content, game.name):
                    games.take(piece)
                games.finish()
            except _core.GameError as error:
                raise DataError(f"{game.name}: {error}") from error
        sources = tuple(game.source for game in chunk.games)
        return ParsedChunk(self.source_index, chunk.offset, Lc0Chunk(games, sources))

    def _games(self, hashed: Callable[[bytes], None]) -> Iterator[tuple[int, PackedGame]]:
        """Each game with the byte of the source at which it begins; all bytes are hashed, in order."""
        begin = 0
        for path in files_of(self.source):
            source = self.source.name
            if self.source.path.is_dir():
                source = printable(path.relative_to(self.source.path))
            with closing(_CountedFile(path, self.count_bytes, hashed)) as file:
                if path.name.lower().endswith(ARCHIVE_SUFFIX):
                    for place, game in self._members(path, file, source):
                        yield begin + place, game
                else:
                    content = file.read(min(file.size_bytes, LARGEST_GAME_BYTES) + 1)
                    self._check_size(len(content), str(path))
                    yield begin, PackedGame(str(path), source, content)
                while file.read(_READ_BYTES):
                    pass
                begin += file.num_bytes

    def _members(self, path: Path, file: _CountedFile, source: str) -> Iterator[tuple[int, PackedGame]]:
        archive = ArchiveReader(file, str(path))
        num_games = 0
        for member in archive.members():
            if not member.name.lower().endswith(GAME_SUFFIX):
                continue  # LICENSE and the like
            num_games += 1
            name = f"{path}: {quoted(member.name)[1:-1]}"
            self._check_size(member.size_bytes, name)
            yield member.offset, PackedGame(name, source, archive.content(member))
        if num_games == 0:
            raise DataError(f"{path}: no member ends in {GAME_SUFFIX}; expected one a game")

    @staticmethod
    def _check_size(size: int, name: str) -> None:
        if size > LARGEST_GAME_BYTES:
            raise DataError(
                f"{name}: {counted(size, 'byte')}; expected one game, at most {LARGEST_GAME_BYTES:,} bytes"
            )


def parse_sources(
    sources: Sequence[Source],
    *,
    workers: int,
    count_bytes: Callable[[int], None],
    first_source: int = 0,
    skip_bytes: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> Generator[ParsedChunk[Lc0Chunk] | SourceEnd, None, None]:
    """The games of sources[first_source:], in order, as importer.Parse says. Raises DataError."""
    readers = [
        Lc0Source(index, source, skip_bytes if index == first_source else 0, chunk_bytes, count_bytes)
        for index, source in enumerate(sources)
    ][first_source:]
    return parse_in_order(readers, workers)


GAME = "chess"
TARGET_KIND = "visits"
_V7 = 7
# What the store's column `termination` says of an end; None: it is not known.
TERMINATION: dict[_core.Lc0End, str | None] = {
    _core.Lc0End.UNKNOWN: None,
    _core.Lc0End.WIN: "win",
    _core.Lc0End.STALEMATE: "stalemate",
    _core.Lc0End.REPETITION: "repetition",
    _core.Lc0End.FIFTY_MOVES: "fifty_moves",
    _core.Lc0End.INSUFFICIENT_MATERIAL: "insufficient_material",
    _core.Lc0End.ADJUDICATED: "adjudicated",
    _core.Lc0End.TOO_LONG: "too_long",
}
_OF_V7 = "d_st"
_NUMBERS = tuple(name for name in _core.lc0_number_names() if name != _OF_V7)
_SCHEMA = row_schema([*_NUMBERS, _OF_V7, "best_move"])


def rows_of(chunk: Lc0Chunk, source_name: str, begin: int, end: int) -> pa.RecordBatch:
    """Games begin ... end - 1 of a chunk as rows (row_schema); no move and no number is copied.

    source_name: of the archive or directory; the chunk has the names of its files.
    """
    games = chunk.games
    lists: dict[str, tuple[npt.NDArray[np.int32], npt.NDArray[Any]]] = {
        name: (games.moves_offset, getattr(games, name))
        for name in ("moves", "flags", "root_q", "root_d", "best_q", "visits", "best_move")
    }
    lists |= {name: (games.moves_offset, games.number(name)) for name in _NUMBERS}
    per_game = np.arange(len(games.moves_offset), dtype=np.int32)
    lists["policy_offsets"] = (games.moves_offset + per_game, games.policy_offset)
    lists["policy_move"] = (games.policy_part_offset, games.policy_move)
    lists["policy_prob"] = (games.policy_part_offset, games.policy_prob)
    num_rows, schema = end - begin, _SCHEMA
    columns: dict[str, pa.Array[Any]] = {
        name: _lists(schema.field(name).type, offset, values).slice(begin, num_rows)
        for name, (offset, values) in lists.items()
    }
    ends = [TERMINATION[_core.Lc0End(code)] for code in games.end[begin:end].tolist()]
    columns |= {
        "game": pa.repeat(GAME, num_rows),
        "variant": pa.repeat("standard", num_rows),
        "start_fen": _starts(games).slice(begin, num_rows),
        "result": pa.array(games.result[begin:end]),
        _OF_V7: _of_v7(games, schema.field(_OF_V7).type).slice(begin, num_rows),
        "termination": pa.array(ends, pa.utf8()),
        "source": pa.array(chunk.sources[begin:end], pa.utf8()),
        "target_kind": pa.repeat(TARGET_KIND, num_rows),
    }
    in_order = [
        columns[field.name] if field.name in columns else pa.nulls(num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(in_order, schema=schema)


def _lists(kind: pa.DataType, offset: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> pa.Array[Any]:
    return pa.Array.from_buffers(
        kind, len(offset) - 1, [None, pa.py_buffer(offset.data)], children=[pa.array(values)]
    )


def _of_v7(games: _core.Lc0Games, kind: pa.DataType) -> pa.Array[Any]:
    """The number that V7 alone has; null for games of V6."""
    is_v7 = games.version == _V7
    plies = np.diff(games.moves_offset)
    offset = np.concatenate([[0], np.cumsum(plies * is_v7)]).astype(np.int32)
    values = games.number(_OF_V7)[np.repeat(is_v7, plies)]
    validity = pa.py_buffer(np.packbits(is_v7, bitorder="little").data)
    return pa.Array.from_buffers(
        kind, len(plies), [validity, pa.py_buffer(offset.data)], children=[pa.array(values)]
    )


def _starts(games: _core.Lc0Games) -> pa.Array[Any]:
    """First positions; null for the standard start."""
    is_other = np.diff(games.fen_offset) > 0
    validity = pa.py_buffer(np.packbits(is_other, bitorder="little").data)
    return pa.StringArray.from_buffers(
        len(is_other),
        pa.py_buffer(games.fen_offset.data),
        pa.py_buffer(games.fen_bytes.data),
        validity,
        int(np.count_nonzero(~is_other)),
    )


def import_lc0(
    sources: Sequence[Path],
    store: Path,
    *,
    workers: int,
    progress: bool,
    filters: GameFilters = ALL_GAMES,
    wait: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    shard_limits: tuple[int, int] = (SHARD_GAMES, SHARD_PLIES),
    say: Callable[[str], None] = to_stderr,
) -> ImportReport:
    """Read V6 and V7 files, archives and directories of them (find_sources) into the game store `store`.

    As import_sources does; no game is quarantined: the first that cannot be rebuilt ends the import with a
    DataError that names file and record. chunk_bytes: of packed games that a thread rebuilds at once.
    """
    lc0 = Format(
        game=GAME,
        parse=partial(parse_sources, chunk_bytes=chunk_bytes),
        rows=rows_of,
        name_of_fault=str,
        sha256=sha256_of_source,
    )
    return import_sources(
        lc0,
        find_sources(sources, say),
        store,
        workers=workers,
        progress=progress,
        filters=filters,
        wait=wait,
        shard_limits=shard_limits,
    )
