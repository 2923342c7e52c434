"""Files of PGN: found, and their text read whatever their compression."""

from __future__ import annotations

import bz2
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import zstandard

from alphazero.data.importing.files import (
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
from alphazero.errors import DataError

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
