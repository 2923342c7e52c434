"""Imports whose results tablebases correct: the results that are wrong and no others, and the moves kept."""

import itertools
import json
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import chess
import chess.pgn
import pyarrow as pa
import pytest

from alphazero.base.errors import DataError
from alphazero.cli.main import main
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.lc0_export import export_lc0
from alphazero.data.open import open_or_import
from alphazero.data.store.rescoring import CUT, Rescoring
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import StoreWriter
from alphazero.games.tablebases import Tablebases
from alphazero.play import lanes
from tests.support.data.pgn_sources import content
from tests.support.games.chess_reference import core_move, positions_of
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables, pawn_wins, positions, rook_wins
from tests.support.selfplay.few_pieces import played

pytestmark = pytest.mark.skipif(not has_tables(), reason=WHY_NOT)

RESULTS = {"1-0": 1, "1/2-1/2": 0, "0-1": -1, "*": None}
WORDS = {value: word for word, value in RESULTS.items()}


@dataclass(frozen=True)
class Made:
    """A game with a result in its header, and what it should become."""

    game: chess.pgn.Game
    header: int | None
    result: int | None
    plies: int


def made(board: chess.Board, header: str, result: int | None, plies: int) -> Made:
    game = chess.pgn.Game.from_board(board)
    game.headers["Result"] = header
    return Made(game, RESULTS[header], result, plies)


def endgame(board: chess.Board, wins, strong: chess.Color, rng: random.Random) -> Made:
    """Random moves from a position that is solved without tables, with any result in the header."""
    sign = 1 if strong else -1
    expected = [sign if wins(board) else 0]
    for _ in range(rng.randrange(1, 8)):
        if board.is_game_over():
            break
        board.push(rng.choice(list(board.legal_moves)))
        expected.append(sign if wins(board) else 0)
    plies = next((ply for ply, now in enumerate(expected) if now != expected[0]), len(expected)) - 1
    return made(board, rng.choice(list(RESULTS)), expected[0], plies)


@pytest.fixture(scope="module")
def games() -> list[Made]:
    rng, found = random.Random(8), []
    for pieces, wins, seed in (("KRk", rook_wins, 1), ("KPk", pawn_wins, 2)):
        for strong_moves in (True, False):
            boards = positions(pieces, seed, lambda board: True, strong_moves)
            for board in itertools.islice(boards, 100):
                strong = board.turn if strong_moves else not board.turn
                found.append(endgame(board, wins, strong, rng))
    return found


def write(path: Path, games: list[Made]) -> Path:
    path.write_text("\n\n".join(str(one.game) for one in games) + "\n")
    return path


def rescored(sources: Path, store: Path, **options) -> GameStore:
    options = {"workers": 1, "rescoring": tables(), **options}
    import_games([sources], store, **options)
    return GameStore.open(store)


def tables(directory: Path = SYZYGY) -> Rescoring:
    return Rescoring(Tablebases(str(directory), "--rescore"))


def rows_of(store: GameStore) -> list[dict]:
    return [row for shard in store.shards for row in shard.table.to_pylist()]


def test_results_and_ends_are_those_of_endgames_solved_without_tables(games, tmp_path) -> None:
    store = rescored(write(tmp_path / "games.pgn", games), tmp_path / "store")
    store.verify()
    rows = rows_of(store)
    assert len(rows) == 400
    for row, one in zip(rows, games, strict=True):
        board = one.game.end().board()
        moves = [core_move(p, m) for p, m in zip(positions_of(board), board.move_stack, strict=False)]
        assert row["result"] == one.result, one.game
        assert row["moves"] == moves[: one.plies], one.game
    changes = Counter(
        f"{WORDS[one.header]} -> {WORDS[one.result]}" for one in games if one.header != one.result
    )
    cut = sum(one.plies < len(list(one.game.mainline_moves())) for one in games)
    assert store.manifest.rescored == dict(sorted({**changes, CUT: cut}.items()))
    assert len(changes) >= 8 and cut > 20 and sum(changes.values()) < 400
    assert store.num_plies == sum(one.plies for one in games)


def test_other_games_stay_as_they_are_to_the_byte(tmp_path) -> None:
    rng = random.Random(9)
    few = chess.Board("r3k3/8/8/8/8/8/8/4K3 w q - 0 1")
    few.push_uci("e1f2")  # few pieces, but Black may castle
    games = [made(few, "1-0", 1, 1)]
    for _ in range(30):
        board = chess.Board()
        for _ in range(40):
            if not board.is_game_over():
                board.push(rng.choice(list(board.legal_moves)))
        header = rng.choice(list(RESULTS))
        games.append(made(board, header, RESULTS[header], len(board.move_stack)))
    path = write(tmp_path / "games.pgn", games)
    with_tables, plain = rescored(path, tmp_path / "a"), rescored(path, tmp_path / "b", rescoring=None)
    assert content(tmp_path / "a")["shard-00000.arrow"] == content(tmp_path / "b")["shard-00000.arrow"]
    assert with_tables.manifest.rescored == {} and with_tables.manifest.rescored_by
    assert "rescored_by" not in json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert plain.manifest.rescored_by == ""


def test_the_store_is_the_same_for_any_number_of_workers_and_chunks(games, tmp_path) -> None:
    path = write(tmp_path / "games.pgn", games[::4])
    first = None
    for number, (workers, chunk_bytes) in enumerate([(1, 4 << 20), (2, 700), (3, 5000)]):
        store = tmp_path / str(number)
        rescored(path, store, workers=workers, chunk_bytes=chunk_bytes)
        first = first or content(store)
        assert content(store) == first


def test_searched_games_keep_what_the_search_said_of_the_moves_that_stay(tmp_path) -> None:
    """Through lc0's records as well: the same games."""
    games = played(range(16), None)
    batch = lanes.to_batch([games[number] for number in sorted(games)])
    rows = lanes.store_rows(batch, "chess", "puct", "test")
    before = rows.to_pylist()
    after, counts = tables().rows(rows)
    assert counts[CUT] > 2
    for old, new in zip(before, after.to_pylist(), strict=True):
        plies = len(new["moves"])
        for name, values in old.items():
            if name in ("policy_move", "policy_prob"):
                values = values[: old["policy_offsets"][plies]]
            elif isinstance(values, list):
                values = values[: plies + (name == "policy_offsets")]
            if name != "result":
                assert str(new[name]) == str(values), name  # NaN is NaN
    for directory, own in (("plain", rows), ("corrected", after)):
        (tmp_path / directory).mkdir()
        writer = StoreWriter(tmp_path / directory, "chess")
        writer.append(own)
        writer.finish(tmp_path / f"{directory}-store", ())
        GameStore.open(tmp_path / f"{directory}-store").verify()
    export_lc0(GameStore.open(tmp_path / "plain-store"), tmp_path / "lc0")
    imported = rescored(tmp_path / "lc0", tmp_path / "imported", workers=2)
    imported.verify()
    assert imported.manifest.rescored == dict(sorted(counts.items()))
    for row, new in zip(rows_of(imported), after.to_pylist(), strict=True):
        skipped = len(new["moves"]) - len(row["moves"])  # random moves before the first search
        assert row["moves"] == new["moves"][skipped:] and row["result"] == new["result"]


def test_the_result_is_the_first_known_one_and_unknown_positions_decide_nothing(tmp_path) -> None:
    for name in ("KRvK.rtbw", "KPvK.rtbw"):  # no DTZ: only positions after a capture or a pawn move are known
        shutil.copy(SYZYGY / name, tmp_path)
    board = chess.Board("8/8/8/8/8/1k6/1p6/R2K4 b - - 3 80")  # Black's pawn takes the rook and is lost again
    for uci in ("b2a1q",):
        board.push_uci(uci)
    games = [made(board, "0-1", -1, 1)]
    board = chess.Board("4k3/8/8/8/8/8/4p3/R3K3 w - - 0 1")
    for uci in ("e1e2", "e8d7", "a1a2", "d7c6"):  # KRk is known after the capture alone
        board.push_uci(uci)
    games.append(made(board, "1/2-1/2", 1, 4))
    store = rescored(write(tmp_path / "g.pgn", games), tmp_path / "store", rescoring=tables(tmp_path))
    assert [(row["result"], len(row["moves"])) for row in rows_of(store)] == [(-1, 1), (1, 4)]


def test_the_report_says_what_changed_and_the_store_remembers_it(games, tmp_path, capsys) -> None:
    path = write(tmp_path / "games.pgn", games[:1] * 2)
    argv = ["data", "import", str(path), "--store", str(tmp_path / "store")]
    assert main([*argv, "--rescore", str(SYZYGY)]) == 0
    expected = json.loads((tmp_path / "store" / "manifest.json").read_text())["sources"][0]["rescored"]
    changes = ", ".join(f"{name} {count}" for name, count in expected.items())
    told = capsys.readouterr().out
    assert "by 35 WDL and 35 DTZ tables" in told and changes in told
    assert main([*argv, "--rescore", str(SYZYGY)]) == 0
    assert "already holds" in capsys.readouterr().out
    assert main(["data", "info", str(tmp_path / "store")]) == 0
    assert changes in capsys.readouterr().out
    assert main(argv) == 2
    assert "these sources with 35 WDL" in capsys.readouterr().err
    # Raw files given to training are not rescored, and neither takes the other's place.
    (raw,) = open_or_import([path], tmp_path / "cache")
    assert raw.manifest.rescored_by == ""


@pytest.mark.parametrize("directory", ["absent", "empty"])
def test_a_directory_without_tables_ends_the_import_before_it_begins(directory, tmp_path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    path = tmp_path / "games.pgn"
    path.write_text("1. e4 1-0\n")
    argv = ["data", "import", str(path), "--store", str(tmp_path / "store")]
    assert main([*argv, "--rescore", str(tmp_path / directory)]) == 2
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert told.startswith("alphazero: error: --rescore ") and "Syzygy" in told
    assert {found.name for found in tmp_path.iterdir()} == {"empty", "games.pgn"}


def test_tables_that_are_removed_during_the_import_leave_nothing_of_it(games, tmp_path) -> None:
    own = tmp_path / "tables"
    own.mkdir()
    shutil.copy(SYZYGY / "KRvK.rtbw", own)
    rescoring = tables(own)
    (own / "KRvK.rtbw").unlink()
    path = write(tmp_path / "games.pgn", games[:10])
    with pytest.raises(DataError, match=r"^--rescore .*KRvK\.rtbw: "):
        rescored(path, tmp_path / "store", rescoring=rescoring)
    assert {found.name for found in tmp_path.iterdir()} == {"tables", "games.pgn"}


def test_rows_without_games_are_no_fault() -> None:
    rows = lanes.store_rows(lanes.to_batch([]), "chess", "puct", "test")
    after, counts = tables().rows(rows)
    assert isinstance(after, pa.RecordBatch) and after.num_rows == 0 and not counts
