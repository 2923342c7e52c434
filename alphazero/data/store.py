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
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero import _core
from alphazero.errors import DataError

MAGIC = "alphazero-game-store"
VERSION = 1
MANIFEST_NAME = "manifest.json"
QUARANTINE_NAME = "quarantine.jsonl"


def shard_name(number: int) -> str:
    """File name of a store's shard, counted from 0."""
    return f"shard-{number:05d}.arrow"


_WORDS = pa.dictionary(pa.int32(), pa.utf8())  # few distinct values: 4 bytes a game

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
            raise DataError(f"{path}: no manifest of a game store; wanted magic {MAGIC!r}")
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


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


CoreSearchArrays: TypeAlias = tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint32],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
]


@dataclass(frozen=True)
class SearchView:
    """What searches knew of the plies of a shard's games; zero-copy. A game without search has no entries.

    Game g owns [ply_offset[g], ply_offset[g + 1]) of flags, root_q and root_d, an entry a ply, and likewise
    of policy_offset (a ply's policy is [policy_offset[i], policy_offset[i + 1]) of the game's own part of
    policy_move and policy_prob). Types as in SCHEMA, list offsets i32.
    """

    flags: npt.NDArray[np.uint8]
    ply_offset: npt.NDArray[np.int32]
    root_q: npt.NDArray[np.float32]
    root_d: npt.NDArray[np.float32]
    policy_offset_offset: npt.NDArray[np.int32]
    policy_offset: npt.NDArray[np.uint32]
    policy_move_offset: npt.NDArray[np.int32]
    policy_move: npt.NDArray[np.uint16]
    policy_prob: npt.NDArray[np.uint16]

    def core_arrays(self) -> CoreSearchArrays:
        """What csrc/data/shard_columns.hpp's SearchColumns takes, in its order."""
        return (
            self.ply_offset,
            self.root_q,
            self.root_d,
            self.policy_offset_offset,
            self.policy_offset,
            self.policy_move_offset,
            self.policy_move,
            self.policy_prob,
        )


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
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if not reader.schema.equals(SCHEMA):
            raise DataError(f"{path}: its columns are not those of a version {VERSION} shard")
        if reader.num_record_batches != 1:
            raise DataError(f"{path}: {reader.num_record_batches} record batches; wanted 1")
        return reader.get_batch(0)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: no readable shard: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _values(buffer: pa.Buffer | None, dtype: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
    if buffer is None or count == 0:
        return np.zeros(count, dtype)
    return np.frombuffer(memoryview(buffer), np.dtype(dtype), count)


def _valid(array: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(memoryview(bitmap), np.uint8)
    return np.unpackbits(bits, count=len(array), bitorder="little").astype(np.bool_)


def _list_values(
    batch: pa.RecordBatch, name: str, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Offsets [G + 1] and values of a list column; a null is empty."""
    buffers = batch.column(name).buffers()
    offset = _values(buffers[1], np.int32, batch.num_rows + 1)
    return offset, _values(buffers[3], dtype, int(offset[-1]))


def _search_view(path: Path, batch: pa.RecordBatch) -> SearchView | None:
    if batch.column("flags").null_count == batch.num_rows:
        return None
    ply_offset, flags = _list_values(batch, "flags", np.uint8)
    columns = {name: _list_values(batch, name, np.float32) for name in ("root_q", "root_d")}
    policy_offset_offset, policy_offset = _list_values(batch, "policy_offsets", np.uint32)
    policy_move_offset, policy_move = _list_values(batch, "policy_move", np.uint16)
    prob_offset, policy_prob = _list_values(batch, "policy_prob", np.uint16)
    alike = [
        *(np.array_equal(ply_offset, offset) for offset, _ in columns.values()),
        np.array_equal(policy_move_offset, prob_offset),
    ]
    if not all(alike):
        raise DataError(f"{path}: its search columns have not an entry for each other's")
    return SearchView(
        flags,
        ply_offset,
        columns["root_q"][1],
        columns["root_d"][1],
        policy_offset_offset,
        policy_offset,
        policy_move_offset,
        policy_move,
        policy_prob,
    )


def _map_shard(directory: Path, entry: ShardEntry) -> ShardView:
    path = directory / entry.name
    batch = _read_batch(path)
    games = batch.num_rows
    moves, result, fen = batch.column("moves"), batch.column("result"), batch.column("start_fen")
    try:
        moves_offset = _values(moves.buffers()[1], np.int32, games + 1)
        plies = int(moves_offset[-1])
        fen_offset = _values(fen.buffers()[1], np.int32, games + 1)
        view = ShardView(
            name=entry.name,
            path=path,
            num_games=games,
            num_plies=plies,
            moves=_values(moves.buffers()[3], np.uint16, plies),
            moves_offset=moves_offset,
            result=_values(result.buffers()[1], np.int8, games),
            result_valid=_valid(result),
            fen_bytes=_values(fen.buffers()[2], np.uint8, int(fen_offset[-1])),
            fen_offset=fen_offset,
            search=_search_view(path, batch),
        )
    except ValueError as error:
        raise DataError(f"{path}: no readable shard: {_one_line(error)}") from error
    if (games, plies) != (entry.games, entry.plies):
        raise DataError(
            f"{path}: {games} games with {plies} plies; the manifest says {entry.games} with {entry.plies}"
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
        if file_sha256(self.path / QUARANTINE_NAME) != self.manifest.quarantine_sha256:
            raise DataError(f"{self.path / QUARANTINE_NAME}: its checksum is not the manifest's")
        for entry, shard in zip(self.manifest.shards, self.shards, strict=True):
            if file_sha256(shard.path) != entry.sha256:
                raise DataError(f"{shard.path}: its checksum is not the manifest's")
            verify_shard(shard, self.manifest.game)


def verify_shard(shard: ShardView, game: str) -> None:
    """Offsets ascend within their arrays, words are UTF-8 and every move is legal; raises DataError."""
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
    except pa.ArrowException as error:
        raise DataError(f"{shard.path}: {_one_line(error)}") from error
    checks = {
        "chess": _core.find_illegal_game,
        "connect4": _core.find_illegal_connect4_game,
        "tictactoe": _core.find_illegal_tictactoe_game,
    }
    if game not in checks:
        raise DataError(f"{shard.path}: game {game!r}: wanted one of {', '.join(checks)}")
    fault = checks[game](shard.moves, shard.moves_offset, shard.fen_bytes, shard.fen_offset)
    if fault is not None:
        raise DataError(f"{shard.path}: row {fault.game}, ply {fault.ply}: {fault.reason}")
