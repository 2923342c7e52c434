"""The game store: a directory of immutable Arrow shards, a row a game, under one manifest.

DIR/manifest.json    magic, version, shards with row counts and sha256, sources, totals
DIR/shard-*.arrow    Arrow IPC files, uncompressed, one record batch each (schema.py)
DIR/quarantine.jsonl a line for each game that could not be imported, and why

Shards are memory-mapped; C++ reads them through the numpy views of ShardView. Lengths, offsets and words are
checked before anything is looked up by them; contents are checked against the manifest by verification.py.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.base.files import sha256_of
from alphazero.base.records import from_table
from alphazero.base.text import quoted, reason
from alphazero.data.store.columns import (
    EvaluationView,
    SearchView,
    buffer_values,
    check_note_lengths,
    check_values,
    evaluation_view,
    list_view,
    search_view,
    validity,
)
from alphazero.data.store.schema import FIELDS, OLDEST_VERSION, VERSION, schema_with, version_of
from alphazero.games.registry import get_game, known_game

MAGIC = "alphazero-game-store"
MANIFEST_NAME = "manifest.json"
QUARANTINE_NAME = "quarantine.jsonl"

_NOT_KEPT = ("magic", "games", "plies")  # of manifest.json: known without it
_SHARD_NAME = re.compile(r"shard-\d{5,}\.arrow", re.ASCII)


@contextmanager
def named_faults(doing: str, path: Path, *, within: bool = False) -> Iterator[None]:
    """What the system refuses in the block as a DataError: 'PATH: cannot DOING: No space left on device'.

    within: `path` is a directory, and the file that the system names in it is named.
    """
    try:
        yield
    except OSError as error:
        filename = (within and error.filename) or path
        raise DataError(f"{filename}: cannot {doing}: {error.strerror or error}") from error


def shard_name(number: int) -> str:
    """File name of a store's shard, counted from 0."""
    return f"shard-{number:05d}.arrow"


@dataclass(frozen=True)
class ShardEntry:
    """A shard as the manifest knows it."""

    name: str
    games: int
    plies: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class SourceEntry:
    """A file that games came from.

    quarantined: games that could not be imported, by kind of fault (_core.PgnFault in lower case; unreadable:
    the rest of a damaged file). skipped: words of the imported games that are no moves.
    contradictions: imported games whose header result differs from the mate or stalemate on the board.
    filtered: games that filters left out, by filter; games = imported + quarantined + filtered.
    rescored: imported games that tablebases gave another result, by both ('1-0 -> 1/2-1/2'), and `cut`: those
    whose end is left out.
    """

    name: str
    size_bytes: int
    sha256: str
    games: int
    imported: int
    plies: int
    quarantined: dict[str, int]
    contradictions: int
    filtered: dict[str, int] = field(default_factory=dict)
    rescored: dict[str, int] = field(default_factory=dict)
    skipped: int = 0

    @property
    def num_quarantined(self) -> int:
        """Games that could not be imported."""
        return sum(self.quarantined.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values; those with a default only where they say something."""
        optional = ("filtered", "rescored", "skipped")
        return {name: value for name, value in asdict(self).items() if value or name not in optional}


@dataclass(frozen=True)
class QuarantineEntry:
    """quarantine.jsonl as the manifest knows it."""

    games: int
    size_bytes: int
    sha256: str


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _check_counts(entry: object) -> None:
    """Raises ValueError unless the numbers of an entry of a manifest are counts."""
    for name, value in vars(entry).items():
        counts = value.values() if isinstance(value, dict) else [value] if isinstance(value, int) else []
        if not all(0 <= count < 1 << 62 for count in counts):
            raise ValueError(f"{name} {quoted(value)}; expected counts")


@dataclass(frozen=True)
class Manifest:
    """What a store holds. `sha256` is over all the rest and names the store's content."""

    game: str
    shards: tuple[ShardEntry, ...]
    sources: tuple[SourceEntry, ...]
    quarantine: QuarantineEntry
    version: int = OLDEST_VERSION
    filters: tuple[str, ...] = ()  # of games, at import: 'min_elo 1500'
    rescored_by: str = ""  # tablebases, at import

    @property
    def games(self) -> int:
        """Games in all shards."""
        return sum(shard.games for shard in self.shards)

    @property
    def plies(self) -> int:
        """Moves in all shards."""
        return sum(shard.plies for shard in self.shards)

    @property
    def quarantined(self) -> dict[str, int]:
        """Games that could not be imported, by kind of fault, over all sources."""
        return _total(source.quarantined for source in self.sources)

    @property
    def filtered(self) -> dict[str, int]:
        """Games that filters left out at import, by filter, over all sources."""
        return {name: sum(source.filtered.get(name, 0) for source in self.sources) for name in self.filters}

    @property
    def rescored(self) -> dict[str, int]:
        """Games that tablebases changed at import, over all sources; see SourceEntry."""
        return _total(source.rescored for source in self.sources)

    def body(self) -> dict[str, Any]:
        """The JSON form without its own checksum."""
        return {
            **({"filters": list(self.filters)} if self.filters else {}),
            **({"rescored_by": self.rescored_by} if self.rescored_by else {}),
            "magic": MAGIC,
            "version": self.version,
            "game": self.game,
            "games": self.games,
            "plies": self.plies,
            "shards": [asdict(shard) for shard in self.shards],
            "sources": [source.to_json() for source in self.sources],
            "quarantine": asdict(self.quarantine),
        }

    @property
    def game_now(self) -> str:
        """The game by the name that it has in this process (registry.known_game). Raises ConfigError."""
        return known_game(self.game)

    @cached_property
    def sha256(self) -> str:
        """Hex digest that equal stores share on any host."""
        return _digest(self.body())

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps({**self.body(), "manifest_sha256": self.sha256}, indent=1) + "\n"

    @classmethod
    def from_json(cls, path: Path) -> Manifest:
        """Read and check manifest.json; raises DataError."""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise DataError(f"{path}: is no file; expected the manifest of a game store")
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DataError(f"{path.parent}: no game store here ({path.name} is missing)") from error
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot read: {reason(error)}") from error
        try:
            body = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:  # numbers too long, lists too deep
            raise DataError(f"{path}: no manifest of a game store: {reason(error)}") from error
        if not isinstance(body, dict) or body.get("magic") != MAGIC:
            raise DataError(f"{path}: no manifest of a game store; expected magic {MAGIC!r}")
        version = body.get("version")
        if type(version) is not int or not OLDEST_VERSION <= version <= VERSION:
            raise DataError(
                f"{path}: version {quoted(version)} of the game store; this program reads versions"
                f" {OLDEST_VERSION} to {VERSION}"
            )
        recorded = body.pop("manifest_sha256", None)
        if recorded != _digest(body):
            raise DataError(f"{path}: its checksum does not fit its content; it was changed or damaged")
        try:
            manifest = from_table(cls, {name: value for name, value in body.items() if name not in _NOT_KEPT})
            for entry in (*manifest.shards, *manifest.sources, manifest.quarantine):
                _check_counts(entry)
            for shard in manifest.shards:
                if not _SHARD_NAME.fullmatch(shard.name):
                    raise ValueError(f"shard {quoted(shard.name)}; expected a name like {shard_name(0)}")
        except (LookupError, TypeError, ValueError) as error:
            raise DataError(f"{path}: damaged: {reason(error)}") from error
        return manifest


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class ShardView:
    """One shard, memory-mapped. G games, M plies; the arrays are views into the file (read only).

    moves: u16 [M]; game g owns moves[moves_offset[g]:moves_offset[g + 1]].
    result: i8 [G], +1 the first player won, 0, -1; meaningless where result_valid [G] is false.
    fen_bytes: u8, ASCII; game g starts at fen_bytes[fen_offset[g]:fen_offset[g + 1]], empty: usual start.
    search: None where no search made any of the games. evaluations: None where no comment gave any.
    """

    path: Path
    num_games: int
    num_plies: int
    moves: npt.NDArray[np.uint16]
    moves_offset: npt.NDArray[np.int32]
    result: npt.NDArray[np.int8]
    result_valid: npt.NDArray[np.bool_]
    fen_bytes: npt.NDArray[np.uint8]
    fen_offset: npt.NDArray[np.int32]
    search: SearchView | None = None
    evaluations: EvaluationView | None = None
    batch: pa.RecordBatch | None = field(default=None, repr=False, compare=False)
    mapping: mmap.mmap | None = field(default=None, repr=False, compare=False)

    def start_of(self, game: int) -> str | None:
        """The text of the position that a game began with, None for the usual one."""
        begin, end = self.fen_offset[game : game + 2]
        return bytes(self.fen_bytes[begin:end]).decode(errors="replace") or None

    @cached_property
    def table(self) -> pa.Table:
        """All columns (schema.py), memory-mapped."""
        assert self.batch is not None
        return pa.Table.from_batches([self.batch])

    def check_size(self) -> None:
        """Raises DataError where the file became shorter: reading beyond its end would kill the process."""
        if self.mapping is not None and self.mapping.size() < len(self.mapping):
            raise DataError(
                f"{self.path}: {self.mapping.size()} bytes, {len(self.mapping)} when it was opened: it was"
                " cut off while in use; expected a store that never changes"
            )


def shard_batch(source: pa.Buffer, path: Path) -> pa.RecordBatch:
    """The rows of a shard's bytes; `path` names it in the DataError of bytes that are no shard.

    All buffers are as long as they say, offsets ascend within them, and each word is one of its dictionary.
    """
    try:
        reader = pa.ipc.open_file(source)
        known = [field for field in reader.schema if field.name in FIELDS]  # a newer program may have more
        names = [field.name for field in known]
        if not pa.schema(known).equals(schema_with(names)):
            raise DataError(
                f"{path}: its columns are not those of a shard of version {OLDEST_VERSION} or {VERSION}"
            )
        if reader.num_record_batches != 1:
            raise DataError(f"{path}: {reader.num_record_batches} record batches; expected 1")
        batch = reader.get_batch(0).select(names)
        batch.validate(full=True)  # reads what is as long as there are games, not the moves and policies
        return batch
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{path}: no readable shard: {reason(error)}") from error


def view_of(batch: pa.RecordBatch, path: Path, mapping: mmap.mmap | None = None) -> ShardView:
    """The arrays of a shard's rows, which `mapping` holds. Raises DataError where they do not fit."""
    games = batch.num_rows
    result, fen = batch.column("result"), batch.column("start_fen")
    try:
        moves = list_view(batch, "moves")
        check_note_lengths(batch, moves.offset)
        plies = len(moves.values)
        fen_offset = buffer_values(fen.buffers()[1], np.int32, games + 1)
        if fen.null_count and np.any(np.diff(fen_offset)[~validity(fen)] != 0):
            raise ValueError("a null start_fen has text")
        return ShardView(
            path=path,
            num_games=games,
            num_plies=plies,
            moves=moves.values,
            moves_offset=moves.offset,
            result=buffer_values(result.buffers()[1], np.int8, games),
            result_valid=validity(result),
            fen_bytes=buffer_values(fen.buffers()[2], np.uint8, int(fen_offset[-1])),
            fen_offset=fen_offset,
            search=search_view(batch, moves.offset),
            evaluations=evaluation_view(batch),
            batch=batch,
            mapping=mapping,
        )
    except ValueError as error:
        raise DataError(f"{path}: no readable shard: {reason(error)}") from error


def _map_shard(directory: Path, entry: ShardEntry, version: int) -> ShardView:
    path = directory / entry.name
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), entry.size_bytes, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no readable shard: {reason(error)}") from error
    view = view_of(shard_batch(pa.py_buffer(mapping), path), path, mapping)
    if version_of(view.table.schema) > version:
        raise DataError(f"{path}: columns of version {VERSION}; the manifest has version {version}")
    if (view.num_games, view.num_plies) != (entry.games, entry.plies):
        raise DataError(
            f"{path}: {view.num_games} games with {view.num_plies} plies; "
            f"the manifest has {entry.games} with {entry.plies}"
        )
    return view


@dataclass(frozen=True)
class GameStore:
    """A complete store, opened for reading."""

    path: Path
    manifest: Manifest
    shards: list[ShardView]

    @classmethod
    def open(cls, path: Path) -> GameStore:
        """Check the manifest and the sizes of the shards, and map them.

        Raises DataError. Moves and policies are not read: verify() and Verification do that.
        """
        manifest = Manifest.from_json(path / MANIFEST_NAME)
        for name, size_bytes in [
            *((shard.name, shard.size_bytes) for shard in manifest.shards),
            (QUARANTINE_NAME, manifest.quarantine.size_bytes),
        ]:
            with named_faults("read", path / name):
                status = (path / name).stat()
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"{path / name}: is no file; expected one of {size_bytes} bytes")
            if status.st_size != size_bytes:
                raise DataError(f"{path / name}: {status.st_size} bytes; the manifest has {size_bytes}")
        return cls(path, manifest, [_map_shard(path, entry, manifest.version) for entry in manifest.shards])

    @property
    def num_games(self) -> int:
        """Games in all shards."""
        return self.manifest.games

    @property
    def num_plies(self) -> int:
        """Moves in all shards."""
        return self.manifest.plies

    def listed_shards(self) -> list[tuple[ShardView, str]]:
        """Each shard with the sha256 that the manifest has of it."""
        return [(view, entry.sha256) for view, entry in zip(self.shards, self.manifest.shards, strict=True)]

    def verify(self) -> None:
        """Check checksums, offsets and moves of all that there is. Raises DataError at the first fault."""
        check_sha256(self.path / QUARANTINE_NAME, self.manifest.quarantine.sha256)
        for shard, sha256 in self.listed_shards():
            check_sha256(shard.path, sha256)
            verify_shard(shard, self.manifest.game)


def check_sha256(path: Path, expected: str) -> None:
    """Raises DataError unless the file has this digest."""
    with named_faults("read", path):
        digest = sha256_of(path)
    if digest != expected:
        raise damaged(path, digest, expected)


def damaged(path: Path, digest: str, expected: str) -> DataError:
    """The error for a file whose sha256 is not the manifest's."""
    way = "import its games again"
    if path.parent.name == "games" and (path.parent.parent / "checkpoints").is_dir():  # a run's own
        way = "play its games again: --resume STEP --no-verify-data with a checkpoint from before them"
    fault = f"its checksum is not the manifest's: sha256 {digest[:16]}..., expected {expected[:16]}..."
    return DataError(f"{path}: {fault}; it was changed or damaged: copy it again, or {way}")


def verify_shard(shard: ShardView, game: str) -> None:
    """Raises DataError unless offsets ascend within their arrays, words are UTF-8, values lie within their
    bounds, and every move is legal: those played and those of policies.
    """
    assert shard.batch is not None
    if np.any(np.abs(shard.result[shard.result_valid]) > 1):
        raise DataError(f"{shard.path}: a result is not -1, 0 or 1")
    try:
        shard.batch.validate(full=True)
        check_values(shard.batch)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{shard.path}: {reason(error)}") from error
    try:
        game = known_game(game)
    except ConfigError as error:
        raise DataError(f"{shard.path}: {error}") from None
    find_illegal_game = get_game(game).core.find_illegal_game
    search = None if shard.search is None else shard.search.core_arrays()
    try:
        shard.check_size()
        fault = find_illegal_game(shard.moves, shard.moves_offset, shard.fen_bytes, shard.fen_offset, search)
    except _core.GameError as error:
        raise DataError(f"{shard.path}: {error}") from error
    if fault is not None:
        raise DataError(f"{shard.path}: row {fault.game}, ply {fault.ply}: {fault.reason}")
