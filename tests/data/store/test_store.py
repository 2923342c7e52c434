"""The game store: what is written is read back, and damage anywhere is found and named."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from alphazero._core import ChessPosition, chess_random_playout
from alphazero._core import find_illegal_chess_game as find_illegal_game
from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.data.sampling.loader import WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import MANIFEST_NAME, QUARANTINE_NAME, GameStore, SourceEntry
from alphazero.data.store.summary import summarize
from alphazero.data.store.writer import ROW_SCHEMA, StoreWriter
from alphazero.games.registry import get_game, get_spec

FEN = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"


def moves(*ucis: str, fen: str | None = None) -> list[int]:
    position, played = ChessPosition(fen), []
    for uci in ucis:
        played.append(position.parse_uci(uci))
        position.push_uci(uci)
    return played


def row(**columns: object) -> dict[str, Any]:
    return {"game": "chess", "variant": "standard", "source": "by hand", "moves": [], **columns}


ROWS = [
    row(moves=moves("e2e4", "e7e5"), result=1, white="A", white_elo=2800, black_elo=2700),
    row(moves=moves("e2e4", "e8d8", fen=FEN), start_fen=FEN, result=0, variant="chess960"),
    row(result=None, black="B"),
    row(moves=moves("d2d4"), result=-1, termination="time forfeit", event="E", date="2024"),
]


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)


def write(path: Path, rows: list[dict[str, Any]], step: int = 1000, **limits: int) -> Path:
    work = path.with_name(path.name + ".work")
    work.mkdir()
    writer = StoreWriter(work, "chess", **limits)
    for begin in range(0, len(rows), step):
        writer.append(batch(rows[begin : begin + step]))
    writer.finish(path, [SourceEntry("by hand", 1, "0" * 64, len(rows), len(rows), 5, {}, 0)])
    return path


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return write(tmp_path / "store", ROWS)


def test_views_hold_what_was_written(store_path: Path):
    (shard,) = GameStore.open(store_path).shards
    assert (shard.num_games, shard.num_plies) == (4, 5)
    assert shard.moves.dtype == np.uint16
    assert shard.moves.tolist() == [move for r in ROWS for move in r["moves"]]
    assert shard.moves_offset.tolist() == [0, 2, 4, 4, 5]
    assert shard.result_valid.tolist() == [True, True, False, True]
    assert shard.result[shard.result_valid].tolist() == [1, 0, -1]
    assert bytes(shard.fen_bytes).decode() == FEN
    assert shard.fen_offset.tolist() == [0, 0, len(FEN), len(FEN), len(FEN)]


def test_views_are_of_the_file_and_read_only(store_path: Path):
    (shard,) = GameStore.open(store_path).shards
    for view in (shard.moves, shard.moves_offset, shard.result, shard.fen_bytes, shard.fen_offset):
        assert not view.flags.writeable
        assert not view.flags.owndata


def test_all_columns_come_back(store_path: Path):
    (shard,) = GameStore.open(store_path).shards
    wanted = [{name: r.get(name) for name in ROW_SCHEMA.names} for r in ROWS]
    assert shard.table.to_pylist() == wanted


def test_search_columns_come_back(tmp_path: Path):
    searched = row(
        moves=moves("e2e4"),
        flags=[1],
        root_q=[0.25],
        root_d=[0.5],
        best_q=[-0.125],
        visits=[800],
        policy_offsets=[0, 2],
        policy_move=moves("e2e4") + moves("d2d4"),
        policy_prob=[65000, 535],
        target_kind="visits",
    )
    (shard,) = GameStore.open(write(tmp_path / "s", [searched])).shards
    assert {
        name: value for name, value in shard.table.to_pylist()[0].items() if value is not None
    } == searched


def test_any_arrow_reader_can_open_a_shard(store_path: Path):
    table = pa.ipc.open_file(store_path / "shard-00000.arrow").read_all()
    assert table.num_rows == 4


def random_rows(num_games: int) -> list[dict[str, Any]]:
    return [
        row(
            moves=chess_random_playout(game, 10 + game % 30),
            result=(1, 0, -1, None)[game % 4],
            white=f"player {game % 7}" if game % 5 else None,
            black_elo=2000 + game if game % 3 else None,
        )
        for game in range(num_games)
    ]


def test_bytes_do_not_depend_on_how_rows_arrive(tmp_path: Path):
    rows = random_rows(150)
    contents = set()
    for step in (1, 7, 64, 150):
        path = write(tmp_path / f"by-{step}", rows, step, shard_games=40, shard_plies=500)
        contents.add(tuple((file.name, file.read_bytes()) for file in sorted(path.iterdir())))
    assert len(contents) == 1


def test_shards_end_at_the_first_limit_reached(tmp_path: Path):
    rows = [row(moves=chess_random_playout(game, 10)) for game in range(25)]
    assert all(len(r["moves"]) == 10 for r in rows)
    by_games = GameStore.open(write(tmp_path / "a", rows, shard_games=10))
    assert [shard.num_games for shard in by_games.shards] == [10, 10, 5]
    by_plies = GameStore.open(write(tmp_path / "b", rows, shard_plies=75))
    assert [shard.num_games for shard in by_plies.shards] == [8, 8, 8, 1]


def test_a_sound_store_verifies(tmp_path: Path, store_path: Path):
    GameStore.open(store_path).verify()
    GameStore.open(write(tmp_path / "random", random_rows(50), shard_games=20)).verify()


def test_every_changed_byte_of_a_store_is_found(tmp_path: Path):
    path = write(tmp_path / "store", ROWS)
    for file in sorted(path.iterdir()):
        sound = file.read_bytes()
        for at in range(0, len(sound), 7):
            damaged = bytearray(sound)
            damaged[at] ^= 0x20
            file.write_bytes(bytes(damaged))
            with pytest.raises(DataError, match=str(path)):
                GameStore.open(path).verify()
        file.write_bytes(sound)
    GameStore.open(path).verify()


def test_every_shortened_file_of_a_store_is_found_at_once(store_path: Path):
    for file in sorted(store_path.iterdir()):
        sound = file.read_bytes()
        for size in (0, 1, len(sound) // 2, len(sound) - 1):
            if 0 <= size < len(sound.rstrip()):
                file.write_bytes(sound[:size])
                with pytest.raises(DataError, match=file.name):
                    GameStore.open(store_path)
        file.unlink()
        with pytest.raises(DataError, match=file.name):
            GameStore.open(store_path)
        file.write_bytes(sound)


def rewrite_manifest(path: Path, **changes: object) -> None:
    """Change the manifest and make its own checksum fit again, as a deceiver would."""
    body = json.loads((path / MANIFEST_NAME).read_text())
    del body["manifest_sha256"]
    body.update(changes)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["manifest_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / MANIFEST_NAME).write_text(json.dumps(body))


def test_a_manifest_that_does_not_fit_its_shards_is_refused(store_path: Path):
    entry = json.loads((store_path / MANIFEST_NAME).read_text())["shards"][0]
    for change, words in (
        ({"games": 5}, "4 games with 5 plies; the manifest has 5 with 5"),
        ({"plies": 6}, "the manifest has 4 with 6"),
        ({"size_bytes": 1}, "the manifest has 1"),
        ({"sha256": "0" * 64}, "checksum"),
    ):
        rewrite_manifest(store_path, shards=[{**entry, **change}])
        with pytest.raises(DataError, match=words):
            GameStore.open(store_path).verify()


def test_other_formats_and_versions_are_refused(store_path: Path):
    for change, words in (
        ({"version": 3}, "version 3 of the game store; this program reads versions 1 to 2"),
        ({"magic": "x"}, "no manifest of a game store"),
    ):
        rewrite_manifest(store_path, **change)
        with pytest.raises(DataError, match=words):
            GameStore.open(store_path)
    for text in ("", "[]", "{", "null"):
        (store_path / MANIFEST_NAME).write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json"):
            GameStore.open(store_path)


def test_what_is_no_store_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no game store"):
        GameStore.open(tmp_path)
    with pytest.raises(DataError, match="no game store"):
        GameStore.open(tmp_path / "missing")


def test_an_illegal_move_is_found_and_named(tmp_path: Path):
    broken = row(moves=[*moves("e2e4"), *moves("e2e4")])
    store = GameStore.open(write(tmp_path / "s", [*ROWS, broken]))
    with pytest.raises(DataError, match=r"row 4, ply 1: .* rnbqkbnr/"):
        store.verify()


def test_a_start_that_is_no_position_is_found_and_named(tmp_path: Path):
    store = GameStore.open(write(tmp_path / "s", [row(start_fen="nonsense")]))
    with pytest.raises(DataError, match="row 0, ply 0"):
        store.verify()


def test_a_start_with_more_queens_than_pawns_can_become_is_found_and_named(tmp_path: Path):
    store = GameStore.open(write(tmp_path / "s", [row(start_fen="6k1/8/8/8/8/8/QQQQQQQ1/KQQQ4 w - - 0 1")]))
    with pytest.raises(DataError, match=r"ply 0: .*white has 9"):
        store.verify()


def test_a_result_out_of_range_is_found(tmp_path: Path):
    store = GameStore.open(write(tmp_path / "s", [row(result=2)]))
    with pytest.raises(DataError, match="result is not -1"):
        store.verify()


def test_offsets_that_do_not_fit_are_refused_by_the_core():
    nothing, zero = np.zeros(0, np.uint8), np.zeros(2, np.int32)
    played = np.array(moves("e2e4"), np.uint16)
    for offsets in ([0, 2], [1, 0], [-1, 1]):
        with pytest.raises(ValueError, match="moves_offset"):
            find_illegal_game(played, np.array(offsets, np.int32), nothing, zero)
    with pytest.raises(ValueError, match="equal lengths"):
        find_illegal_game(played, np.array([0, 1], np.int32), nothing, np.zeros(3, np.int32))
    assert find_illegal_game(played, np.array([0, 1], np.int32), nothing, zero) is None


def test_a_summary_counts_the_games(store_path: Path):
    summary = summarize(GameStore.open(store_path))
    assert (summary["games"], summary["plies"], summary["mean_plies"]) == (4, 5, 1.25)
    assert summary["results"] == {"1-0": 1, "1/2-1/2": 1, "0-1": 1, "*": 1}
    assert summary["variants"] == {"chess960": 1, "standard": 3}
    assert (summary["from_fen"], summary["elo_range"]) == (1, (2700, 2800))
    assert json.loads(json.dumps(summary))["sources"][0]["name"] == "by hand"


def test_the_quarantine_is_part_of_the_store(store_path: Path):
    assert (store_path / QUARANTINE_NAME).read_bytes() == b""
    (store_path / QUARANTINE_NAME).write_text("{}\n")
    with pytest.raises(DataError, match=r"quarantine\.jsonl: 3 .* 0"):
        GameStore.open(store_path)


def test_damaged_shards_are_errors_or_games_and_nothing_worse(tmp_path: Path):
    """Bits, lengths and offsets of a shard changed at random; before, `data info` ended by SIGSEGV."""
    path = write(tmp_path / "s", [*ROWS, *random_rows(20)])
    shard = path / "shard-00000.arrow"
    sound = shard.read_bytes()
    rng = np.random.default_rng(12)
    opened = 0
    for trial in range(400):
        damaged = bytearray(sound)
        for _ in range(1 + trial % 3):
            at = int(rng.integers(len(sound)))
            word = (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x00", bytes([damaged[at] ^ 1 << trial % 8]))[
                int(rng.integers(4))
            ]
            damaged[at : at + len(word)] = word
        shard.write_bytes(damaged[: len(sound)])
        try:
            store = GameStore.open(path)
            summarize(store)
            window = Window.of_stores([store])
            encoder = WindowEncoder(window, get_spec("chess"), num_threads=1)
            opened += 1
            encoder.position_keys()
            encoder.encode(np.arange(window.num_samples))
        except DataError as error:
            assert "\n" not in str(error)
    assert 20 < opened < 380


@pytest.mark.parametrize("name", ["white", "variant", "source"])
def test_a_word_beyond_its_dictionary_is_refused_when_the_store_is_opened(store_path: Path, name: str):
    shard = store_path / "shard-00000.arrow"
    batch = pa.ipc.open_file(shard).get_batch(0)
    columns = list(batch.columns)
    place = batch.schema.names.index(name)
    column = batch.column(name)
    columns[place] = pa.DictionaryArray.from_arrays(
        pa.array([1 << 30] * batch.num_rows, pa.int32()), column.dictionary, safe=False
    )
    with pa.ipc.new_file(shard, batch.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=batch.schema))
    entry = json.loads((store_path / MANIFEST_NAME).read_text())["shards"][0]
    rewrite_manifest(store_path, shards=[{**entry, "size_bytes": shard.stat().st_size}])
    with pytest.raises(DataError, match=r"00000\.arrow: .*[Dd]ictionary"):
        GameStore.open(store_path)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../etc/passwd"},
        {"name": 3},
        {"games": -1},
        {"games": 1.5},
        {"size_bytes": None},
        {"more": 1},
    ],
)
def test_entries_of_a_manifest_are_checked_although_its_checksum_fits(
    store_path: Path, change: dict[str, Any]
):
    entry = json.loads((store_path / MANIFEST_NAME).read_text())["shards"][0]
    rewrite_manifest(store_path, shards=[{**entry, **change}])
    with pytest.raises(DataError, match=r"manifest\.json: damaged: "):
        GameStore.open(store_path)


@pytest.mark.parametrize(
    "change",
    [
        {"game": 3},
        {"game": None},
        {"shards": 1},
        {"sources": [[]]},
        {"sources": True},
        {"quarantine": 0},
        {"quarantine": {}},
        {"quarantine": {"games": 0, "size_bytes": 0}},
        {"quarantine": {"games": 0, "size_bytes": float("inf"), "sha256": ""}},
        {"quarantine": {"games": 0, "size_bytes": "0", "sha256": ""}},
        {"quarantine": "x" * 100_000},
        {"version": "x" * 100_000},
        {"sources": [{"name": "x" * 100_000}]},
    ],
    ids=lambda change: str(change)[:40],
)
def test_values_of_a_manifest_are_checked_although_its_checksum_fits(
    store_path: Path, change: dict[str, Any]
):
    rewrite_manifest(store_path, **change)
    with pytest.raises(DataError, match=r"manifest\.json: ") as caught:
        GameStore.open(store_path)
    assert len(str(caught.value)) < 600


def test_a_long_name_of_a_game_is_shown_in_part(store_path: Path):
    rewrite_manifest(store_path, game="x" * 100_000)
    store = GameStore.open(store_path)
    for use in (store.verify, lambda: get_game(store.manifest.game)):
        with pytest.raises(AlphaZeroError, match="one of chess") as caught:
            use()
        assert len(str(caught.value)) < 600


def test_a_manifest_that_json_cannot_hold_is_refused(store_path: Path):
    for text in ("[" * 100_000, '{"magic": ' + "9" * 5000 + "}"):
        (store_path / MANIFEST_NAME).write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json") as caught:
            GameStore.open(store_path)
        assert "\n" not in str(caught.value)


def test_a_pipe_in_place_of_a_shard_is_refused_at_once(store_path: Path):
    (store_path / "shard-00000.arrow").unlink()
    os.mkfifo(store_path / "shard-00000.arrow")
    with pytest.raises(DataError, match=r"00000\.arrow: .*no file"):
        GameStore.open(store_path)


def test_a_shard_that_becomes_shorter_while_it_is_read_is_named(store_path: Path):
    """Before, reading beyond the end killed the process (SIGBUS) without a word."""
    store = GameStore.open(store_path)
    encoder = WindowEncoder(Window.of_stores([store]), get_spec("chess"), num_threads=1)
    encoder.encode(np.arange(2))
    os.truncate(store_path / "shard-00000.arrow", 1)
    for read in (lambda: encoder.encode(np.arange(2)), encoder.position_keys, lambda: store.verify()):
        with pytest.raises(DataError, match=r"shard-00000\.arrow: .*"):
            read()
    with pytest.raises(DataError, match=r"1 bytes, \d+ .*cut off"):
        encoder.encode(np.arange(2))
