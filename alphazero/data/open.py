"""Opens data by the paths a user gives: game stores, and raw files, which are imported once into a cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alphazero.base.errors import ConfigError, DataError
from alphazero.base.text import quoted
from alphazero.data.formats.files import Source, ignore
from alphazero.data.formats.importer import VERSION as IMPORT_VERSION
from alphazero.data.formats.importer import import_games, silent
from alphazero.data.formats.pgn import PGN
from alphazero.data.store.schema import OLDEST_VERSION as STORE_VERSION
from alphazero.data.store.store import MANIFEST_NAME, GameStore, ShardView
from alphazero.data.store.summary import StoreSummary, summarize
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
    workers: int = 0,
    progress: bool = False,
    beat: Callable[[], None] = silent,
    compare_content: bool = True,
) -> list[GameStore]:
    """The stores behind paths: directories with a manifest, and one store for all the raw files and
    directories among them, which stands where the first of those was named.

    The raw files' store is found again by their paths, sizes and modification times; its manifest must name
    them with their sha256, which compare_content=False leaves out. Processes that ask for the same one at the
    same time wait for the first. workers: 0 takes all cores. beat: called again and again while files are
    read. Raises DataError.
    """
    is_store = [(path / MANIFEST_NAME).exists() for path in paths]
    raw = [path for path, complete in zip(paths, is_store, strict=True) if not complete]
    stores: list[GameStore] = []
    raw_done = False
    for path, complete in zip(paths, is_store, strict=True):
        if complete:
            stores.append(GameStore.open(path))
        elif not raw_done:
            stores.append(_open_cached(raw, cache_dir, workers, progress, beat, compare_content))
            raw_done = True
    games = {store.manifest.game for store in stores}
    if len(games) > 1:
        raise DataError(f"{', '.join(map(str, paths))}: different games: {', '.join(sorted(games))}")
    return stores


def _open_cached(
    raw: Sequence[Path],
    cache_dir: Path,
    workers: int,
    progress: bool,
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
            workers=workers or count_processors(),
            progress=progress,
            wait=True,
            beat=beat,
        ).manifest
        for source, entry in zip(sources, manifest.sources, strict=False):
            digests.remember(source.path, source.mtime_ns, entry.sha256)
    _check_owners(path, sources)
    store = GameStore.open(path)
    _check_sources(store, sources, (lambda path: digests.of(path, beat)) if compare_content else None)
    return store


def _check_owners(store: Path, sources: Sequence[Source]) -> None:
    """Raise DataError where somebody else made the store, who could have put other games there.

    This user, root, and who owns all the sources are trusted with them.
    """
    try:
        owners = {source.path.stat().st_uid for source in sources}
        trusted = {0, os.geteuid()} | (owners if len(owners) == 1 else set())
        for path in (store, *store.iterdir()):
            for owner in (path.lstat().st_uid, path.stat().st_uid):
                if owner not in trusted:
                    raise DataError(
                        f"{path}: owned by user {owner}: expected files of this user ({os.geteuid()}), of"
                        " root or of the owner of the games: name another --cache-dir"
                    )
    except OSError as error:
        raise DataError(f"{error.filename}: cannot read: {error.strerror}") from None


def _check_sources(
    store: GameStore, sources: Sequence[Source], sha256_of: Callable[[Path], str] | None
) -> None:
    """Raise DataError unless the manifest names these sources; with sha256_of, by content as well."""
    advice = "remove this store, or name another --cache-dir"
    entries = store.manifest.sources
    if [(entry.name, entry.size_bytes) for entry in entries] != [
        (source.name, source.size_bytes) for source in sources
    ]:
        raise DataError(f"{store.path}: holds the games of other files than {sources[0].path}: {advice}")
    for source, entry in zip(sources, entries, strict=True):
        found = entry.sha256 if sha256_of is None else sha256_of(source.path)
        if found != entry.sha256:
            raise DataError(
                f"{store.path}: holds the games of other files: {source.path} has sha256 {found[:12]}..., "
                f"the manifest {quoted(entry.sha256[:12])}: {advice}"
            )


def cache_key(sources: Sequence[Source]) -> str:
    """Equal for the same files, unchanged, under the same versions of importer and store."""
    identity = [
        [source.name, str(source.path.resolve()), source.size_bytes, source.mtime_ns] for source in sources
    ]
    text = json.dumps([STORE_VERSION, IMPORT_VERSION, identity])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if TYPE_CHECKING:
    import pandas
    import pyarrow

# Columns with an entry a ply or more: not of a table with a row a game.
MOVES = "moves"


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
        self.game = store.manifest.game

    @cached_property
    def _first(self) -> list[int]:
        """Number of the first game of each shard, and of all games."""
        sizes = [view.num_games for view in self.store.shards]
        return [0, *np.cumsum(sizes).tolist()]

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
        shard = int(np.searchsorted(self._first, number, side="right")) - 1
        return self._read(self.store.shards[shard], number - self._first[shard], number)

    def __iter__(self) -> Iterator[StoredGame]:
        for first, view in zip(self._first, self.store.shards, strict=False):
            for row in range(view.num_games):
                yield self._read(view, row, first + row)

    def _read(self, view: ShardView, row: int, number: int) -> StoredGame:
        view.check_size()
        columns = {name: column[0].as_py() for name, column in zip(*_columns_of(view, row), strict=True)}
        line = make_line(self.game, columns["start_fen"])
        texts = []
        for ply, move in enumerate(columns[MOVES]):
            if move not in line.legal():
                raise DataError(f"{view.path}: game {row}, ply {ply}: an illegal move; expected a legal one")
            texts.append(line.move_to_text(move))
            line.push(move)
        result = RESULTS[columns["result"]]
        return StoredGame(self.game, number, columns["start_fen"], texts, result, columns)

    def summary(self) -> StoreSummary:
        """Counts over all games: results, lengths, searches, sources."""
        return summarize(self.store)

    def to_arrow(self) -> pyarrow.Table:
        """All columns of all games, a row a game (docs/data_format.md); the shards stay where they are."""
        import pyarrow

        tables = [view.table for view in self.store.shards]
        return pyarrow.concat_tables(tables) if tables else pyarrow.table({})

    def to_pandas(self, columns: list[str] | None = None) -> pandas.DataFrame:
        """A row a game; by default the columns with one value a game, and `plies`.

        columns: those wanted, by their names in docs/data_format.md. Needs pandas.
        """
        try:
            import pandas  # noqa: F401 - what pyarrow makes a frame with
        except ImportError as error:
            raise ConfigError(
                "to_pandas: pandas is not installed; expected pip install 'alphazero[pandas]'"
            ) from error
        import pyarrow
        import pyarrow.compute as pc

        table = self.to_arrow()
        lists = {field.name for field in table.schema if pyarrow.types.is_list(field.type)}
        chosen = columns or [name for name in table.column_names if name not in lists]
        unknown = [name for name in chosen if name not in table.column_names]
        if unknown:
            raise ConfigError(
                f"to_pandas: {unknown[0]!r}: no such column; expected some of {', '.join(table.column_names)}"
            )
        frame = table.select(chosen)
        if columns is None and MOVES in lists:
            frame = frame.append_column("plies", pc.list_value_length(table[MOVES]))
        return frame.to_pandas()

    def positions_to_pandas(self, games: int | None = None) -> pandas.DataFrame:
        """A row a position of the first `games` games (all): game, ply, position, move, result.

        Replays the games in Python: for some thousand of them. result: of the whole game.
        """
        import pandas

        rows = []
        for game in self:
            if games is not None and game.number >= games:
                break
            line = make_line(self.game, game.start)
            for ply, move in enumerate(game.moves):
                rows.append((game.number, ply, str(line), move, game.result))
                line.push_text(move)
        return pandas.DataFrame(rows, columns=["game", "ply", "position", "move", "result"])

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}: {len(self)} games of {self.game})"


def _columns_of(view: ShardView, row: int) -> tuple[list[str], list[Any]]:
    table = view.table.slice(row, 1)
    return table.column_names, table.columns


def open_store(path: str | Path | None = None, *, cache_dir: str | Path = "cache") -> Store:
    """A game store; or PGN files (a file or a directory), imported once into `cache_dir`.

    None: the chess games that ship with the program. Raises DataError.
    """
    place = EMBEDDED_GAMES if path is None else Path(path)
    if not place.exists():
        raise DataError(f"{place}: no such file or directory; expected a game store, PGN file or directory")
    (store,) = open_or_import([place], Path(cache_dir))
    return Store(store)
