"""PGN sources in chunks of whole games, parsed by the core.

Import of PGN into a game store.

Parsed PGN games as rows of the store.

Files of PGN: found, and their text read whatever their compression.
"""

from __future__ import annotations

import bz2
import io
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

import alphazero._core as _core
from alphazero._core import PgnFault
from alphazero.base.errors import DataError
from alphazero.base.files import sha256_of
from alphazero.data.formats.files import (
    GZIP_ERROR,
    HashingFile,
    Kind,
    Source,
    begin_gzip,
    find_files,
    frames,
    ignore,
    read_blocks,
)
from alphazero.data.formats.importer import ALL_GAMES, Format, ImportReport, import_sources, to_stderr
from alphazero.data.formats.parallel import ParsedChunk, SourceEnd, parse_in_order
from alphazero.data.formats.quarantine import MOST_LINES
from alphazero.data.store.schema import PLY_NOTES
from alphazero.data.store.writer import ROW_SCHEMA, SHARD_GAMES, SHARD_PLIES, row_schema
from alphazero.settings.sections import GameFilters

SUFFIXES = tuple(f".pgn{packing}" for packing in ("", ".gz", ".bz2", ".zst"))
KIND = Kind("PGN games", "PGN files", ", ".join(SUFFIXES), lambda name: name.endswith(SUFFIXES))

_RAW_BLOCK_BYTES = 1 << 20
# Its library unfolds all that it is given. A block of up to 128 KiB takes 4 bytes at least (RFC 8878, section
# 3.1.1.2), so this much makes at most 64 MiB.
_ZSTD_PIECE_BYTES = 1 << 11
_ZSTD_WINDOW_BYTES = 1 << 27  # the decoder holds as much as the header asks for; zstd's own limit

_REFUSED = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\xfd7zXZ\x00": "xz data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_DAMAGE = (EOFError, zstandard.ZstdError, GZIP_ERROR)


def find_sources(arguments: Sequence[Path], say: Callable[[str], None] = ignore) -> list[Source]:
    """The PGN files behind paths, as find_files has them. Raises DataError."""
    return find_files(arguments, KIND, say)


class SourceReader:
    """The text of one source, decompressed, in blocks; afterwards the sha256 of the file itself."""

    def __init__(self, source: Source, count_bytes: Callable[[int], None]) -> None:
        """`count_bytes` is told how much of the file itself was read, from whichever thread reads.

        Raises DataError.
        """
        self.source = source
        self.text_bytes = 0  # told so far
        self._raw = HashingFile(source.path, count_bytes, KIND.what)
        self._buffered = io.BufferedReader(self._raw, _RAW_BLOCK_BYTES)

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """The text in blocks of about `block_bytes`. Raises DataError for damaged data."""
        packing = "file"
        try:
            head = self._buffered.peek(8)[:8]
            for magic, what in _REFUSED.items():
                if head.startswith(magic):
                    raise DataError(
                        f"{self.source.path}: this is {what}; expected PGN text: plain, gzip, bzip2 or zstd"
                    )
            packing, opened = self._unpack(head, block_bytes)
            for block in opened:
                self.text_bytes += len(block)
                yield block
        except _DAMAGE as error:
            raise self._damaged(packing, error) from error
        except OSError as error:
            if error.errno is None:  # bz2 says so of damaged data
                raise self._damaged(packing, error) from error
            raise DataError(f"{self.source.path}: cannot read: {error.strerror}") from error

    def sha256(self) -> str:
        """Hex digest of the whole file; reads what is left of it."""
        try:
            while self._buffered.read(_RAW_BLOCK_BYTES):
                pass
        except OSError as error:
            raise DataError(f"{self.source.path}: cannot read: {error.strerror}") from error
        return self._raw.digest.hexdigest()

    def close(self) -> None:
        """Let go of the file."""
        self._buffered.close()

    def _unpack(self, head: bytes, block_bytes: int) -> tuple[str, Iterator[bytes]]:
        if head.startswith(b"\x1f\x8b"):
            return "gzip", frames(self._buffered, begin_gzip)
        if head.startswith(b"BZh"):
            return "bzip2", frames(self._buffered, bz2.BZ2Decompressor)
        if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
            return "zstd", frames(self._buffered, _ZstdFrame)
        return "text", read_blocks(self._buffered, block_bytes)

    def _damaged(self, packing: str, error: BaseException) -> DataError:
        reason = " ".join(str(error).split())
        if "too much memory" in reason:
            reason = (
                f"its window is above {_ZSTD_WINDOW_BYTES >> 20} MiB; expected one made without zstd --long"
                " above 27"
            )
        return DataError(
            f"{self.source.path}: damaged {packing} data after {self.text_bytes} bytes of text: {reason}"
        )


class _ZstdFrame:
    """A zstd frame that is given its data piece by piece, so that what a call unfolds is bounded."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
        self._waiting = b""
        self._begin = 0  # of what waits

    @property
    def eof(self) -> bool:
        """The frame has ended."""
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        """All that it was given is unfolded."""
        return self._begin >= len(self._waiting)

    @property
    def unused_data(self) -> bytes:
        """What it was given beyond the frame's end."""
        return self._frame.unused_data + self._waiting[self._begin :]

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Unfold a piece of `data`, or of what was given before: that bounds the text, not max_length."""
        if data:
            self._waiting, self._begin = data, 0
        piece = self._waiting[self._begin : self._begin + _ZSTD_PIECE_BYTES]
        self._begin += len(piece)
        return self._frame.decompress(piece)


CHUNK_BYTES = 4 << 20  # text a parsing task gets
LARGEST_GAME_BYTES = 1 << 26  # text without a second game beyond this is no PGN


@dataclass(frozen=True)
class TextChunk:
    """Whole games: text[:end], at `offset` bytes of the source's text."""

    text: bytes
    end: int
    offset: int


def cut_chunks(reader: SourceReader, skip_bytes: int, chunk_bytes: int) -> Iterator[TextChunk]:
    """Cut a source's text where games begin, after its first `skip_bytes` (a game begins there)."""
    parts: list[bytes] = []
    offset, size, wanted, to_skip = skip_bytes, 0, chunk_bytes, skip_bytes
    for block in reader.blocks(chunk_bytes):
        skipped = min(to_skip, len(block))
        to_skip -= skipped
        parts.append(block[skipped:] if skipped else block)
        size += len(block) - skipped
        if size < wanted:
            continue
        text = b"".join(parts)
        cut = _core.last_game_begin(text)
        if cut == 0:
            if size > LARGEST_GAME_BYTES:
                raise DataError(f"{reader.source.path}: a game of over {size} bytes at byte {offset}: no PGN")
            parts, wanted = [text], min(2 * size, max(size, LARGEST_GAME_BYTES) + 1)
            continue
        yield TextChunk(text, cut, offset)
        parts, size, wanted = [text[cut:]], size - cut, chunk_bytes
        offset += cut
    if size:
        yield TextChunk(b"".join(parts), size, offset)


@dataclass(frozen=True)
class _SourceText:
    """One source to be read, from `skip_bytes` of its text on."""

    source_index: int
    source: Source
    skip_bytes: int
    chunk_bytes: int
    count_bytes: Callable[[int], None]

    def items(self) -> Generator[TextChunk | SourceEnd, None, None]:
        """The text in chunks, then the end. Raises DataError."""
        with closing(SourceReader(self.source, self.count_bytes)) as reader:
            yield from cut_chunks(reader, self.skip_bytes, self.chunk_bytes)
            yield SourceEnd(self.source_index, reader.sha256())

    def parse(self, chunk: TextChunk) -> ParsedChunk[_core.PgnGames]:
        return ParsedChunk(self.source_index, chunk.offset, _core.parse_pgn(chunk.text, 0, chunk.end))


def parse_sources(
    sources: Sequence[Source],
    *,
    workers: int,
    count_bytes: Callable[[int], None],
    first_source: int = 0,
    skip_bytes: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> Generator[ParsedChunk[_core.PgnGames] | SourceEnd, None, None]:
    """The games of sources[first_source:], in order, each source's chunks and then its end.

    The first `skip_bytes` of the first source's text are passed over. One worker is the calling thread;
    with more, `count_bytes` is called from many threads. Raises DataError where the fault stands in the
    order of the sources.
    """
    texts = [
        _SourceText(index, source, skip_bytes if index == first_source else 0, chunk_bytes, count_bytes)
        for index, source in enumerate(sources)
    ][first_source:]
    return parse_in_order(texts, workers)


GAME = "chess"
STANDARD = "standard"
CHESS960 = "chess960"


class _Notes(Protocol):
    """A column of the core with a list for each game, which may be null, and an entry for each ply."""

    @property
    def value(self) -> npt.NDArray[Any]: ...

    @property
    def valid(self) -> npt.NDArray[np.uint8]: ...

    @property
    def offset(self) -> npt.NDArray[np.int32]: ...

    @property
    def list_valid(self) -> npt.NDArray[np.uint8]: ...


def _buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(values.data)


def _validity(valid: npt.NDArray[np.uint8]) -> pa.Buffer:
    return _buffer(np.packbits(valid, bitorder="little"))


def _text(column: _core.PgnText) -> pa.Array[Any]:
    num_rows = len(column.valid)
    return pa.StringArray.from_buffers(
        num_rows,
        _buffer(column.offset),
        _buffer(column.bytes),
        _validity(column.valid),
        num_rows - int(np.count_nonzero(column.valid)),
    )


def _fixed(kind: pa.DataType, values: npt.NDArray[Any], valid: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, len(values), [_validity(valid), _buffer(values)])


def _lists(kind: pa.DataType, notes: _Notes) -> pa.Array[Any]:
    return pa.Array.from_buffers(
        pa.list_(kind),
        len(notes.list_valid),
        [_validity(notes.list_valid), _buffer(notes.offset)],
        children=[_fixed(kind, notes.value, notes.valid)],
    )


def _version_2_columns(games: _core.PgnGames) -> dict[str, pa.Array[Any]]:
    """Those of which the games say anything."""
    columns: dict[str, pa.Array[Any]] = {}
    for name, kind in PLY_NOTES.items():
        notes: _Notes = getattr(games, name)
        if len(notes.value):
            columns[name] = _lists(kind, notes)
    if np.any(games.time_control.valid):
        columns["time_control"] = _text(games.time_control)
    return columns


def _part(column: pa.Array[Any], begin: int, num_rows: int) -> pa.Array[Any]:
    return column if len(column) == num_rows else column.slice(begin, num_rows)


def rows_of(games: _core.PgnGames, source_name: str, begin: int, end: int) -> pa.RecordBatch:
    """Parsed games begin ... end - 1 as rows (row_schema); most columns are views, no move is copied."""
    num_games, num_rows = len(games.result), end - begin
    moves = pa.Array.from_buffers(
        ROW_SCHEMA.field("moves").type,
        num_games,
        [None, _buffer(games.moves_offset)],
        children=[pa.array(games.moves)],
    )
    columns: dict[str, pa.Array[Any]] = {
        "game": pa.repeat(GAME, num_rows),
        "variant": pa.array(np.where(games.is_chess960[begin:end], CHESS960, STANDARD), pa.utf8()),
        "start_fen": _text(games.start_fen),
        "moves": moves,
        "result": _fixed(pa.int8(), games.result, games.result_valid),
        "termination": _text(games.termination),
        "white": _text(games.white),
        "black": _text(games.black),
        "white_elo": _fixed(pa.int32(), games.white_elo.value, games.white_elo.valid),
        "black_elo": _fixed(pa.int32(), games.black_elo.value, games.black_elo.valid),
        "event": _text(games.event),
        "date": _text(games.date),
        "source": pa.repeat(source_name, num_rows),
    }
    further = _version_2_columns(games)
    columns |= further
    schema = row_schema(further)
    in_order = [
        _part(columns[field.name], begin, num_rows)
        if field.name in columns
        else pa.nulls(num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(in_order, schema=schema)


def import_pgn(
    sources: Sequence[Path],
    store: Path,
    *,
    workers: int,
    progress: bool,
    filters: GameFilters = ALL_GAMES,
    wait: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    shard_limits: tuple[int, int] = (SHARD_GAMES, SHARD_PLIES),
    most_quarantine_lines: int = MOST_LINES,
    say: Callable[[str], None] = to_stderr,
) -> ImportReport:
    """Read PGN files and directories (find_sources) into the game store `store`, as import_sources does.

    chunk_bytes: of text that a thread parses at once. say: told of what is passed over. Raises DataError.
    """
    pgn = Format(
        game=GAME,
        parse=partial(parse_sources, chunk_bytes=chunk_bytes),
        rows=rows_of,
        name_of_fault=lambda fault: PgnFault(fault).name.lower(),
        sha256=lambda source: sha256_of(source.path),
    )
    return import_sources(
        pgn,
        find_sources(sources, say),
        store,
        workers=workers,
        progress=progress,
        filters=filters,
        wait=wait,
        shard_limits=shard_limits,
        most_quarantine_lines=most_quarantine_lines,
    )
