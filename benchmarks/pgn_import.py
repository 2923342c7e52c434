"""Speed of reading PGN on one core, in plies/s, beside python-chess on the same file."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import chess.pgn

from alphazero._core import parse_pgn
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.formats.pgn import PGN, SourceReader
from alphazero.data.open import EMBEDDED_GAMES
from alphazero.settings.flags import Parser, count
from benchmarks.measuring.clock import cpu_rate, medians, on_cores

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
    rounds = []
    with on_cores(1), tempfile.TemporaryDirectory() as directory:
        text = text_of(args.file)
        handle = io.StringIO(text.decode("utf-8-sig", errors="replace"))
        for number in range(args.rounds):
            report = import_games([args.file], Path(directory) / str(number), workers=1, progress=False)
            speeds = {
                "text": cpu_rate(lambda: len(parse_pgn(text, 0, len(text)).moves)),
                "python_chess": cpu_rate(lambda: python_chess_plies(handle, args.games), 0.0),
                "file": cpu_rate(lambda: plies_of(args.file)),
            }
            rounds.append({**speeds, "import": report.manifest.plies / report.seconds})
    usual = medians(rounds)
    sizes = {"file_bytes": args.file.stat().st_size, "text_bytes": len(text)}
    plies = {"plies": report.manifest.plies, "games": report.manifest.games}
    speeds = {f"{name}_plies_per_second": speed for name, speed in usual.items()}
    ratios = {f"{name}_ratio": usual[name] / usual["python_chess"] for name in ("text", "file")}
    return {"file": args.file.name, **sizes, **plies, **speeds, **ratios}


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
    (source,) = PGN.find([path], ignore)
    with contextlib.closing(SourceReader(source, lambda num_bytes: None)) as reader:
        return b"".join(reader.blocks(1 << 20))
