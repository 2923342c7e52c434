"""PGN: its files' text read whatever their compression, cut into whole games, and parsed games as rows."""

from __future__ import annotations

import bz2
import hashlib
import io
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.text import printable
from alphazero.data.formats.files import (
    READ_BYTES,
    ZSTD_WINDOW_BYTES,
    HashingFile,
    Kind,
    Source,
    begin_gzip,
    read_to_end,
    unpacked,
)
from alphazero.data.formats.parallel import Format, SourceEnd
from alphazero.data.store.schema import FIELDS, PGN_HEADERS, PLY_NOTES, SCHEMA
from alphazero.data.store.writer import (
    ROW_SCHEMA,
    list_column,
    number_column,
    row_schema,
    rows_with,
    text_column,
)

PACKINGS = ("", ".gz", ".bz2", ".zst")
SUFFIXES = tuple(f".pgn{packing}" for packing in PACKINGS)
KIND = Kind("PGN games", "PGN files", ", ".join(SUFFIXES), lambda name: name.endswith(SUFFIXES))

# Its library unfolds all that it is given. A block of up to 128 KiB takes 4 bytes at least (RFC 8878, section
# 3.1.1.2), so this much makes at most 64 MiB.
_ZSTD_PIECE_BYTES = 1 << 11

_REFUSED = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\xfd7zXZ\x00": "xz data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


class SourceReader:
    """The text of one source, decompressed, in blocks; afterwards the sha256 of the file itself."""

    def __init__(self, source: Source, count_bytes: Callable[[int], None], what: str = KIND.what) -> None:
        """`count_bytes` receives how much of the file itself was read. what: is in it. Raises DataError."""
        self.source = source
        self._what = what
        self._digest = hashlib.sha256()
        self._file = io.BufferedReader(
            HashingFile(source.path, count_bytes, what, self._digest.update), READ_BYTES
        )

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """The text in blocks of about `block_bytes`. Raises DataError for damaged data."""
        head, path = self._file.peek(8)[:8], str(self.source.path)
        for magic, what in _REFUSED.items():
            if head.startswith(magic):
                expected = f"expected {self._what} as text: plain, gzip, bzip2 or zstd"
                raise DataError(f"{path}: this is {what}; {expected}")
        if head.startswith(b"\x1f\x8b"):
            return unpacked(self._file, begin_gzip, path, "gzip")
        if head.startswith(b"BZh"):
            return unpacked(self._file, bz2.BZ2Decompressor, path, "bzip2")
        if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
            return unpacked(self._file, _ZstdFrame, path, "zstd")
        return iter(partial(self._file.read, block_bytes), b"")

    def sha256(self) -> str:
        """Hex digest of the whole file; reads what is left of it."""
        read_to_end(self._file)
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _ZstdFrame:
    """A zstd frame that is given its data piece by piece, so that what a call unfolds is bounded."""

    def __init__(self) -> None:
        import zstandard

        self._frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj()
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


def text_lines(path: Path, what: str) -> Iterator[str]:
    """The lines of a text file, plain or packed, without their ends; bytes that are no UTF-8 become U+FFFD.

    what: is in it, for errors. Raises DataError, also for binary data, a line of over a MiB, a text of over a
    GiB.
    """
    source, rest, is_first = Source(path, printable(path.name), 0, 0, (path,)), b"", True
    size = 0
    with closing(SourceReader(source, lambda count: None, what)) as reader:
        for block in chain(reader.blocks(READ_BYTES), (b"\n",)):
            size += len(block)
            if size > MOST_TEXT_BYTES:
                raise DataError(f"{path}: over {MOST_TEXT_BYTES:,} bytes; expected {what}")
            if b"\0" in block:
                raise DataError(f"{path}: binary data; expected {what} as text")
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > READ_BYTES:
                raise DataError(f"{path}: a line of over {READ_BYTES:,} bytes; expected {what}")
            for line in lines:
                yield line.decode("utf-8-sig" if is_first else "utf-8", errors="replace").rstrip("\r")
                is_first = False


MOST_TEXT_BYTES = 1 << 30
CHUNK_BYTES = 4 << 20  # text a parsing task gets
LARGEST_GAME_BYTES = 1 << 26  # text without a second game beyond this is no PGN


def cut_chunks(reader: SourceReader, chunk_bytes: int) -> Iterator[bytes]:
    """A source's text, cut where games begin. Raises DataError, after the whole games before the damage."""
    parts: list[bytes] = []
    path, offset, size, wanted = reader.source.path, 0, 0, chunk_bytes
    try:
        for block in reader.blocks(chunk_bytes):
            parts.append(block)
            size += len(block)
            if size < wanted:
                continue
            text = b"".join(parts)
            cut = _core.last_game_begin(text)
            if cut == 0:
                if size > LARGEST_GAME_BYTES:
                    raise DataError(f"{path}: a game of over {size} bytes at byte {offset}: no PGN")
                parts, wanted = [text], min(2 * size, max(size, LARGEST_GAME_BYTES) + 1)
                continue
            yield text[:cut]
            parts, size, wanted = [text[cut:]], size - cut, chunk_bytes
            offset += cut
    except DataError:
        text = b"".join(parts)
        if cut := _core.last_game_begin(text):
            yield text[:cut]
        raise
    if size:
        yield b"".join(parts)


GAME = "chess"
STANDARD = "standard"
CHESS960 = "chess960"


def _header(games: _core.PgnGames, name: str) -> pa.Array[Any]:
    column = getattr(games, name)
    if pa.types.is_integer(FIELDS[name].type):
        return number_column(FIELDS[name].type, column.value, column.valid)
    return text_column(column.offset, column.bytes, column.valid)


def _version_2_columns(games: _core.PgnGames) -> dict[str, pa.Array[Any]]:
    """Those of which the games say anything."""
    columns = {
        name: _header(games, name)
        for name in PGN_HEADERS
        if name not in SCHEMA.names and np.any(getattr(games, name).valid)
    }
    for name, kind in PLY_NOTES.items():
        notes = getattr(games, name)
        if len(notes.value):
            entries = number_column(kind, notes.value, notes.valid)
            columns[name] = list_column(pa.list_(kind), notes.offset, entries, notes.list_valid)
    return columns


class _Pgn(Format[bytes, _core.PgnGames]):
    """PGN as parallel.Format has it."""

    kind = KIND
    game = GAME
    chunk_bytes = CHUNK_BYTES

    def chunks(
        self, source: Source, count_bytes: Callable[[int], None], chunk_bytes: int
    ) -> Generator[bytes | SourceEnd, None, None]:
        with closing(SourceReader(source, count_bytes)) as reader:
            fault = ""
            try:
                yield from cut_chunks(reader, chunk_bytes)
            except DataError as error:
                if source.is_named:
                    raise
                fault = str(error).removeprefix(f"{source.path}: ")
            yield SourceEnd(reader.sha256(), fault)

    def parse(self, chunk: bytes) -> _core.PgnGames:
        return _core.parse_pgn(chunk, 0, len(chunk))

    def rows(self, games: _core.PgnGames, source_name: str, begin: int, end: int) -> pa.RecordBatch:
        num_rows = end - begin
        moves = list_column(ROW_SCHEMA.field("moves").type, games.moves_offset, pa.array(games.moves))
        columns: dict[str, pa.Array[Any]] = {
            "game": pa.repeat(GAME, num_rows),
            "variant": pa.array(np.where(games.is_chess960[begin:end], CHESS960, STANDARD), pa.utf8()),
            "moves": moves,
            "result": number_column(pa.int8(), games.result, games.result_valid),
            "source": pa.repeat(source_name, num_rows),
        }
        of_headers = [name for name in ("start_fen", *PGN_HEADERS) if name in SCHEMA.names]
        columns |= {name: _header(games, name) for name in of_headers}
        further = _version_2_columns(games)
        return rows_with(row_schema(further), columns | further, begin, num_rows)


PGN = _Pgn()
