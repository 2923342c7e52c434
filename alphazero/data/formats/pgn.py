"""PGN: its files' text read whatever their compression, cut into whole games, and parsed games as rows."""

from __future__ import annotations

import bz2
import hashlib
import io
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import alphazero._core as _core
from alphazero._core import PgnFault
from alphazero.base.errors import DataError
from alphazero.data.formats.files import (
    READ_BYTES,
    HashingFile,
    Kind,
    Source,
    begin_gzip,
    frames,
    read_blocks,
    read_to_end,
    unpacking_errors,
)
from alphazero.data.formats.parallel import Format, SourceEnd
from alphazero.data.store.schema import PLY_NOTES
from alphazero.data.store.writer import (
    ROW_SCHEMA,
    list_column,
    number_column,
    row_schema,
    rows_with,
    text_column,
)

SUFFIXES = tuple(f".pgn{packing}" for packing in ("", ".gz", ".bz2", ".zst"))
KIND = Kind("PGN games", "PGN files", ", ".join(SUFFIXES), lambda name: name.endswith(SUFFIXES))

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


class SourceReader:
    """The text of one source, decompressed, in blocks; afterwards the sha256 of the file itself."""

    def __init__(self, source: Source, count_bytes: Callable[[int], None]) -> None:
        """`count_bytes` receives how much of the file itself was read. Raises DataError."""
        self.source = source
        self.text_bytes = 0  # delivered so far
        self._digest = hashlib.sha256()
        self._file = io.BufferedReader(
            HashingFile(source.path, count_bytes, KIND.what, self._digest), READ_BYTES
        )

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """The text in blocks of about `block_bytes`. Raises DataError for damaged data."""
        packing = "file"
        try:
            head = self._file.peek(8)[:8]
            for magic, what in _REFUSED.items():
                if head.startswith(magic):
                    raise DataError(
                        f"{self.source.path}: this is {what}; expected PGN text: plain, gzip, bzip2 or zstd"
                    )
            packing, opened = self._unpack(head, block_bytes)
            for block in opened:
                self.text_bytes += len(block)
                yield block
        except unpacking_errors() as error:  # what cannot be read is a DataError already
            raise self._damaged(packing, error) from error

    def sha256(self) -> str:
        """Hex digest of the whole file; reads what is left of it."""
        read_to_end(self._file)
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _unpack(self, head: bytes, block_bytes: int) -> tuple[str, Iterator[bytes]]:
        if head.startswith(b"\x1f\x8b"):
            return "gzip", frames(self._file, begin_gzip)
        if head.startswith(b"BZh"):
            return "bzip2", frames(self._file, bz2.BZ2Decompressor)
        if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
            return "zstd", frames(self._file, _ZstdFrame)
        return "text", read_blocks(self._file, block_bytes)

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
        import zstandard

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
    """Whole games: text[:end]."""

    text: bytes
    end: int


def cut_chunks(reader: SourceReader, chunk_bytes: int) -> Iterator[TextChunk]:
    """Cut a source's text where games begin."""
    parts: list[bytes] = []
    offset, size, wanted = 0, 0, chunk_bytes
    for block in reader.blocks(chunk_bytes):
        parts.append(block)
        size += len(block)
        if size < wanted:
            continue
        text = b"".join(parts)
        cut = _core.last_game_begin(text)
        if cut == 0:
            if size > LARGEST_GAME_BYTES:
                raise DataError(f"{reader.source.path}: a game of over {size} bytes at byte {offset}: no PGN")
            parts, wanted = [text], min(2 * size, max(size, LARGEST_GAME_BYTES) + 1)
            continue
        yield TextChunk(text, cut)
        parts, size, wanted = [text[cut:]], size - cut, chunk_bytes
        offset += cut
    if size:
        yield TextChunk(b"".join(parts), size)


GAME = "chess"
STANDARD = "standard"
CHESS960 = "chess960"


def _text(column: _core.PgnText) -> pa.Array[Any]:
    return text_column(column.offset, column.bytes, column.valid)


def _version_2_columns(games: _core.PgnGames) -> dict[str, pa.Array[Any]]:
    """Those of which the games say anything."""
    columns: dict[str, pa.Array[Any]] = {}
    for name, kind in PLY_NOTES.items():
        notes = getattr(games, name)
        if len(notes.value):
            entries = number_column(kind, notes.value, notes.valid)
            columns[name] = list_column(pa.list_(kind), notes.offset, entries, notes.list_valid)
    if np.any(games.time_control.valid):
        columns["time_control"] = _text(games.time_control)
    return columns


def rows_of(games: _core.PgnGames, source_name: str, begin: int, end: int) -> pa.RecordBatch:
    """Parsed games begin ... end - 1 as rows (row_schema); most columns are views, no move is copied."""
    num_rows = end - begin
    moves = list_column(ROW_SCHEMA.field("moves").type, games.moves_offset, pa.array(games.moves))
    columns: dict[str, pa.Array[Any]] = {
        "game": pa.repeat(GAME, num_rows),
        "variant": pa.array(np.where(games.is_chess960[begin:end], CHESS960, STANDARD), pa.utf8()),
        "start_fen": _text(games.start_fen),
        "moves": moves,
        "result": number_column(pa.int8(), games.result, games.result_valid),
        "termination": _text(games.termination),
        "white": _text(games.white),
        "black": _text(games.black),
        "white_elo": number_column(pa.int32(), games.white_elo.value, games.white_elo.valid),
        "black_elo": number_column(pa.int32(), games.black_elo.value, games.black_elo.valid),
        "event": _text(games.event),
        "date": _text(games.date),
        "source": pa.repeat(source_name, num_rows),
    }
    further = _version_2_columns(games)
    return rows_with(row_schema(further), columns | further, begin, num_rows)


class _Pgn(Format[TextChunk, _core.PgnGames]):
    """PGN as parallel.Format has it."""

    kind = KIND
    game = GAME
    chunk_bytes = CHUNK_BYTES

    def chunks(
        self, source: Source, count_bytes: Callable[[int], None], chunk_bytes: int
    ) -> Generator[TextChunk | SourceEnd, None, None]:
        with closing(SourceReader(source, count_bytes)) as reader:
            yield from cut_chunks(reader, chunk_bytes)
            yield SourceEnd(reader.sha256())

    def parse(self, chunk: TextChunk) -> _core.PgnGames:
        return _core.parse_pgn(chunk.text, 0, chunk.end)

    def rows(self, games: _core.PgnGames, source_name: str, begin: int, end: int) -> pa.RecordBatch:
        return rows_of(games, source_name, begin, end)

    def name_of_fault(self, fault: int) -> str:
        return PgnFault(fault).name.lower()


PGN = _Pgn()
