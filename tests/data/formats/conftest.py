"""Files of games: PGN, and lc0's training data made with python-chess."""

import gzip
import random
from pathlib import Path

import chess
import pytest
import zstandard

from tests.support.data.lc0_records import Records, records_of, standard_game, write
from tests.support.data.pgn_sources import ILLEGAL, game

# En passant at once, castling for both, promotions next, Black to move.
FENS = (
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
    "r3k2r/1P4P1/8/8/8/8/1p4p1/R3K2R b KQkq - 3 40",
    "8/P1k3P1/8/3pP3/3Pp3/8/p1K3p1/8 w - d6 0 1",
    "4k3/8/8/8/8/8/4P3/4K3 b - - 98 90",
)


@pytest.fixture(scope="session")
def boards() -> list[tuple[chess.Board, int]]:
    """Games with their results: from the standard start and from other positions."""
    from_start = [standard_game(seed, max_plies=40 + 10 * seed) for seed in range(6)]
    from_fens = [standard_game(10 + seed, 30, fen) for seed, fen in enumerate(FENS)]
    return [(board, (1, 0, -1)[number % 3]) for number, board in enumerate(from_start + from_fens)]


@pytest.fixture(scope="session")
def recorded(boards: list[tuple[chess.Board, int]]) -> list[Records]:
    """The same games as V6 records."""
    return [records_of(board, result, random.Random(7)) for board, result in boards]


@pytest.fixture
def files(recorded: list[Records], tmp_path: Path) -> Path:
    """A directory of those games, one a file."""
    directory = tmp_path / "games"
    directory.mkdir()
    for number, records in enumerate(recorded):
        write(directory / f"game_{number:06d}.gz", records)
    return directory


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """100 games in four files, ten of them bad, and an empty file."""
    directory = tmp_path / "games"
    (directory / "deep").mkdir(parents=True)
    texts = [
        "".join(ILLEGAL if number % 10 == 7 else game(number) for number in range(begin, begin + 25))
        for begin in range(0, 100, 25)
    ]
    (directory / "a.pgn").write_text(texts[0])
    (directory / "b.pgn.gz").write_bytes(gzip.compress(texts[1].encode()))
    (directory / "c.pgn.zst").write_bytes(zstandard.compress(texts[2].encode()))
    (directory / "deep" / "d.pgn").write_bytes(b"\xef\xbb\xbf" + texts[3].replace("\n", "\r\n").encode())
    (directory / "empty.pgn").write_bytes(b"")
    return directory
