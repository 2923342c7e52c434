"""Fixtures every test may use: the reference data that lies beside a checkout."""

from pathlib import Path

import pyarrow as pa
import pytest

from alphazero import _core
from alphazero.data.store_writer import ROW_SCHEMA, StoreWriter

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Reference data (perft counts, games, lc0 networks); tests that need it skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("reference data ../shared/data is not there")
    return SHARED_DATA


@pytest.fixture(scope="session")
def random_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 64 random chess games with results, made through the core and the store's own writer."""
    path = tmp_path_factory.mktemp("stores") / "random"
    write_random_store(path, num_games=64)
    return path


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
