"""Import of lc0's training data on one core: from its files to columns, and to the finished store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.lc0 import LC0
from alphazero.data.formats.lc0_export import export_lc0
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.open import EMBEDDED_GAMES, open_or_import
from alphazero.settings.flags import Parser, whole
from benchmarks.measuring.clock import cpu_rate, medians, on_cores


def run(arguments: list[str]) -> dict[str, object]:
    """MB of packed files per second of CPU time, medians."""
    parser = Parser(prog="alphazero bench lc0_import", description=__doc__)
    parser.add_argument(
        "sources", nargs="*", type=Path, help=".gz, .tar or directory; without it, the embedded games"
    )
    parser.add_argument("--games", type=whole(1, 10**6), default=200, help="how many of the embedded games")
    parser.add_argument("--rounds", type=whole(1, 1000), default=5, help="measurements of each")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, on_cores(1):
        sources = tuple(args.sources) or (embedded_games(Path(folder), args.games),)
        megabytes = sum(source.size_bytes for source in LC0.find(sources, ignore)) / 1e6
        records = num_records(sources)
        rounds = [
            {
                "columns": cpu_rate(lambda: megabytes if num_records(sources) else 0.0),
                "import": cpu_rate(partial(imported, sources, Path(folder) / str(number), megabytes), 0.0),
            }
            for number in range(args.rounds)
        ]
    usual = {f"{name}_mb_per_second": speed for name, speed in medians(rounds).items()}
    speed = usual["import_mb_per_second"] * records / megabytes
    return {"packed_mb": megabytes, "records": records, **usual, "import_records_per_second": speed}


def num_records(sources: Sequence[Path]) -> int:
    """Positions of all games, rebuilt from the files."""
    items = parse_in_order(LC0, LC0.find(sources, ignore), 1, lambda num_bytes: None)
    return sum(len(item.games.moves) for item in items if not isinstance(item, SourceEnd))


def imported(sources: Sequence[Path], store: Path, megabytes: float) -> float:
    """The files' size, after their import."""
    import_games(sources, store, workers=1, progress=False)
    return megabytes


def embedded_games(folder: Path, num_games: int) -> Path:
    """A directory of V6 files: each move is the whole policy of its position."""
    (store,) = open_or_import([EMBEDDED_GAMES], folder)
    export_lc0(store, folder / "lc0", count=num_games)
    return folder / "lc0"
