"""The games that come with the package: whole, playable by other programs, and made as they say."""

import collections
import gzip
import io
import itertools
import re
import subprocess
import sys
from pathlib import Path

import chess.engine
import chess.pgn
import pytest

import alphazero
from alphazero.data.open import open_or_import
from tests.support.paths import REPOSITORY

GAMES = Path(alphazero.__file__).parent / "assets" / "games" / "embedded.pgn.gz"
STOCKFISH = Path("/usr/games/stockfish")


@pytest.fixture(scope="module")
def text() -> str:
    """The PGN."""
    return gzip.decompress(GAMES.read_bytes()).decode("ascii")


def test_they_are_small_and_their_gzip_header_holds_no_time_and_no_name():
    content = GAMES.read_bytes()
    assert len(content) < 900_000
    assert content[:10] == bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255])


def test_they_say_how_they_were_made(text: str):
    assert "tools/make_embedded_games.py alphazero/assets/games/embedded.pgn.gz --games 2400" in text[:1000]
    assert re.search(r"Games of Stockfish \d+(\.\d+)? against itself", text[:1000])
    assert "GPL-3.0-or-later" in text[:1000]


def test_every_game_imports_and_no_two_are_alike(tmp_path: Path, text: str):
    (store,) = open_or_import([GAMES], tmp_path)
    assert store.manifest.quarantine.games == 0
    assert store.num_games == text.count("[Result ") == 2389
    assert store.num_plies == 277_211
    moves = [tuple(game) for shard in store.shards for game in shard.table["moves"].to_pylist()]
    assert len(set(moves)) == len(moves)
    # Varied: no first six plies are those of more than one game in twenty.
    openings = collections.Counter(game[:6] for game in moves)
    assert max(openings.values()) < len(moves) / 20
    results = collections.Counter(
        itertools.chain.from_iterable(shard.result.tolist() for shard in store.shards)
    )
    assert min(results.values()) > store.num_games / 10


def test_python_chess_reads_the_first_games_and_agrees_with_their_results(text: str):
    stream = io.StringIO(text)
    seen = collections.Counter()
    for _ in range(60):
        game = chess.pgn.read_game(stream)
        assert not game.errors
        board = game.end().board()
        seen[game.headers["Termination"]] += 1
        if game.headers["Termination"] == "normal":
            outcome = board.outcome(claim_draw=True)
            assert outcome is not None
            assert outcome.result() == game.headers["Result"]
        else:
            assert not board.is_checkmate()
    assert min(seen["normal"], seen["adjudication"]) > 5


@pytest.mark.slow
def test_the_program_plays_the_first_games_again(tmp_path: Path, text: str):
    if not STOCKFISH.exists():
        pytest.skip("Stockfish is not installed")
    with chess.engine.SimpleEngine.popen_uci(str(STOCKFISH)) as engine:
        if engine.id["name"] not in text[:1000]:
            pytest.skip(f"another Stockfish: {engine.id['name']}")
    program = REPOSITORY / "tools" / "make_embedded_games.py"
    output = tmp_path / "again.pgn.gz"
    subprocess.run([sys.executable, str(program), str(output), "--games", "4", "--jobs", "2"], check=True)
    again = gzip.decompress(output.read_bytes()).decode("ascii")

    def moves(pgn: str) -> list[str]:
        return re.sub(r"\{.*?\}\s*", "", pgn, flags=re.DOTALL).split("\n\n")[1:8:2]

    assert moves(again)[:3] == moves(text)[:3]
