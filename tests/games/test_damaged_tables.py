"""Syzygy files that are damaged: every question ends with an answer in range or an error."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.games.table_files import CheckedTables, _check
from alphazero.games.tablebases import Tablebases
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables, positions
from tests.support.uci.driving import DrivenEngine

pytestmark = pytest.mark.skipif(not has_tables(), reason=WHY_NOT)

QUEEN = "8/8/8/4k3/8/8/8/K1Q5 w - - 0 1"


def damaged(directory: Path, name: str, first: int, bytes_: bytes) -> Path:
    """The tables of 3 pieces, one of which has these bytes from `first` on."""
    for path in SYZYGY.glob("K?vK.rtb?"):
        shutil.copy(path, directory)
    path = directory / name
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[first : first + len(bytes_)] = bytes_
    path.write_bytes(content)
    return directory


DAMAGE = [
    (5, bytes([0x10, 0x0E, 0x06, 0x0D])),  # a black queen: python-chess looks for her on the board for ever
    (11, b"\xff" * 9),  # results beyond -2 to 2, or an index that leads nowhere
    (14, b"\x28"),  # bits of the index
]


@pytest.mark.parametrize(("first", "bytes_"), DAMAGE)
@pytest.mark.timeout(60)
def test_a_damaged_table_is_named_once_and_the_engine_plays_on(tmp_path, first, bytes_) -> None:
    damaged(tmp_path, "KQvK.rtbw", first, bytes_)
    with DrivenEngine(SyzygyPath=str(tmp_path)) as engine:
        for _ in range(2):
            assert engine.best_move(f"position fen {QUEEN}", "go nodes 5") != "0000"
        # A rook beside: the tree asks after the capture.
        engine.send("position fen 8/8/8/4k3/4r3/8/8/K1Q5 w - - 0 1", "go nodes 50")
        engine.until("bestmove")
        told = [line for line in engine.lines if "damaged" in line]
    assert len(told) == 1 and "KQvK.rtbw" in told[0]


@pytest.mark.timeout(60)
def test_an_import_ends_with_the_name_of_a_damaged_table(tmp_path) -> None:
    damaged(tmp_path, "KQvK.rtbw", *DAMAGE[0])
    games = tmp_path / "won.pgn"
    games.write_text(f'[FEN "{QUEEN}"]\n[SetUp "1"]\n\n1. Qc2 Kd4 1/2-1/2\n')
    command = [
        sys.executable,
        "-m",
        "alphazero",
        "data",
        "import",
        str(games),
        "--store",
        str(tmp_path / "store"),
    ]
    done = subprocess.run([*command, "--rescore", str(tmp_path)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 2 and "KQvK.rtbw" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.timeout(300)
def test_random_damage_ends_in_an_answer_or_in_one_error(tmp_path) -> None:
    rng = random.Random(1)
    boards = [next(positions("KQk", seed, lambda board: True, seed % 2 == 0)) for seed in range(6)]
    refused = 0
    for trial in range(120):
        directory = tmp_path / str(trial)
        directory.mkdir()
        name = rng.choice(["KQvK.rtbw", "KQvK.rtbz"])
        damaged(directory, name, rng.randrange(4, 40), rng.randbytes(rng.randrange(1, 16)))
        tables = Tablebases(str(directory), "test")
        for board in boards:
            try:
                assert tables.result(board.fen()) in (-1, 0, 1, None)
            except DataError:
                refused += 1
        shutil.rmtree(directory)
    assert refused > 100


def test_every_whole_table_passes() -> None:
    tables = CheckedTables()
    for path in SYZYGY.iterdir():
        tables.add_file(str(path))
    for kind in (tables.wdl, tables.dtz):
        for table in kind.values():
            _check(table)
