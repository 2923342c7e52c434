"""Speed of reading PGN on one core, in plies/s, beside python-chess on the same file."""

from __future__ import annotations

import bz2
import gzip
import io
import statistics
import tempfile
from pathlib import Path

import chess.pgn

from alphazero._core import ChessPosition, chess_random_playout, parse_pgn
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.formats.pgn import PGN
from alphazero.settings.flags import Parser, count
from benchmarks.measuring.one_core import one_core, rate

# What an engine writes beside its moves in TCEC's files: some 200 bytes per ply.
COMMENT = (
    "{ d=31, sd=45, pd=Bg7, mt=00:01:29, tl=01:22:20, s=45191 kN/s, n=23028023089, pv=" + "Nf3 " * 25 + "}"
)


def run(arguments: list[str]) -> dict[str, object]:
    """Medians by CPU time: our parser on text in memory, python-chess on the same, whole files to columns.

    import: from the file to the finished store on disk, by the clock.
    """
    parser = Parser(prog="alphazero bench pgn_import", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="PGN file; without it, one made of random games")
    parser.add_argument("--rounds", type=count, default=5, help="measurements of each reader")
    parser.add_argument("--games", type=count, default=20, help="games python-chess reads a round")
    args = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {"text": [], "python_chess": [], "file": [], "import": []}
    with one_core(), tempfile.TemporaryDirectory() as directory:
        path = args.file or write_random_games(Path(directory) / "random.pgn")
        text = text_of(path)
        handle = io.StringIO(text.decode("utf-8-sig", errors="replace"))
        for number in range(args.rounds):
            rates["text"].append(rate(lambda: len(parse_pgn(text, 0, len(text)).moves)))
            rates["python_chess"].append(rate(lambda: python_chess_plies(handle, args.games), 0.0))
            rates["file"].append(rate(lambda: plies_of(path)))
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


def write_random_games(path: Path, num_games: int = 400) -> Path:
    """A PGN file of random games with an engine's comment at each move."""
    with path.open("w") as stream:
        for number in range(num_games):
            position = ChessPosition()
            words = []
            for ply, move in enumerate(chess_random_playout(number, 140)):
                words.append(f"{ply // 2 + 1}. " if ply % 2 == 0 else "")
                words.append(f"{position.san(move)} {COMMENT}\n")
                position.push(move)
            stream.write(f'[Event "random"]\n[Round "{number}"]\n[Result "*"]\n\n{"".join(words)}*\n\n')
    return path
