"""Import: the same bytes for any workers and cuts; faults named, nothing half-written."""

import gzip
import json
import os
import threading
from pathlib import Path

import pytest

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.data.formats.files import ignore
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.parallel import parse_in_order
from alphazero.data.formats.pgn import PGN
from alphazero.data.open import open_or_import
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import StoreWriter
from tests.support.data.pgn_sources import ILLEGAL, content, game, quarantined, run


def test_the_totals_add_up(sources: Path, tmp_path: Path):
    report = run(sources, tmp_path / "store")
    assert not report.was_there
    store = GameStore.open(tmp_path / "store")
    store.verify()
    assert report.games_read == 100 == store.num_games + store.manifest.quarantine.games
    assert store.num_games == 90
    assert store.num_plies == 900
    assert store.manifest.quarantined == {"move": 10}
    assert [entry.name for entry in store.manifest.sources] == [
        "a.pgn",
        "b.pgn.gz",
        "c.pgn.zst",
        "deep/d.pgn",
        "empty.pgn",
    ]
    assert [(entry.games, entry.imported) for entry in store.manifest.sources][:2] == [(25, 23), (25, 22)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["games", "store"]


def test_a_bad_game_is_named_by_file_game_line_and_ply(sources: Path, tmp_path: Path):
    run(sources, tmp_path / "store")
    lines = quarantined(tmp_path / "store")
    text = (sources / "a.pgn").read_text().split("\n")
    first = lines[0]
    assert first["source"] == "a.pgn"
    assert (first["game"], first["ply"], first["kind"]) == (8, 2, "move")
    assert "move 'Ke3'" in first["reason"]
    assert text[first["line"] - 1] == "2. Ke3 *"
    assert [line["game"] for line in lines] == [8, 18, 3, 13, 23, 8, 18, 3, 13, 23]


def test_rows_hold_headers_moves_and_source(sources: Path, tmp_path: Path):
    run(sources, tmp_path / "store")
    rows = [r for shard in GameStore.open(tmp_path / "store").shards for r in shard.table.to_pylist()]
    assert [r["event"] for r in rows] == [f"game {n}" for n in range(100) if n % 10 != 7]
    assert (rows[0]["white"], rows[0]["black"], rows[0]["result"]) == ("p0", None, 1)
    assert (rows[0]["game"], rows[0]["variant"], rows[0]["source"]) == ("chess", "standard", "a.pgn")
    assert len({tuple(r["moves"]) for r in rows}) == 1


def test_workers_and_chunks_change_no_byte(sources: Path, tmp_path: Path):
    run(sources, tmp_path / "wanted")
    wanted = content(tmp_path / "wanted")
    assert sum(name.startswith("shard") for name in wanted) == 4
    for workers in (1, 2, 3, 8):
        for chunk_bytes in (50, 333, 1000, 1 << 20):
            store = tmp_path / f"store-{workers}-{chunk_bytes}"
            run(sources, store, workers=workers, chunk_bytes=chunk_bytes)
            assert content(store) == wanted


def test_every_chunk_size_gives_the_same_games(tmp_path: Path):
    path = tmp_path / "x.pgn"
    odd = '1. e4 { [Event "x"] } 1-0\n\n1. d4 (1. c4) 0-1\n[White "a"]\n\n1. c4 *\n\n'
    path.write_text(odd + game(1))
    stores = set()
    for chunk_bytes in range(1, len(path.read_bytes()) + 2):
        store = tmp_path / f"store-{chunk_bytes}"
        import_games([path], store, workers=1, chunk_bytes=chunk_bytes)
        stores.add(tuple(content(store).items()))
    assert len(stores) == 1
    assert GameStore.open(tmp_path / "store-1").num_games == 4


def test_an_import_beats_while_it_reads(tmp_path: Path):
    path = tmp_path / "x.pgn"
    path.write_text(game(1) * 20)
    beats: list[int] = []
    open_or_import([path], tmp_path / "cache", beat=lambda: beats.append(1))
    assert beats
    beats.clear()
    open_or_import([path], tmp_path / "cache", beat=lambda: beats.append(1), compare_content=False)
    assert not beats
    chunks = {"workers": 1, "progress": False, "chunk_bytes": 200}
    import_games([path], tmp_path / "again", **chunks, beat=lambda: beats.append(1))
    assert len(beats) > 5


def test_the_reference_files_import_the_same_with_any_number_of_workers(shared_data: Path, tmp_path: Path):
    digests = set()
    for workers in (1, 2, 3):
        report = import_games(
            [shared_data / "pgn_small", shared_data / "pgn_val"],
            tmp_path / f"store-{workers}",
            workers=workers,
            shard_limits=(100, 1 << 20),
        )
        digests.add(report.manifest.sha256)
        GameStore.open(tmp_path / f"store-{workers}").verify()
    assert len(digests) == 1
    assert (report.manifest.games, report.manifest.quarantine.games) == (362, 0)


@pytest.mark.slow
def test_all_reference_files_import_without_a_fault(shared_data: Path, tmp_path: Path):
    folders = [shared_data / name for name in ("pgn", "pgn_val", "pgn_small")]
    report = import_games(folders, tmp_path / "store", workers=2)
    GameStore.open(tmp_path / "store").verify()
    assert report.games_read == report.manifest.games == 5638
    assert report.manifest.plies == 792903


def test_a_second_import_says_that_all_is_there(sources: Path, tmp_path: Path):
    first = run(sources, tmp_path / "store")
    second = run(sources, tmp_path / "store")
    assert second.was_there
    assert second.manifest == first.manifest


def test_other_sources_do_not_touch_a_store(sources: Path, tmp_path: Path):
    run(sources, tmp_path / "store")
    before = content(tmp_path / "store")
    with pytest.raises(DataError, match="other sources"):
        run(sources / "a.pgn", tmp_path / "store")
    text = (sources / "a.pgn").read_text()
    (sources / "a.pgn").write_text(text.replace("comment 3", "comment 4"))  # same name, same size
    with pytest.raises(DataError, match="other sources"):
        run(sources, tmp_path / "store")
    assert content(tmp_path / "store") == before


def test_a_directory_of_something_else_is_left_alone(sources: Path, tmp_path: Path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.txt").write_text("x")
    with pytest.raises(DataError, match="not a game store"):
        run(sources, tmp_path / "store")
    (tmp_path / "store" / "thesis.txt").unlink()
    assert run(sources, tmp_path / "store").manifest.games == 90


@pytest.mark.parametrize("text", ["", "\n\n", ILLEGAL, "this is no PGN at all"])
def test_sources_without_a_single_game_are_an_error(text: str, tmp_path: Path):
    (tmp_path / "x.pgn").write_text(text)
    with pytest.raises(DataError, match=r"x\.pgn: no game"):
        run(tmp_path / "x.pgn", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_damaged_data_names_the_file_and_how_far_it_was_read(sources: Path, tmp_path: Path):
    whole = gzip.compress("".join(map(game, range(5000))).encode())
    (sources / "b.pgn.gz").write_bytes(whole[: len(whole) // 2])
    message = r"b\.pgn\.gz: damaged gzip data after \d+ bytes of text: .* \(\d+ games of it read before\)"
    with pytest.raises(DataError, match=message):
        run(sources / "b.pgn.gz", tmp_path / "store", chunk_bytes=10_000)
    assert not (tmp_path / "store").exists()


def test_unreadable_files_of_a_directory_are_listed_and_the_rest_is_imported(sources: Path, tmp_path: Path):
    whole = gzip.compress("".join(map(game, range(5000))).encode())
    (sources / "b.pgn.gz").write_bytes(whole[: len(whole) // 2])
    (sources / "deep" / "d.pgn").write_bytes(b"PK\x03\x04")
    (sources / "gone.pgn").symlink_to("nowhere")
    stores, said = [tmp_path / "one", tmp_path / "many"], []
    for store, workers in zip(stores, (1, 3), strict=True):
        report = run(sources, store, chunk_bytes=10_000, workers=workers, say=said.append)
    entries = {entry.name: entry for entry in report.manifest.sources}
    assert list(entries) == ["a.pgn", "b.pgn.gz", "c.pgn.zst", "deep/d.pgn", "empty.pgn"]
    damaged, zipped = entries["b.pgn.gz"], entries["deep/d.pgn"]
    assert damaged.imported > 1000 and damaged.quarantined["unreadable"] == 1
    assert (zipped.games, zipped.imported, zipped.quarantined) == (1, 0, {"unreadable": 1})
    lines = {line["source"]: line for line in quarantined(stores[0]) if line["kind"] == "unreadable"}
    assert lines["b.pgn.gz"]["game"] == damaged.games and lines["deep/d.pgn"]["line"] == 1
    assert len(said) == 6 and all(
        any(name in line for line in said[:3]) for name in ("b.pgn.gz", "d.pgn", "gone.pgn")
    )
    assert content(stores[0]) == content(stores[1])
    assert run(sources, stores[0]).was_there
    GameStore.open(stores[0]).verify()


@pytest.mark.parametrize("chunk_bytes", [300, 4 << 20])
def test_whole_games_before_damage_are_imported(tmp_path: Path, chunk_bytes: int):
    (tmp_path / "games").mkdir()
    packed = gzip.compress("".join(map(game, range(10))).encode() + b'[Event "x"]\n\n1. e4')
    (tmp_path / "games" / "x.pgn.gz").write_bytes(packed[:-8])  # all but the checksum
    said: list[str] = []
    (entry,) = run(
        tmp_path / "games", tmp_path / "store", chunk_bytes=chunk_bytes, say=said.append
    ).manifest.sources
    assert (entry.games, entry.imported, entry.quarantined) == (11, 10, {"unreadable": 1})
    assert "(10 games of it read before)" in said[0]
    assert [line["game"] for line in quarantined(tmp_path / "store")] == [11]


def test_words_that_are_no_moves_are_counted_in_the_manifest_where_there_are_any(tmp_path: Path):
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "a.pgn").write_text("1. e4 D e5 \u00b1 *\n")
    (tmp_path / "games" / "b.pgn").write_text("1. e4 e5 *\n")
    run(tmp_path / "games", tmp_path / "store")
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    assert [source.get("skipped") for source in manifest["sources"]] == [2, None]
    assert GameStore.open(tmp_path / "store").manifest.sources[0].skipped == 2


def test_text_without_an_end_of_game_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("alphazero.data.formats.pgn.LARGEST_GAME_BYTES", 10_000)
    (tmp_path / "x.pgn").write_text("1. e4 " + "{ comment } " * 5000)
    with pytest.raises(DataError, match=r"x\.pgn: .* at byte 3"):
        run(tmp_path / "x.pgn", tmp_path / "store", chunk_bytes=100)


def test_a_file_that_goes_away_is_named(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = PGN.find([sources], ignore)
    (sources / "c.pgn.zst").unlink()
    monkeypatch.setattr(type(PGN), "find", lambda *_: found)
    with pytest.raises(DataError, match=r"c\.pgn\.zst: .*No such"):
        run(sources, tmp_path / "store")


def test_no_thread_outlives_a_reader_that_stops(tmp_path: Path):
    (tmp_path / "large.pgn").write_text("".join(map(game, range(3000))))
    (tmp_path / "more.pgn").write_text("".join(map(game, range(3000))))
    items = parse_in_order(PGN, PGN.find([tmp_path], ignore), 2, lambda num_bytes: None, 1000)
    next(items)
    items.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("import-")]


def test_stores_and_raw_files_mix_in_the_order_given(sources: Path, tmp_path: Path):
    run(sources / "a.pgn", tmp_path / "store")
    paths = [sources / "deep", tmp_path / "store", sources / "c.pgn.zst"]
    stores = open_or_import(paths, tmp_path / "cache")
    assert [store.path.parent.name for store in stores] == ["cache", tmp_path.name]
    assert [entry.name for entry in stores[0].manifest.sources] == ["d.pgn", "c.pgn.zst"]
    assert [store.num_games for store in stores] == [45, 23]


def test_raw_files_are_imported_once(sources: Path, tmp_path: Path):
    def cached() -> list[str]:
        return sorted(path.name for path in (tmp_path / "cache").iterdir())

    first = open_or_import([sources], tmp_path / "cache")
    (name,) = cached()
    written = (tmp_path / "cache" / name / "manifest.json").stat().st_mtime_ns
    second = open_or_import([sources], tmp_path / "cache")
    assert first[0].manifest == second[0].manifest
    assert (tmp_path / "cache" / name / "manifest.json").stat().st_mtime_ns == written
    (sources / "a.pgn").write_text(game(1))
    assert open_or_import([sources], tmp_path / "cache")[0].num_games == 68
    assert len(cached()) == 2


def test_data_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere: .*No such"):
        open_or_import([tmp_path / "nowhere"], tmp_path / "cache")


def test_a_source_and_a_store_whose_names_are_not_utf8(tmp_path: Path):
    directory = tmp_path / os.fsdecode(b"d\xff")
    directory.mkdir()
    source = directory / os.fsdecode(b"caf\xe9.pgn")
    source.write_text(game(1) + ILLEGAL)
    run(source, directory / "store")
    store = GameStore.open(directory / "store")
    store.verify()
    assert [entry.name for entry in store.manifest.sources] == ["caf\\xe9.pgn"]
    assert store.shards[0].table.column("source").to_pylist() == ["caf\\xe9.pgn"]
    assert [line["source"] for line in quarantined(store.path)] == ["caf\\xe9.pgn"]
    assert open_or_import([source], tmp_path / "cache")[0].num_games == 1


def test_the_quarantine_is_bounded_and_says_how_many_it_left_out(tmp_path: Path):
    (tmp_path / "a.pgn").write_text((ILLEGAL * 3 + game(1)) * 20)
    (tmp_path / "b.pgn").write_text(ILLEGAL * 7 + game(2))
    sources = [tmp_path / "a.pgn", tmp_path / "b.pgn"]
    contents = []
    for chunk_bytes in (4 << 20, 500):
        path = tmp_path / f"store-{chunk_bytes}"
        import_games(
            sources,
            path,
            workers=2,
            chunk_bytes=chunk_bytes,
            shard_limits=(6, 10_000),
            most_quarantine_lines=50,
        )
        contents.append(content(path))
    assert contents[0] == contents[1]
    store = GameStore.open(path)
    store.verify()
    lines = (path / "quarantine.jsonl").read_text().splitlines()
    assert (len(lines), json.loads(lines[-1])) == (51, {"left_out": 17})
    assert len(quarantined(path)) == 50
    assert store.manifest.quarantine.games == 67
    assert [entry.num_quarantined for entry in store.manifest.sources] == [60, 7]


def test_faults_beyond_those_described_are_counted():
    """As many as csrc/data/pgn_parser.hpp's kMostDescribed have a reason; a kilobyte unfolds to millions."""
    games = _core.parse_pgn(b"x *\n" * 150_000, 0, 600_000)
    assert games.games_read == len(games.faulty_game) == len(games.fault) == 150_000
    assert len(games.quarantined) == 100_000
    assert games.quarantined[-1].game == games.faulty_game[99_999] == 99_999


def test_a_shard_is_full_by_the_bytes_of_its_words(tmp_path: Path):
    long = "x" * 1000
    text = "".join(f'[White "{long}{n}"]\n[Black "{long}{n}"]\n\n1. e4 *\n\n' for n in range(20))
    contents = []
    for pieces in (1, 7, 20):
        games = _core.parse_pgn(text.encode(), 0, len(text))
        directory = tmp_path / f"w{pieces}"
        directory.mkdir()
        writer = StoreWriter(directory, "chess", shard_text_bytes=9_000)
        for begin in range(0, 20, pieces):
            writer.append(PGN.rows(games, "a.pgn", begin, min(begin + pieces, 20)))
        writer.finish(tmp_path / f"s{pieces}", [])
        contents.append(content(tmp_path / f"s{pieces}"))
    assert contents[0] == contents[1] == contents[2]
    assert [shard.num_games for shard in GameStore.open(tmp_path / "s1").shards] == [5, 5, 5, 5]
