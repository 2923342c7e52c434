"""A store of random games."""

from pathlib import Path

import pyarrow as pa

import alphazero._core as _core
from alphazero.data.store.writer import ROW_SCHEMA, SHARD_GAMES, StoreWriter


def write_random_store(path: Path, num_games: int, first_seed: int = 0) -> None:
    """Games of random moves, at most 120 plies; results cycle through win, draw, loss."""
    rows = {name: [None] * num_games for name in ROW_SCHEMA.names}
    rows["game"] = rows["variant"] = ["chess"] * num_games
    rows["source"] = ["random playout"] * num_games
    rows["moves"] = [_core.chess_random_playout(first_seed + game, 120) for game in range(num_games)]
    rows["result"] = [(1, 0, -1)[game % 3] for game in range(num_games)]
    write_rows(path, pa.RecordBatch.from_pydict(rows, schema=ROW_SCHEMA))


def write_rows(path: Path, rows: pa.RecordBatch, shard_games: int = SHARD_GAMES) -> None:
    """A store of chess of these rows."""
    directory = path.with_name(path.name + ".writing")
    directory.mkdir()
    writer = StoreWriter(directory, "chess", shard_games=shard_games)
    writer.append(rows)
    writer.finish(path, [])
