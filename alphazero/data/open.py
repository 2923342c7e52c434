"""Opens data by the paths a user gives: game stores, and raw files, which are imported once into a cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import DataError
from alphazero.base.files import resolved
from alphazero.base.log import Work
from alphazero.data.formats.files import Source, ignore
from alphazero.data.formats.importer import VERSION as IMPORT_VERSION
from alphazero.data.formats.importer import check_sources, import_games, silent
from alphazero.data.formats.pgn import PGN
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.schema import FIELDS
from alphazero.data.store.store import MANIFEST_NAME, GameStore, named_faults
from alphazero.data.store.summary import summarize
from alphazero.data.store.verification import KnownDigests
from alphazero.games.board import Board
from alphazero.games.notation import RESULTS
from alphazero.games.registry import make_line
from alphazero.machine.memory import count_processors

EMBEDDED_GAMES = Path(__file__).resolve().parents[1] / "assets" / "games"


def open_or_import(
    paths: Sequence[Path],
    cache_dir: Path,
    *,
    progress: Work | None = None,
    beat: Callable[[], None] = silent,
    compare_content: bool = True,
) -> list[GameStore]:
    """The stores behind paths: directories with a manifest, and one store for all the raw files and
    directories among them, which stands where the first of those was named.

    The raw files' store is found again by their paths, sizes and modification times; its manifest must name
    them with their sha256, which compare_content=False leaves out. Processes that ask for the same one at the
    same time wait for the first. progress: of an import. beat: called again and again while files are read.
    Raises DataError.
    """
    raw = [path for path in paths if not (path / MANIFEST_NAME).exists()]
    stores: list[GameStore] = []
    for path in paths:
        if path not in raw:
            stores.append(GameStore.open(path))
        elif path is raw[0]:
            stores.append(_open_cached(raw, cache_dir, progress, beat, compare_content))
    games = {store.manifest.game_now for store in stores}
    if len(games) > 1:
        raise DataError(f"{', '.join(map(str, paths))}: different games: {', '.join(sorted(games))}")
    return stores


def _open_cached(
    raw: Sequence[Path],
    cache_dir: Path,
    progress: Work | None,
    beat: Callable[[], None],
    compare_content: bool,
) -> GameStore:
    sources = PGN.find(raw, ignore)
    path = cache_dir / f"pgn-{cache_key(sources)}"
    digests = KnownDigests()
    if not (path / MANIFEST_NAME).exists():
        manifest = import_games(
            raw,
            path,
            kind=PGN,
            workers=count_processors(),
            progress=progress,
            wait=True,
            beat=beat,
        ).manifest
        for source, entry in zip(sources, manifest.sources, strict=False):
            digests.remember(source.path, source.mtime_ns, entry.sha256)
    _check_owners(path, sources)
    store = GameStore.open(path)
    check_sources(
        path,
        store.manifest,
        sources,
        (lambda source: digests.of(source.path, beat)) if compare_content else None,
        "remove this store, or name another --cache-dir",
    )
    return store


def _check_owners(store: Path, sources: Sequence[Source]) -> None:
    """Raise DataError where another user made the store, who could have put other games there.

    This user, root, and who owns all the sources are trusted with them.
    """
    with named_faults("read", store, within=True):
        owners = {source.path.stat().st_uid for source in sources}
        trusted = {0, os.geteuid()} | (owners if len(owners) == 1 else set())
        for path in (store, *store.iterdir()):
            for owner in (path.lstat().st_uid, path.stat().st_uid):
                if owner not in trusted:
                    raise DataError(
                        f"{path}: owned by user {owner}: expected files of this user ({os.geteuid()}), of"
                        " root or of the owner of the games: name another --cache-dir"
                    )


def cache_key(sources: Sequence[Source]) -> str:
    """Equal for the same files, unchanged, under the same columns and version of the importer."""
    identity = [
        [source.name, str(resolved(source.path)), source.size_bytes, source.mtime_ns] for source in sources
    ]
    text = json.dumps([*map(str, FIELDS.values()), IMPORT_VERSION, identity])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class StoredGame:
    """A game of a store.

    number: its place in the store, from 0. moves: in the game's own texts (chess: UCI). result: '1-0',
    '1/2-1/2', '0-1' or '*'. columns: all that the store has of it, as docs/data_format.md names and means it.
    """

    game: str
    number: int
    start: str | None
    moves: list[str]
    result: str
    columns: dict[str, Any]

    def board(self, plies: int | None = None) -> Board:
        """The position after so many plies, by default at the end."""
        return Board(self.game, self.start, self.moves[:plies])

    def boards(self) -> Iterator[Board]:
        """The position before each move, then the last one; each is a separate board."""
        board = Board(self.game, self.start)
        yield board.copy()
        for move in self.moves:
            board.push(move)
            yield board.copy()

    def __len__(self) -> int:
        return len(self.moves)


class Store:
    """A game store, read only; `az.open_store` opens one. len() and [] count games."""

    def __init__(self, store: GameStore) -> None:
        self.store = store
        self.path = store.path
        self.game = store.manifest.game_now

    @property
    def num_plies(self) -> int:
        """Moves of all games."""
        return self.store.num_plies

    def __len__(self) -> int:
        return self.store.num_games

    def __getitem__(self, number: int) -> StoredGame:
        if not -len(self) <= number < len(self):
            raise IndexError(f"game {number}: the store has {len(self)}")
        number %= len(self)
        (row,) = games_of(self.store, number, 1)
        return self._read(row, number)

    def __iter__(self) -> Iterator[StoredGame]:
        for number, row in enumerate(games_of(self.store)):
            yield self._read(row, number)

    def _read(self, row: GameRow, number: int) -> StoredGame:
        row.shard.check_size()
        lists = {name: entries.tolist() for name, entries in row.lists.items()}
        columns: dict[str, Any] = dict.fromkeys(row.shard.table.column_names) | row.values | lists
        line = make_line(self.game, columns["start_fen"])
        texts = []
        for ply, move in enumerate(columns["moves"]):
            if move not in line.legal():
                raise DataError(f"{row.location}, ply {ply}: an illegal move; expected a legal one")
            texts.append(line.move_to_text(move))
            line.push(move)
        result = RESULTS[columns["result"]]
        return StoredGame(self.game, number, columns["start_fen"], texts, result, columns)

    def summary(self) -> dict[str, Any]:
        """Counts over all games, as `alphazero data info --json` has them."""
        return summarize(self.store)

    def to_arrow(self) -> pyarrow.Table:
        """All columns of all games, a row a game (docs/data_format.md); the shards stay where they are."""
        import pyarrow

        tables = [view.table for view in self.store.shards]
        return pyarrow.concat_tables(tables) if tables else pyarrow.table({})

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}: {len(self)} games of {self.game})"


def open_store(path: str | Path | None = None, *, cache_dir: str | Path = "cache") -> Store:
    """A game store; or PGN files (a file or a directory), imported once into `cache_dir`.

    None: the chess games that ship with the program. Raises DataError.
    """
    source = EMBEDDED_GAMES if path is None else Path(path)
    if not source.exists():
        raise DataError(f"{source}: no such file or directory; expected a game store, PGN file or directory")
    (store,) = open_or_import([source], Path(cache_dir))
    return Store(store)
