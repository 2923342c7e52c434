"""How far an import has come: what a killed one leaves behind, so that the same command goes on from there.

The journal lies beside the unfinished store and is rewritten after each finished shard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from alphazero.base.errors import DataError
from alphazero.data.formats.files import Source
from alphazero.data.store.store import ShardEntry, SourceEntry
from alphazero.data.store.writer import write_whole

MAGIC = "alphazero-pgn-import"
# Of the journal, and of what the parser makes of PGN: another number, another store.
VERSION = 2


@dataclass(frozen=True)
class Tally:
    """Counts over the games of one source that were read so far."""

    games: int = 0
    imported: int = 0
    plies: int = 0
    contradictions: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)  # by filter

    def plus(self, other: Tally) -> Tally:
        """The sum."""
        return Tally(
            games=self.games + other.games,
            imported=self.imported + other.imported,
            plies=self.plies + other.plies,
            contradictions=self.contradictions + other.contradictions,
            quarantined=dict(sorted(_sum(self.quarantined, other.quarantined).items())),
            filtered=_sum(self.filtered, other.filtered),
        )


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in dict.fromkeys((*one, *other))}


@dataclass(frozen=True)
class Place:
    """Where reading goes on: in a source, at a chunk's first byte, behind the games that tally counts.

    offset, lines, games: what of the source's text lies before that chunk.
    """

    source_index: int = 0
    offset: int = 0
    lines: int = 0
    games: int = 0
    tally: Tally = Tally()


@dataclass(frozen=True)
class Journal:
    """All that an import needs to go on, next to the shards themselves."""

    sources: tuple[tuple[str, int, int], ...]  # name, bytes, modification time (ns)
    shard_limits: tuple[int, int]
    filters: tuple[str, ...] = ()  # of games, as people read them
    shards: tuple[ShardEntry, ...] = ()
    finished: tuple[SourceEntry, ...] = ()
    place: Place = Place()
    quarantine_size_bytes: int = 0

    @classmethod
    def begin(
        cls, sources: Sequence[Source], shard_limits: tuple[int, int], filters: Sequence[str] = ()
    ) -> Journal:
        """The journal of an import that has not read anything."""
        named = tuple((s.name, s.size_bytes, s.mtime_ns) for s in sources)
        return cls(named, shard_limits, tuple(filters))

    def save(self, path: Path) -> None:
        """Make it durable. Raises DataError."""
        body = {"magic": MAGIC, "version": VERSION, **asdict(self)}
        write_whole(path, json.dumps(body).encode())

    @classmethod
    def load(cls, path: Path) -> Journal | None:
        """The journal of an import that was broken off, or None. Raises DataError."""
        try:
            body = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: cannot read: {error}; remove {path.parent} to start anew") from error
        if not isinstance(body, dict) or (body.get("magic"), body.get("version")) != (MAGIC, VERSION):
            raise DataError(f"{path}: no journal of this version; remove {path.parent} to start anew")
        try:
            return cls(
                sources=tuple((name, size, mtime) for name, size, mtime in body["sources"]),
                shard_limits=(body["shard_limits"][0], body["shard_limits"][1]),
                filters=tuple(map(str, body.get("filters", ()))),
                shards=tuple(ShardEntry.from_json(entry) for entry in body["shards"]),
                finished=tuple(SourceEntry.from_json(entry) for entry in body["finished"]),
                place=_place(body["place"]),
                quarantine_size_bytes=int(body["quarantine_size_bytes"]),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"{path}: damaged ({error}); remove {path.parent} to start anew") from error


def _place(body: dict[str, Any]) -> Place:
    return Place(**{**body, "tally": Tally(**body["tally"])})
