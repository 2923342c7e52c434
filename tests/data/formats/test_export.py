"""Games of a store as lc0's training data: lc0's come out as they were, ours as python-chess sees them."""

import os
import random
import sys
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

from alphazero._core import lc0_number_names
from alphazero.base.errors import DataError
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.lc0_export import export_lc0
from alphazero.data.store.schema import SEARCH_NUMBERS
from alphazero.data.store.store import GameStore
from tests.support.data.chess_games import Game, chess_row, searched_chess_row
from tests.support.data.lc0_records import V6, Records, index_of, read, records_of, standard_game
from tests.support.data.pgn_sources import content
from tests.support.data.stores import grown, searched
from tests.support.games.chess_reference import core_move, positions_of

EXACT = [name for name in V6.names or () if name != "probabilities"]


def round_trip(source: Path, tmp_path: Path) -> Path:
    """Imported and exported again."""
    import_games([source], tmp_path / "store", workers=1)
    export_lc0(GameStore.open(tmp_path / "store"), tmp_path / "out")
    return tmp_path / "out"


def assert_same_but_for_rounding(found: Records, wanted: Records) -> None:
    """Every field to the bit, probabilities to half a 65535th, those of illegal moves to the bit."""
    for name in EXACT:
        assert found[name].tobytes() == wanted[name].tobytes(), name
    policy, before = found["probabilities"], wanted["probabilities"]
    assert np.array_equal(policy == -1, before == -1)
    assert np.abs(policy - before).max() <= 0.5 / 65535 + 1e-7


def test_the_given_games_come_out_as_lc0_wrote_them(shared_data: Path, tmp_path: Path):
    given = sorted((shared_data / "lc0_v6").glob("*.gz"))
    out = round_trip(shared_data / "lc0_v6", tmp_path)
    assert [path.name for path in sorted(out.iterdir())] == [path.name for path in given]
    for path in given:
        assert_same_but_for_rounding(read(out / path.name), read(path))


def test_games_of_python_chess_come_out_as_they_were(files: Path, recorded: list[Records], tmp_path: Path):
    out = round_trip(files, tmp_path)
    for path, records in zip(sorted(out.iterdir()), recorded, strict=True):
        assert_same_but_for_rounding(read(path), records)


def test_an_export_imported_again_is_the_same_export(files: Path, tmp_path: Path):
    (tmp_path / "again").mkdir()
    once = round_trip(files, tmp_path)
    assert content(once) == content(round_trip(once, tmp_path / "again"))


def test_the_core_and_the_schema_know_the_same_numbers():
    assert tuple(lc0_number_names()) == SEARCH_NUMBERS


def exported(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> list[Records]:
    grown(tmp_path / "store", rows)
    export_lc0(GameStore.open(tmp_path / "store"), tmp_path / "out", **options)
    return [read(path) for path in sorted((tmp_path / "out").iterdir())]


@pytest.mark.parametrize("seed", range(3))
def test_our_own_games_are_as_python_chess_sees_them(tmp_path: Path, seed: int):
    """Castling, en passant and promotions come often; plies without a policy have no record."""
    rng = random.Random(seed)
    games = [Game(standard_game(50 + 10 * seed + n, 80), (1, 0, -1)[n]) for n in range(3)]
    rows = [searched_chess_row(game, rng) for game in games]
    for records, game, row in zip(exported(tmp_path, rows), games, rows, strict=True):
        reference = records_of(game.board, game.result or 0, rng)
        offsets = row["policy_offsets"]
        plies = [ply for ply in range(len(reference)) if offsets[ply] < offsets[ply + 1]]
        wanted = reference[plies]
        for name in ("planes", "castling", "black_to_move", "rule50", "result_q", "result_d", "played_idx"):
            assert np.array_equal(records[name], wanted[name]), name
        positions = positions_of(game.board)
        for record, ply in zip(records, plies, strict=True):
            assert np.array_equal(record["probabilities"] >= 0, reference[ply]["probabilities"] >= 0)
            policy = dict(
                zip(
                    row["policy_move"][offsets[ply] : offsets[ply + 1]],
                    row["policy_prob"][offsets[ply] : offsets[ply + 1]],
                    strict=True,
                )
            )
            assert record["root_q"] == np.float32(row["root_q"][ply])
            assert record["visits"] == row["visits"][ply]
            assert record["plies_left"] == len(reference) - ply
            assert bool(record["invariance_info"] & 64) == (not row["flags"][ply] & 1)
            for move in positions[ply].legal_moves:
                share = policy.get(core_move(positions[ply], move), 0)
                index = index_of(positions[ply], move)
                assert record["probabilities"][index] == pytest.approx(share / 65535, abs=1e-7)


def test_rules_for_what_the_store_does_not_know(tmp_path: Path):
    row = searched_chess_row(Game(standard_game(3, 20), 1), random.Random(1))
    (records,) = exported(tmp_path, [row])
    assert np.isnan(records["orig_q"]).all()
    assert not records["policy_kld"].any()
    assert not records["q_st"].any()
    assert np.array_equal(records["root_m"], records["plies_left"])
    is_best = records["played_idx"] == records["best_idx"]
    assert np.array_equal(records["played_q"], np.where(is_best, records["best_q"], records["root_q"]))
    assert (np.abs(records["best_q"]) + records["best_d"] <= 1 + 1e-6).all()


def test_a_game_goes_on_in_another_file_where_the_planes_cannot_tell_of_the_plies_between(tmp_path: Path):
    """As in our own self-play, whose quick searches leave no policy: the planes tell of seven plies."""
    game = Game(standard_game(11, 60), 1)
    with_policy = (3, 11, 12, 30, 38, 55)  # 7, 0, 17, 7 and 16 plies lie between
    boards = positions_of(game.board)[:-1]
    played = [core_move(board, move) for board, move in zip(boards, game.board.move_stack, strict=True)]
    policies = [[(move, 65535)] if ply in with_policy else [] for ply, move in enumerate(played)]
    row = searched(chess_row(game), [1] * len(played), policies, [0.25] * len(played), [0.5] * len(played))
    export_lc0(grown(tmp_path / "store", [row]), tmp_path / "out")
    names = ["game_000000.gz", "game_000000_part2.gz", "game_000000_part3.gz"]
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == names
    whole = np.concatenate([read(tmp_path / "out" / name) for name in names])
    assert [len(played) - left for left in whole["plies_left"]] == list(with_policy)

    import_games([tmp_path / "out"], tmp_path / "again", workers=1)
    again = GameStore.open(tmp_path / "again")
    parts = [row for shard in again.shards for row in shard.table.to_pylist()]
    assert [row["moves"] for row in parts] == [played[0:13], played[23:39], played[48:56]]
    assert [row["result"] for row in parts] == [1, 1, 1]


def test_a_game_without_a_search_is_one_of_moves_and_its_result(tmp_path: Path):
    game = Game(standard_game(9, 30), -1)
    (records,) = exported(tmp_path, [chess_row(game)])
    reference = records_of(game.board, -1, random.Random(1))
    assert np.array_equal(records["planes"], reference["planes"])
    assert np.array_equal(records["probabilities"].argmax(1), reference["played_idx"])
    assert np.array_equal(np.maximum(records["probabilities"], 0).sum(1), np.ones(len(records)))
    assert np.array_equal(records["best_q"], records["result_q"])


def test_games_are_chosen_by_place_and_what_cannot_be_told_is_left_out(tmp_path: Path):
    rng = random.Random(0)
    games = [Game(standard_game(seed, 10), result) for seed, result in enumerate((1, None, 0, -1))]
    rows = [chess_row(game) for game in games]
    rows.append({**chess_row(Game(chess.Board.from_chess960_pos(3), 1)), "variant": "chess960"})
    store = grown(tmp_path / "store", rows[:2], rows[2:])
    report = export_lc0(store, tmp_path / "all")
    assert report.games == 3 and "no result" in report.left_out and len(report.left_out) == 2
    export_lc0(store, tmp_path / "some", first=2, count=1)
    (path,) = (tmp_path / "some").iterdir()
    reference = records_of(games[2].board, 0, rng)
    assert np.array_equal(read(path)["played_idx"], reference["played_idx"])
    with pytest.raises(DataError, match=r"1 with no result"):
        export_lc0(store, tmp_path / "none", first=1, count=1)
    assert not (tmp_path / "none").exists()


def test_nothing_that_is_there_is_written_over(tmp_path: Path):
    store = grown(tmp_path / "store", [chess_row(Game(standard_game(1, 10), 1))])
    out = tmp_path / "out"
    out.mkdir()
    export_lc0(store, out)  # an empty directory is as good as none
    with pytest.raises(DataError, match="out: already exists"):
        export_lc0(store, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


def test_other_games_are_refused(tmp_path: Path):
    row = {"game": "connect4", "variant": "standard", "source": "x", "moves": [3], "result": 1}
    with pytest.raises(DataError, match="games of connect4"):
        export_lc0(grown(tmp_path / "store", [row]), tmp_path / "out")


@pytest.mark.skipif(
    "LCZERO_TRAINING" not in os.environ, reason="LCZERO_TRAINING names no checkout of lczero-training"
)
def test_the_parser_of_lczero_training_reads_what_we_write(
    tmp_path: Path, boards: list[tuple[chess.Board, int]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(Path(os.environ["LCZERO_TRAINING"]) / "tf"))
    import chunkparser  # type: ignore[import-not-found]

    rng = random.Random(5)
    rows = [searched_chess_row(Game(board, result), rng) for board, result in boards]
    files = exported(tmp_path, rows)
    paths = [str(path) for path in sorted((tmp_path / "out").iterdir())]
    parser = chunkparser.ChunkParser(paths, 1, batch_size=1, workers=0)
    found = list(parser.sequential())
    monkeypatch.delitem(sys.modules, "chunkparser")
    records = np.concatenate(files)
    assert len(found) == len(records)
    for (planes, probs, winner, best_q, plies_left), record in zip(found, records, strict=True):
        bits = np.unpackbits(record["planes"]).reshape(104, 64)
        shown = np.frombuffer(planes, np.float32).reshape(112, 64)
        assert np.array_equal(shown[:104], bits)
        assert np.array_equal(shown[104:108, 0], record["castling"])
        assert shown[109, 0] == np.float32(record["rule50"] / 99)
        assert np.frombuffer(probs, np.float32).tobytes() == record["probabilities"].tobytes()
        q, d = float(record["result_q"]), float(record["result_d"])
        assert np.frombuffer(winner, np.float32).tolist() == [(1 - d + q) / 2, d, (1 - d - q) / 2]
        best = np.frombuffer(best_q, np.float32)
        assert best[0] - best[2] == pytest.approx(float(record["best_q"]), abs=1e-6)
        assert np.frombuffer(plies_left, np.float32)[0] == record["plies_left"]
