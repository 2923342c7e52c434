"""Speed of reading PGN on one core, in plies/s, beside python-chess on the same file."""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import chess.pgn

from alphazero._core import ChessPosition, chess_random_playout, parse_pgn
from alphazero.base.errors import ConfigError
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.parallel import SourceEnd, parse_in_order
from alphazero.data.formats.pgn import PGN
from alphazero.settings.flags import Parser, count

# What an engine writes beside its moves in TCEC's files: some 200 bytes per ply.
COMMENT = (
    "{ d=31, sd=45, pd=Bg7, mt=00:01:29, tl=01:22:20, s=45191 kN/s, n=23028023089, pv=" + "Nf3 " * 25 + "}"
)
SHORTEST_ROUND_S = 0.3


@dataclass(frozen=True)
class Measurement:
    """Plies/s on one core, one entry a round, the readers in turn.

    text: our parser, from text in memory to columns of moves. python_chess: its read_game, from the same.
    file: from the file (decompressed, hashed, cut, parsed) to columns. These three count CPU time, so
    that other programs on the machine do not matter. imports: from the file to the finished store on
    disk, in wall-clock time.
    """

    file_name: str
    file_bytes: int
    text_bytes: int
    games: int
    plies: int
    text: tuple[float, ...]
    python_chess: tuple[float, ...]
    file: tuple[float, ...]
    imports: tuple[float, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("file", nargs="?", type=Path, help="PGN file; without it, one made of random games")
    parser.add_argument("--rounds", type=count, default=5, help="measurements of each reader")
    parser.add_argument("--games", type=count, default=20, help="games python-chess reads a round")


def run(arguments: list[str]) -> dict[str, object]:
    """Measure as the flags say; returns what `alphazero bench pgn_import --json` prints."""
    parser = Parser(prog="alphazero bench pgn_import", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    if args.rounds < 1 or args.games < 1:
        raise ConfigError(f"--rounds {args.rounds} --games {args.games}: expected positive numbers")
    with tempfile.TemporaryDirectory() as folder:
        path = args.file or write_random_games(Path(folder) / "random.pgn")
        measured = measure(path, rounds=args.rounds, games_a_round=args.games)
    yardstick = statistics.median(measured.python_chess)
    return {
        "benchmark": "pgn",
        "file": measured.file_name,
        "file_bytes": measured.file_bytes,
        "text_bytes": measured.text_bytes,
        "games": measured.games,
        "plies": measured.plies,
        "python_chess_plies_per_second": yardstick,
        "text_plies_per_second": statistics.median(measured.text),
        "text_ratio": statistics.median(measured.text) / yardstick,
        "file_plies_per_second": statistics.median(measured.file),
        "file_ratio": statistics.median(measured.file) / yardstick,
        "import_plies_per_second": statistics.median(measured.imports),
        "rounds": {
            "text": list(measured.text),
            "python_chess": list(measured.python_chess),
            "file": list(measured.file),
            "import": list(measured.imports),
        },
    }


def measure(path: Path, *, rounds: int, games_a_round: int) -> Measurement:
    """Our readers take all of `path`, python-chess `games_a_round` of its games. Raises DataError."""
    results: dict[str, list[float]] = {"text": [], "python_chess": [], "file": [], "imports": []}
    with one_core(), tempfile.TemporaryDirectory() as folder:
        warm_up = import_games([path], Path(folder) / "warm-up", workers=1, progress=False)
        text = _text_of(path)
        handle = io.StringIO(text.decode("utf-8-sig", errors="replace"))
        for number in range(rounds):
            results["text"].append(_plies_per_second(lambda: len(parse_pgn(text, 0, len(text)).moves)))
            results["python_chess"].append(_python_chess_plies_per_second(handle, games_a_round))
            results["file"].append(_plies_per_second(lambda: _read_file(path)))
            report = import_games([path], Path(folder) / str(number), workers=1, progress=False)
            results["imports"].append(report.manifest.plies / report.seconds)
    return Measurement(
        file_name=path.name,
        file_bytes=path.stat().st_size,
        text_bytes=len(text),
        games=warm_up.manifest.games,
        plies=warm_up.manifest.plies,
        **{name: tuple(rates) for name, rates in results.items()},
    )


def _plies_per_second(read: Callable[[], int]) -> float:
    """Call `read`, which returns plies, until SHORTEST_ROUND_S of CPU time are used."""
    plies, seconds = 0, 0.0
    begin = time.process_time()
    while seconds < SHORTEST_ROUND_S:
        plies += read()
        seconds = time.process_time() - begin
    return plies / seconds


def _read_file(path: Path) -> int:
    items = parse_in_order(PGN, PGN.find([path], ignore), 1, lambda num_bytes: None)
    return sum(len(item.moves) for item in items if not isinstance(item, SourceEnd))


def _python_chess_plies_per_second(handle: io.StringIO, num_games: int) -> float:
    plies = 0
    begin = time.process_time()
    for _ in range(num_games):
        game = chess.pgn.read_game(handle)
        if game is None:  # from the front again
            handle.seek(0)
            game = chess.pgn.read_game(handle)
        assert game is not None
        plies += game.end().ply() - game.ply()
    return plies / (time.process_time() - begin)


def _text_of(path: Path) -> bytes:
    raw = path.read_bytes()
    if raw.startswith(b"\x1f\x8b"):
        return gzip.decompress(raw)
    return bz2.decompress(raw) if raw.startswith(b"BZh") else raw


@contextmanager
def one_core() -> Iterator[None]:
    """Keep all threads begun inside on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


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
