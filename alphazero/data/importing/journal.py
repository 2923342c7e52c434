"""How far an import has come: what a killed one leaves behind, so that the same command goes on from there.

The journal lies beside the unfinished store and is rewritten after each finished shard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from alphazero.data.importing.files import Source
from alphazero.data.store.store import ShardEntry, SourceEntry
from alphazero.data.store.writer import write_whole
from alphazero.errors import DataError

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

    def plus(self, other: Tally) -> Tally:
        """The sum."""
        kinds = sorted({*self.quarantined, *other.quarantined})
        return Tally(
            games=self.games + other.games,
            imported=self.imported + other.imported,
            plies=self.plies + other.plies,
            contradictions=self.contradictions + other.contradictions,
            quarantined={k: self.quarantined.get(k, 0) + other.quarantined.get(k, 0) for k in kinds},
        )


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
    shards: tuple[ShardEntry, ...] = ()
    finished: tuple[SourceEntry, ...] = ()
    place: Place = Place()
    quarantine_size_bytes: int = 0

    @classmethod
    def begin(cls, sources: Sequence[Source], shard_limits: tuple[int, int]) -> Journal:
        """The journal of an import that has not read anything."""
        return cls(tuple((s.name, s.size_bytes, s.mtime_ns) for s in sources), shard_limits)

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
                shards=tuple(ShardEntry.from_json(entry) for entry in body["shards"]),
                finished=tuple(SourceEntry.from_json(entry) for entry in body["finished"]),
                place=_place(body["place"]),
                quarantine_size_bytes=int(body["quarantine_size_bytes"]),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"{path}: damaged ({error}); remove {path.parent} to start anew") from error


def _place(body: dict[str, Any]) -> Place:
    return Place(**{**body, "tally": Tally(**body["tally"])})
