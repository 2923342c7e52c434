"""Games of lc0's training data in the store: the games that were played, with all that their records say."""

import io
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

from alphazero.data.formats.importer import import_games
from alphazero.data.sampling.loader import WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.data.store.summary import summarize
from alphazero.games.registry import get_spec
from tests.support.data.lc0_records import NUMBERS, Records, as_v7, index_of, read, write
from tests.support.data.pgn_sources import content
from tests.support.games.chess_reference import core_move, positions_of


def imported(sources: list[Path] | Path, store: Path, workers: int = 1, **options: Any) -> GameStore:
    paths = sources if isinstance(sources, list) else [sources]
    import_games(paths, store, workers=workers, **options)
    return GameStore.open(store)


def rows_of(store: GameStore) -> list[dict[str, Any]]:
    return [row for shard in store.shards for row in shard.table.to_pylist()]


def core_moves(board: chess.Board) -> list[int]:
    return [core_move(p, m) for p, m in zip(positions_of(board), board.move_stack, strict=False)]


def archive(path: Path, members: list[tuple[str, bytes]], packing: str = "") -> Path:
    """As lc0's servers publish them, with a LICENSE; they do not pack the archive itself."""
    with tarfile.open(path, f"w:{packing}") as tar:
        for name, data in [("LICENSE", b"ODbL"), *members]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_the_given_games_are_those_that_lc0_played(shared_data: Path, tmp_path: Path):
    directory = shared_data / "lc0_v6"
    store = imported(directory, tmp_path / "store", workers=2)
    rows = rows_of(store)
    store.verify()
    for row, line in zip(rows, (directory / "games.tsv").read_text().splitlines(), strict=True):
        name, result, moves = line.split("\t")
        assert row["source"] == name
        assert row["result"] == {"whitewon": 1, "blackwon": -1, "draw": 0}[result]
        board = chess.Board(chess960=True)  # castling is king takes rook in the list
        for uci in moves.split():
            board.push_uci(uci)
        assert row["moves"] == core_moves(board)
        assert row["start_fen"] is None
        records = read(directory / name)
        assert np.array_equal(np.array(row["visits"], np.uint32), records["visits"])
    assert sum(len(row["moves"]) for row in rows) == 2624
    assert summarize(store)["full_searches"] == 2624


def test_moves_starts_and_results_are_those_of_python_chess(
    files: Path, boards: list[tuple[chess.Board, int]], tmp_path: Path
):
    store = imported(files, tmp_path / "store")
    store.verify()
    for row, (board, result) in zip(rows_of(store), boards, strict=True):
        start = board.root()
        assert row["moves"] == core_moves(board)
        assert row["result"] == result
        if start.fen() == chess.STARTING_FEN:
            assert row["start_fen"] is None
        else:  # move numbers are not in a record
            found = chess.Board(row["start_fen"])
            assert found.epd(en_passant="legal") == start.epd(en_passant="legal")
            assert found.halfmove_clock == start.halfmove_clock


def test_policies_and_numbers_are_those_of_the_records(
    files: Path, recorded: list[Records], boards: list[tuple[chess.Board, int]], tmp_path: Path
):
    rows = rows_of(imported(files, tmp_path / "store"))
    for row, records, (board, _) in zip(rows, recorded, boards, strict=True):
        for name in (*NUMBERS, "policy_kld", "q_st"):
            if not name.startswith("result"):
                assert np.array_equal(np.array(row[name], np.float32), records[name]), name
        assert row["flags"] == [1 | (info & 8) >> 2 for info in records["invariance_info"].tolist()]
        offsets = row["policy_offsets"]
        for ply, position in enumerate(positions_of(board)[:-1]):
            shares = dict(
                zip(
                    row["policy_move"][offsets[ply] : offsets[ply + 1]],
                    row["policy_prob"][offsets[ply] : offsets[ply + 1]],
                    strict=True,
                )
            )
            found = np.zeros(1858)
            line_index = {core_move(position, move): move for move in position.legal_moves}
            for move, share in shares.items():
                found[index_of(position, line_index[move])] = share / 65535
            wanted = np.maximum(records[ply]["probabilities"], 0)
            assert np.abs(found - wanted).max() <= 0.5 / 65535 + 1e-7


def test_v7_is_v6_and_one_number_more(recorded: list[Records], tmp_path: Path):
    sixth, seventh = tmp_path / "6.gz", tmp_path / "7.gz"
    write(sixth, recorded[0])
    write(seventh, as_v7(recorded[0]))
    (old,) = rows_of(imported(sixth, tmp_path / "old"))
    (new,) = rows_of(imported(seventh, tmp_path / "new"))
    assert np.allclose(new.pop("d_st"), np.linspace(0.25, 0.5, len(new["moves"])))
    assert {**old, "source": ""} == {**new, "source": ""}
    both = rows_of(imported([sixth, seventh], tmp_path / "both"))
    assert both[0]["d_st"] is None
    assert len(both[1]["d_st"]) == len(new["moves"])


@pytest.mark.parametrize("first", [1, 4, 7, 8, 20])
def test_an_opening_is_read_from_the_planes_behind_the_first_record(
    recorded: list[Records], boards: list[tuple[chess.Board, int]], tmp_path: Path, first: int
):
    """lc0 writes no records of a book's moves: seven plies at most are seen behind the first position."""
    (row,) = rows_of(imported(write(tmp_path / "game.gz", recorded[3][first:]), tmp_path / "store"))
    moves = core_moves(boards[3][0])
    seen = min(first, 7)
    assert row["moves"] == moves[first - seen :]
    assert row["flags"][:seen] == [0] * seen
    assert all(flag & 1 for flag in row["flags"][seen:])
    assert np.isnan(row["best_d"][:seen]).all()
    assert (row["start_fen"] is None) == (first <= 7)


@pytest.mark.parametrize("gap", [1, 2, 5, 7])
def test_moves_between_records_are_read_from_the_planes(
    recorded: list[Records], boards: list[tuple[chess.Board, int]], tmp_path: Path, gap: int
):
    """Our own quick searches leave such gaps when games are exported."""
    records = recorded[4]
    kept = np.concatenate([records[:10], records[10 + gap :]])
    (row,) = rows_of(imported(write(tmp_path / "game.gz", kept), tmp_path / "store"))
    assert row["moves"] == core_moves(boards[4][0])
    assert [ply for ply, flag in enumerate(row["flags"]) if not flag & 1] == list(range(10, 10 + gap))


def test_resigned_and_overlong_games_are_told_apart(recorded: list[Records], tmp_path: Path):
    paths = []
    for bits in (0, 32, 48):
        records = recorded[1][:20].copy()
        records["invariance_info"] = bits
        paths.append(write(tmp_path / f"{bits}.gz", records))
    rows = rows_of(imported(paths, tmp_path / "store"))
    assert [row["termination"] for row in rows] == [None, "adjudicated", "too_long"]


def test_files_and_an_archive_of_them_give_the_same_games(files: Path, tmp_path: Path):
    members = [(f"training/{path.name}", path.read_bytes()) for path in sorted(files.iterdir())]
    of_files = rows_of(imported(files, tmp_path / "files"))
    for suffix, packing in ((".tar", ""), (".tar.gz", "gz"), (".tgz", "gz")):
        tar = archive(tmp_path / f"training-run1--20200101-0000{suffix}", members, packing)
        store = imported(tar, tmp_path / suffix)
        assert store.manifest.sources[0].sha256 == sha256(tar.read_bytes()).hexdigest()
        of_tar = rows_of(store)
        assert {row["source"] for row in of_tar} == {tar.name}
        assert [{**row, "source": ""} for row in of_files] == [{**row, "source": ""} for row in of_tar]


def test_the_bytes_of_a_store_do_not_depend_on_workers_or_chunks(files: Path, tmp_path: Path):
    members = [(path.name, path.read_bytes()) for path in sorted(files.iterdir())]
    sources = [files, archive(tmp_path / "games.tar", members)]
    limits = (3, 10**9)
    imported(sources, tmp_path / "one", shard_limits=limits)
    imported(sources, tmp_path / "four", workers=4, shard_limits=limits)
    imported(sources, tmp_path / "small", workers=2, chunk_bytes=5000, shard_limits=limits)
    assert content(tmp_path / "one") == content(tmp_path / "four") == content(tmp_path / "small")
    assert len(GameStore.open(tmp_path / "one").shards) == 7


def test_a_loader_takes_policies_as_targets_and_mixes_values(
    recorded: list[Records], tmp_path: Path, boards: list[tuple[chess.Board, int]]
):
    records = recorded[2]
    store = imported(write(tmp_path / "game.gz", records), tmp_path / "store")
    window = Window.of_stores([store])
    encoder = WindowEncoder(window, get_spec("chess"), num_threads=1, value_q_ratio=0.5)
    batch = encoder.encode(np.arange(len(records)))
    for ply, record in enumerate(records):
        legal = slice(batch.legal_offset[ply], batch.legal_offset[ply + 1])
        assert np.array_equal(batch.legal_index[legal], np.flatnonzero(record["probabilities"] >= 0))
        wanted = record["probabilities"][batch.legal_index[legal]]
        assert np.allclose(batch.policy[legal], wanted, atol=3e-4)
        q, d = float(record["root_q"]), float(record["root_d"])
        z, draw = float(record["result_q"]), float(record["result_d"])
        searched = np.array([1 - d + q, 2 * d, 1 - d - q]) / 2
        known = np.array([1 - draw + z, 2 * draw, 1 - draw - z]) / 2
        assert np.allclose(batch.wdl[ply], (searched + known) / 2, atol=1e-6)
