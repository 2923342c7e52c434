"""Import of lc0's training data on one core: from its files to columns, and to the finished store."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from alphazero._core import LC0_V6_BYTES, chess_random_playout
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.lc0 import LC0
from alphazero.data.formats.lc0_export import export_lc0
from alphazero.data.formats.lc0_files import unpacked
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import ROW_SCHEMA, StoreWriter
from alphazero.settings.flags import Parser, whole
from benchmarks.pgn_import import one_core

SHORTEST_ROUND_S = 0.3


@dataclass(frozen=True)
class _Data:
    sources: tuple[Path, ...]
    packed_bytes: int
    records: int


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument(
        "sources", nargs="*", type=Path, help=".gz, .tar or directory; without it, games of random moves"
    )
    parser.add_argument("--games", type=whole(1, 10**6), default=200, help="games of random moves")
    parser.add_argument("--rounds", type=whole(1, 1000), default=5, help="measurements of each")


def run(arguments: list[str]) -> dict[str, object]:
    """Measure as the flags say; returns what `alphazero bench lc0_import --json` prints."""
    parser = Parser(prog="alphazero bench lc0_import", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, one_core():
        sources = tuple(args.sources) or (write_random_games(Path(folder) / "random", args.games),)
        data = _Data(sources, sum(s.size_bytes for s in LC0.find(sources, ignore)), _num_records(sources))
        rates: dict[str, list[float]] = {"unpack": [], "rebuild": [], "import": []}
        for number in range(args.rounds):
            rates["unpack"].append(_rate(data, lambda: _unpack(data.sources)))
            rates["rebuild"].append(_rate(data, lambda: _num_records(data.sources)))
            begin = time.process_time()
            import_games(data.sources, Path(folder) / str(number), workers=1, progress=False)
            rates["import"].append(data.packed_bytes / (time.process_time() - begin) / 1e6)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    share = data.records / data.packed_bytes * 1e6
    return {
        "packed_mb": data.packed_bytes / 1e6,
        "records": data.records,
        "raw_bytes_per_packed_byte": data.records * LC0_V6_BYTES / data.packed_bytes,
        "unpack_mb_per_second": medians["unpack"],
        "rebuild_mb_per_second": medians["rebuild"],
        "import_mb_per_second": medians["import"],
        "import_records_per_second": medians["import"] * share,
        "rounds": rates,
    }


def _rate(data: _Data, work: Callable[[], object]) -> float:
    """Packed MB per second of CPU time."""
    done, seconds = 0, 0.0
    begin = time.process_time()
    while seconds < SHORTEST_ROUND_S:
        work()
        done += data.packed_bytes
        seconds = time.process_time() - begin
    return done / seconds / 1e6


def _unpack(sources: Sequence[Path]) -> int:
    """Reading and gzip alone."""
    size = 0
    for source in LC0.find(sources, ignore):
        for item in LC0.chunks(source, lambda num_bytes: None, LC0.chunk_bytes):
            games = () if isinstance(item, SourceEnd) else item
            size += sum(len(piece) for game in games for piece in unpacked(game.content, game.name))
    return size


def _num_records(sources: Sequence[Path]) -> int:
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
