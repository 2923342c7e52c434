"""Import of lc0's training data on one core: from its files to columns, and to the finished store."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from alphazero._core import chess_random_playout
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.lc0 import LC0
from alphazero.data.formats.lc0_export import export_lc0
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import ROW_SCHEMA, StoreWriter
from alphazero.settings.flags import Parser, whole
from benchmarks.measuring.one_core import one_core, rate


def run(arguments: list[str]) -> dict[str, object]:
    """MB of packed files per second of CPU time, medians."""
    parser = Parser(prog="alphazero bench lc0_import", description=__doc__)
    parser.add_argument(
        "sources", nargs="*", type=Path, help=".gz, .tar or directory; without it, games of random moves"
    )
    parser.add_argument("--games", type=whole(1, 10**6), default=200, help="games of random moves")
    parser.add_argument("--rounds", type=whole(1, 1000), default=5, help="measurements of each")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, one_core():
        sources = tuple(args.sources) or (write_random_games(Path(folder) / "random", args.games),)
        megabytes = sum(source.size_bytes for source in LC0.find(sources, ignore)) / 1e6
        records = num_records(sources)
        rates: dict[str, list[float]] = {"columns": [], "import": []}
        for number in range(args.rounds):
            rates["columns"].append(rate(lambda: megabytes if num_records(sources) else 0.0))
            begin = time.process_time()
            import_games(sources, Path(folder) / str(number), workers=1, progress=False)
            rates["import"].append(megabytes / (time.process_time() - begin))
    medians = {f"{name}_mb_per_second": statistics.median(found) for name, found in rates.items()}
    speed = medians["import_mb_per_second"] * records / megabytes
    return {"packed_mb": megabytes, "records": records, **medians, "import_records_per_second": speed}


def num_records(sources: Sequence[Path]) -> int:
    """Positions of all games, rebuilt from the files."""
    items = parse_in_order(LC0, LC0.find(sources, ignore), 1, lambda num_bytes: None)
    return sum(len(item.games.moves) for item in items if not isinstance(item, SourceEnd))


def write_random_games(path: Path, num_games: int) -> Path:
    """A directory of V6 files: random moves, each the whole policy of its position."""
    rows: dict[str, list[object]] = {name: [None] * num_games for name in ROW_SCHEMA.names}
    rows |= {"game": ["chess"] * num_games, "variant": ["standard"] * num_games}
    rows |= {"source": ["random"] * num_games, "result": [0] * num_games}
    rows["moves"] = [chess_random_playout(number, 140) for number in range(num_games)]
    work = path.with_name("random.writing")
    work.mkdir()
    writer = StoreWriter(work, "chess")
    writer.append(pa.RecordBatch.from_pydict(rows, schema=ROW_SCHEMA))
    writer.finish(path.with_name("random.store"), [])
    export_lc0(GameStore.open(path.with_name("random.store")), path)
    return path
