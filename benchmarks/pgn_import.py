"""Speed of reading PGN on one core, in plies/s, beside python-chess on the same file."""

from __future__ import annotations

import bz2
import gzip
import io
import statistics
import tempfile
from pathlib import Path

import chess.pgn

from alphazero._core import parse_pgn
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.formats.pgn import PGN
from alphazero.data.open import EMBEDDED_GAMES
from alphazero.settings.flags import Parser, count
from benchmarks.measuring.clock import cpu_rate, on_cores

EMBEDDED = EMBEDDED_GAMES / "embedded.pgn.gz"


def run(arguments: list[str]) -> dict[str, object]:
    """Medians by CPU time: our parser on text in memory, python-chess on the same, whole files to columns.

    import: from the file to the finished store on disk, by the clock.
    """
    parser = Parser(prog="alphazero bench pgn_import", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=EMBEDDED, help="PGN (the embedded games)")
    parser.add_argument("--rounds", type=count, default=5, help="measurements of each reader")
    parser.add_argument("--games", type=count, default=20, help="games python-chess reads a round")
    args = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {"text": [], "python_chess": [], "file": [], "import": []}
    with on_cores(1), tempfile.TemporaryDirectory() as directory:
        path: Path = args.file
        text = text_of(path)
        handle = io.StringIO(text.decode("utf-8-sig", errors="replace"))
        for number in range(args.rounds):
            rates["text"].append(cpu_rate(lambda: len(parse_pgn(text, 0, len(text)).moves)))
            rates["python_chess"].append(cpu_rate(lambda: python_chess_plies(handle, args.games), 0.0))
            rates["file"].append(cpu_rate(lambda: plies_of(path)))
            report = import_games([path], Path(directory) / str(number), workers=1, progress=False)
            rates["import"].append(report.manifest.plies / report.seconds)
        size = path.stat().st_size
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ratios = {f"{name}_ratio": medians[name] / medians["python_chess"] for name in ("text", "file")}
    speeds = {f"{name}_plies_per_second": value for name, value in medians.items()}
    plies = {"plies": report.manifest.plies, "games": report.manifest.games}
    return {"file": path.name, "file_bytes": size, "text_bytes": len(text), **plies, **speeds, **ratios}


def plies_of(path: Path) -> int:
    """Decompressed, hashed, cut and parsed to columns."""
    items = parse_in_order(PGN, PGN.find([path], ignore), 1, lambda num_bytes: None)
    return sum(len(item.moves) for item in items if not isinstance(item, SourceEnd))


def python_chess_plies(handle: io.StringIO, num_games: int) -> int:
    """Of the next games; from the front again where they end."""
    plies = 0
    for _ in range(num_games):
        game = chess.pgn.read_game(handle)
        if game is None:
            handle.seek(0)
            game = chess.pgn.read_game(handle)
        assert game is not None
        plies += game.end().ply() - game.ply()
    return plies


def text_of(path: Path) -> bytes:
    """Decompressed."""
    raw = path.read_bytes()
    if raw.startswith(b"\x1f\x8b"):
        return gzip.decompress(raw)
    return bz2.decompress(raw) if raw.startswith(b"BZh") else raw
