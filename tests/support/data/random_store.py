"""A store of random games."""

from pathlib import Path

import pyarrow as pa

import alphazero._core as _core
from alphazero.data.store.writer import ROW_SCHEMA, StoreWriter


def write_random_store(path: Path, num_games: int, first_seed: int = 0) -> None:
    """Games of random moves, at most 120 plies; results cycle through win, draw, loss."""
    rows = {name: [None] * num_games for name in ROW_SCHEMA.names}
    rows["game"] = rows["variant"] = ["chess"] * num_games
    rows["source"] = ["random playout"] * num_games
    rows["moves"] = [_core.chess_random_playout(first_seed + game, 120) for game in range(num_games)]
    rows["result"] = [(1, 0, -1)[game % 3] for game in range(num_games)]
    directory = path.with_name(path.name + ".writing")
    directory.mkdir()
    writer = StoreWriter(directory, "chess")
    writer.append(pa.RecordBatch.from_pydict(rows, schema=ROW_SCHEMA))
    writer.finish(path, [])
