"""Version 2 of the store: columns that are there where they say something; version 1 stays as it was."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from alphazero._core import chess_random_playout
from alphazero.base.errors import DataError
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.schema import SCHEMA, VERSION_2_FIELDS, version_of
from alphazero.data.store.store import MANIFEST_NAME, GameStore
from alphazero.data.store.writer import ROW_SCHEMA, StoreWriter, encode_shard, row_schema
from tests.fuzz.readers import mend_store
from tests.support.paths import FIXTURES

NOTES: dict[str, Any] = {
    "best_d": [0.5, float("nan"), 0.25],
    "orig_q": [float("nan"), -1.0, 1.0],
    "best_move": [1, 2, 3],
    "eval_cp": [35, None, -700],
    "eval_mate": [None, 3, None],
    "eval_depth": [20, 30, None],
    "eval_source": [1, 2, None],
    "clock_ms": [60_000, None, 0],
    "time_control": "300+3",
}


def row(**columns: object) -> dict[str, Any]:
    moves = chess_random_playout(1, 3)
    return {"game": "chess", "variant": "standard", "source": "x", "moves": moves, "result": 1, **columns}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    names = {field.name for field in VERSION_2_FIELDS}
    return pa.RecordBatch.from_pylist(
        list(rows), schema=row_schema(names & {name for columns in rows for name in columns})
    )


def grown(path: Path, *batches: pa.RecordBatch) -> GameStore:
    store = GrowingStore(path, "chess")
    for rows in batches:
        store.append(rows)
    return GameStore.open(path)


def version_in(path: Path) -> int:
    return int(json.loads((path / MANIFEST_NAME).read_text())["version"])


def test_all_columns_come_back(tmp_path: Path):
    store = grown(tmp_path / "s", batch(row(**NOTES), row()))
    store.verify()
    (shard,) = store.shards
    found = shard.table.to_pylist()
    assert version_in(tmp_path / "s") == store.manifest.version == 2
    assert str({name: found[0][name] for name in NOTES}) == str(NOTES)  # NaN is not itself
    assert {found[1][name] for name in NOTES} == {None}
    assert shard.table.schema.names == [*SCHEMA.names, *NOTES]


def test_without_them_the_bytes_are_those_of_version_1(tmp_path: Path):
    """A column that says nothing is not there: it costs nothing, and earlier programs read the store."""
    nothing = pa.RecordBatch.from_pylist([row(), row()], schema=row_schema(f.name for f in VERSION_2_FIELDS))
    plain = pa.RecordBatch.from_pylist([row(), row()], schema=ROW_SCHEMA)
    assert bytes(encode_shard([nothing])) == bytes(encode_shard([plain]))
    grown(tmp_path / "s", nothing)
    assert version_in(tmp_path / "s") == 1


def test_equal_rows_make_equal_bytes_however_they_are_cut(tmp_path: Path):
    rows = [row(**NOTES), row(), row(clock_ms=[1, 2, 3])]
    assert bytes(encode_shard([batch(*rows)])) == bytes(encode_shard([batch(one) for one in rows]))


def test_a_store_becomes_version_2_with_the_first_shard_that_is(tmp_path: Path):
    path = tmp_path / "s"
    assert grown(path, batch(row())).manifest.version == 1
    assert grown(path, batch(row(clock_ms=[1, 2, 3]))).manifest.version == 2
    assert [version_of(shard.table.schema) for shard in GameStore.open(path).shards] == [1, 2]
    GrowingStore(path, "chess").truncate_to(1)
    assert version_in(path) == 1


def test_a_writer_says_the_version_too(tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    writer = StoreWriter(work, "chess", shard_games=1)
    writer.append(batch(row()))
    writer.append(batch(row(best_d=[0.0, 0.5, 1.0])))
    writer.finish(tmp_path / "s", [])
    assert GameStore.open(tmp_path / "s").manifest.version == 2


def test_stores_of_the_first_version_are_version_1():
    store = GameStore.open(FIXTURES / "v0" / "store")
    store.verify()
    assert store.manifest.version == 1
    assert {version_of(shard.table.schema) for shard in store.shards} == {1}


def with_manifest(path: Path, **changes: object) -> None:
    manifest = path / MANIFEST_NAME
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))
    mend_store(path)


@pytest.mark.parametrize("version", [3, 0, "2", None, True, 1.5])
def test_a_store_of_another_version_is_refused_by_name(tmp_path: Path, version: object):
    grown(tmp_path / "s", batch(row()))
    with_manifest(tmp_path / "s", version=version)
    with pytest.raises(DataError, match=rf"version {version!r} of"):
        GameStore.open(tmp_path / "s")


def test_columns_that_the_manifest_does_not_promise_are_refused(tmp_path: Path):
    grown(tmp_path / "s", batch(row(**NOTES)))
    with_manifest(tmp_path / "s", version=1)
    with pytest.raises(DataError, match=r"version 2; .*version 1"):
        GameStore.open(tmp_path / "s")


@pytest.mark.parametrize("name", ["best_d", "best_move", "eval_cp", "clock_ms"])
def test_an_entry_too_few_is_found_when_a_store_is_opened(tmp_path: Path, name: str):
    with pytest.raises(DataError, match=f"game 0: 2 entries of {name}; expected 3"):
        grown(tmp_path / "s", batch(row(**{name: NOTES[name][:2]})))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"best_d": [0.0, 1.5, 0.0]}, "best_d 1.5; expected 0 to 1"),
        ({"orig_q": [0.0, 0.0, -2.0]}, "orig_q -2.0; expected -1 to 1"),
        ({"plies_left": [0.0, float("inf"), 0.0]}, "plies_left inf; expected a finite number"),
        ({"eval_source": [0, 9, None]}, "eval_source 9; expected 0 to 3"),
    ],
)
def test_values_beyond_their_bounds_are_found_by_verify(
    tmp_path: Path, columns: dict[str, Any], expected: str
):
    store = grown(tmp_path / "s", batch(row(**columns)))
    with pytest.raises(DataError, match=expected):
        store.verify()
