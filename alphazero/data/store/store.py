"""The game store: a directory of immutable Arrow shards, a row a game, under one manifest.

DIR/manifest.json    magic, version, shards with row counts and sha256, sources, totals
DIR/shard-*.arrow    Arrow IPC files, uncompressed, one record batch each (SCHEMA)
DIR/quarantine.jsonl a line for each game that could not be imported, and why

Shards are memory-mapped; C++ reads them through the numpy views of ShardView.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero import _core
from alphazero.data.store.arrow_views import buffer_values, list_view, validity
from alphazero.data.store.search_columns import SearchView, check_values, search_view
from alphazero.errors import DataError
from alphazero.files import sha256_of
from alphazero.games.registry import game_names, get_game

MAGIC = "alphazero-game-store"
VERSION = 1
MANIFEST_NAME = "manifest.json"
QUARANTINE_NAME = "quarantine.jsonl"


def shard_name(number: int) -> str:
    """File name of a store's shard, counted from 0."""
    return f"shard-{number:05d}.arrow"


_WORDS = pa.dictionary(pa.int32(), pa.utf8())  # few distinct values: 4 bytes per game

# result: +1 the first player (white) won, 0 drawn, -1 lost, null unknown. moves: csrc/games/game.hpp.
# From flags on, what a search knew, one entry a ply; null where no search made the game:
#   root_q, best_q: W - L for the side to move; root_d: chance of a draw; visits: of the root;
#   policy of ply i: policy_move and policy_prob (1/65535) [policy_offsets[i]:policy_offsets[i + 1]].
SCHEMA = pa.schema(
    [
        pa.field("game", _WORDS, nullable=False),
        pa.field("variant", _WORDS, nullable=False),
        pa.field("start_fen", pa.utf8()),  # null: the game's usual start
        pa.field("moves", pa.list_(pa.field("item", pa.uint16(), nullable=False)), nullable=False),
        pa.field("result", pa.int8()),
        pa.field("termination", _WORDS),
        pa.field("white", _WORDS),
        pa.field("black", _WORDS),
        pa.field("white_elo", pa.int32()),
        pa.field("black_elo", pa.int32()),
        pa.field("event", _WORDS),
        pa.field("date", _WORDS),
        pa.field("source", _WORDS, nullable=False),
        pa.field("flags", pa.list_(pa.uint8())),
        pa.field("root_q", pa.list_(pa.float32())),
        pa.field("root_d", pa.list_(pa.float32())),
        pa.field("best_q", pa.list_(pa.float32())),
        pa.field("visits", pa.list_(pa.uint32())),
        pa.field("policy_offsets", pa.list_(pa.uint32())),
        pa.field("policy_move", pa.list_(pa.uint16())),
        pa.field("policy_prob", pa.list_(pa.uint16())),
        pa.field("target_kind", _WORDS),
    ]
)


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
    """A file that games came from. games = imported + the sum of quarantined.

    quarantined: games that could not be imported, by kind of fault (_core.PgnFault in lower case).
    contradictions: imported games whose header result differs from the mate or stalemate on the board.
    """

    name: str
    size_bytes: int
    sha256: str
    games: int
    imported: int
    plies: int
    quarantined: Mapping[str, int]
    contradictions: int

    @property
    def num_quarantined(self) -> int:
        """Games that could not be imported."""
        return sum(self.quarantined.values())


@dataclass(frozen=True)
class Manifest:
    """What a store holds. `sha256` is over all the rest and names the store's content."""

    game: str
    shards: tuple[ShardEntry, ...]
    sources: tuple[SourceEntry, ...]
    quarantine_games: int
    quarantine_size_bytes: int
    quarantine_sha256: str

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
        total: Counter[str] = Counter()
        for source in self.sources:
            total.update(source.quarantined)
        return dict(sorted(total.items()))

    def body(self) -> dict[str, Any]:
        """The JSON form without its own checksum."""
        return {
            "magic": MAGIC,
            "version": VERSION,
            "game": self.game,
            "games": self.games,
            "plies": self.plies,
            "shards": [asdict(shard) for shard in self.shards],
            "sources": [asdict(source) for source in self.sources],
            "quarantine": {
                "games": self.quarantine_games,
                "size_bytes": self.quarantine_size_bytes,
                "sha256": self.quarantine_sha256,
            },
        }

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
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DataError(f"{path.parent}: no game store here ({path.name} is missing)") from error
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot read: {error}") from error
        try:
            body = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
        if not isinstance(body, dict) or body.get("magic") != MAGIC:
            raise DataError(f"{path}: no manifest of a game store; expected magic {MAGIC!r}")
        if body.get("version") != VERSION:
            raise DataError(f"{path}: version {body.get('version')!r}; this program reads version {VERSION}")
        recorded = body.pop("manifest_sha256", None)
        if recorded != _digest(body):
            raise DataError(f"{path}: its checksum does not fit its content; it was changed or damaged")
        return cls(
            game=body["game"],
            shards=tuple(ShardEntry(**entry) for entry in body["shards"]),
            sources=tuple(SourceEntry(**entry) for entry in body["sources"]),
            quarantine_games=body["quarantine"]["games"],
            quarantine_size_bytes=body["quarantine"]["size_bytes"],
            quarantine_sha256=body["quarantine"]["sha256"],
        )


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class ShardView:
    """One shard, memory-mapped. G games, M plies; the arrays are views into the file (read only).

    moves: u16 [M]; game g owns moves[moves_offset[g]:moves_offset[g + 1]].
    result: i8 [G], +1 the first player won, 0, -1; meaningless where result_valid [G] is false.
    fen_bytes: u8, ASCII; game g starts at fen_bytes[fen_offset[g]:fen_offset[g + 1]], empty: usual start.
    search: None where no search made any of the games.
    """

    name: str
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

    @cached_property
    def table(self) -> pa.Table:
        """All columns (SCHEMA), memory-mapped."""
        return pa.Table.from_batches([_read_batch(self.path)])


def _read_batch(path: Path) -> pa.RecordBatch:
    try:
        return shard_batch(pa.memory_map(str(path)), path)
    except OSError as error:
        raise DataError(f"{path}: no readable shard: {_one_line(error)}") from error


def shard_batch(source: pa.NativeFile | pa.Buffer, path: Path) -> pa.RecordBatch:
    """The rows of a shard's bytes; `path` names it in the DataError of bytes that are no shard."""
    try:
        reader = pa.ipc.open_file(source)
        if not reader.schema.equals(SCHEMA):
            raise DataError(f"{path}: its columns are not those of a version {VERSION} shard")
        if reader.num_record_batches != 1:
            raise DataError(f"{path}: {reader.num_record_batches} record batches; expected 1")
        return reader.get_batch(0)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: no readable shard: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def view_of(batch: pa.RecordBatch, path: Path) -> ShardView:
    """The arrays of a shard's rows. Raises DataError where they do not fit together."""
    games = batch.num_rows
    result, fen = batch.column("result"), batch.column("start_fen")
    try:
        moves = list_view(batch, "moves", np.uint16)
        plies = len(moves.values)
        fen_offset = buffer_values(fen.buffers()[1], np.int32, games + 1)
        return ShardView(
            name=path.name,
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
        )
    except ValueError as error:
        raise DataError(f"{path}: no readable shard: {_one_line(error)}") from error


def _map_shard(directory: Path, entry: ShardEntry) -> ShardView:
    path = directory / entry.name
    view = view_of(_read_batch(path), path)
    if (view.num_games, view.num_plies) != (entry.games, entry.plies):
        raise DataError(
            f"{path}: {view.num_games} games with {view.num_plies} plies; "
            f"the manifest says {entry.games} with {entry.plies}"
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

        Raises DataError. Contents are not read: verify() does that.
        """
        manifest = Manifest.from_json(path / MANIFEST_NAME)
        for name, size_bytes in [
            *((shard.name, shard.size_bytes) for shard in manifest.shards),
            (QUARANTINE_NAME, manifest.quarantine_size_bytes),
        ]:
            try:
                found = (path / name).stat().st_size
            except OSError as error:
                raise DataError(f"{path / name}: cannot read: {error.strerror}") from error
            if found != size_bytes:
                raise DataError(f"{path / name}: {found} bytes; the manifest says {size_bytes}")
        return cls(path, manifest, [_map_shard(path, entry) for entry in manifest.shards])

    @property
    def num_games(self) -> int:
        """Games in all shards."""
        return self.manifest.games

    @property
    def num_plies(self) -> int:
        """Moves in all shards."""
        return self.manifest.plies

    def quarantine(self) -> Iterator[dict[str, Any]]:
        """The games that were not imported: file, game, line, ply, kind, reason."""
        with (self.path / QUARANTINE_NAME).open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def verify(self) -> None:
        """Read everything: checksums, offsets, and each move of each game by the rules.

        Raises DataError at the first fault.
        """
        if sha256_of(self.path / QUARANTINE_NAME) != self.manifest.quarantine_sha256:
            raise DataError(f"{self.path / QUARANTINE_NAME}: its checksum is not the manifest's")
        for entry, shard in zip(self.manifest.shards, self.shards, strict=True):
            if sha256_of(shard.path) != entry.sha256:
                raise DataError(f"{shard.path}: its checksum is not the manifest's")
            verify_shard(shard, self.manifest.game)


def verify_shard(shard: ShardView, game: str) -> None:
    """Raises DataError unless offsets ascend within their arrays, words are UTF-8, values lie within their
    bounds, and every move is legal: those played and those of policies.
    """
    for offset, size, what in (
        (shard.moves_offset, len(shard.moves), "moves"),
        (shard.fen_offset, len(shard.fen_bytes), "start_fen"),
    ):
        if offset[0] != 0 or np.any(np.diff(offset) < 0) or offset[-1] != size:
            raise DataError(f"{shard.path}: offsets of {what} do not ascend from 0 to {size}")
    if np.any(np.abs(shard.result[shard.result_valid]) > 1):
        raise DataError(f"{shard.path}: a result is not -1, 0 or 1")
    try:
        shard.table.validate(full=True)
        if shard.search is not None:
            check_values(shard.search)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{shard.path}: {_one_line(error)}") from error
    if game not in game_names():
        raise DataError(f"{shard.path}: game {game!r}: expected one of {', '.join(game_names())}")
    find_illegal_game = get_game(game).core.find_illegal_game
    search = None if shard.search is None else shard.search.core_arrays()
    try:
        fault = find_illegal_game(shard.moves, shard.moves_offset, shard.fen_bytes, shard.fen_offset, search)
    except _core.GameError as error:
        raise DataError(f"{shard.path}: {error}") from error
    if fault is not None:
        raise DataError(f"{shard.path}: row {fault.game}, ply {fault.ply}: {fault.reason}")
