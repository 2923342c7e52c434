"""Sources of lc0's training data in chunks of whole games, unpacked and rebuilt by the core."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from alphazero import _core
from alphazero.data.importing.files import Source, open_file
from alphazero.data.importing.stream import DescribedFault, ParsedChunk, SourceEnd, parse_in_order
from alphazero.data.lc0.archive import ArchiveReader
from alphazero.data.lc0.source import (
    ARCHIVE_SUFFIX,
    GAME_SUFFIX,
    KIND,
    LARGEST_GAME_BYTES,
    files_of,
    unpacked,
)
from alphazero.errors import DataError
from alphazero.text import counted, printable, quoted

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
