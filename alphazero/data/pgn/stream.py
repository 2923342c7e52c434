"""PGN sources in chunks of whole games, parsed by the core."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from alphazero import _core
from alphazero.data.importing.files import Source
from alphazero.data.importing.stream import ParsedChunk, SourceEnd, parse_in_order
from alphazero.data.pgn.source import SourceReader
from alphazero.errors import DataError

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
