"""Data for other hosts: what is lacking, what arrives, and what does not count."""

import io
import tarfile
from pathlib import Path

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.head.sync_data import (
    MARK,
    FileEntry,
    data_digest,
    describe,
    files_of,
    lacking_here,
    read_answer,
    receive,
    write_archive,
)
from alphazero.launch.plan.launch_plan import Remote


@pytest.mark.parametrize("answer", ["", "[broken", "3", '{"a"', "[" * 100_000])
def test_what_a_strange_host_answers_is_one_line_that_names_it(answer):
    told = io.BytesIO(f"Welcome\n{MARK}{answer}\n".encode())
    with pytest.raises(LaunchError, match=r"^--sync-data: b: ") as caught:
        read_answer(told, Remote("b", "b"))
    assert "\n" not in str(caught.value)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Like a game store: shards and a manifest."""
    path = tmp_path / "store"
    path.mkdir()
    for name, content in (("shard-2.arrow", b"two"), ("manifest.json", b"{}"), ("shard-1.arrow", b"one")):
        (path / name).write_bytes(content)
    return path


def moved(entries: list[FileEntry], old: Path, new: Path) -> list[FileEntry]:
    """The same files as another host would have them."""
    return [
        FileEntry(entry.path.replace(str(old), str(new)), entry.size_bytes, entry.sha256) for entry in entries
    ]


def stream_of(contents: list[bytes]) -> io.BytesIO:
    """The tar stream that the head sends."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for number, content in enumerate(contents):
            member = tarfile.TarInfo(str(number))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    stream.seek(0)
    return stream


def test_the_manifest_is_the_last_file(store: Path):
    assert [path.name for path in files_of(store)] == ["shard-1.arrow", "shard-2.arrow", "manifest.json"]


def test_what_arrives_is_what_was_sent(store: Path, tmp_path: Path):
    there = tmp_path / "there"
    entries = moved(describe([store]), store, there)
    assert lacking_here(entries) == [entry.path for entry in entries]
    assert receive(entries, stream_of([b"one", b"two", b"{}"])) == [entry.path for entry in entries]
    assert lacking_here(entries) == []
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {
        "shard-1.arrow": b"one",
        "shard-2.arrow": b"two",
        "manifest.json": b"{}",
    }
    assert data_digest(there) == data_digest(store) != ""


def test_linked_data_arrives_as_files(store: Path, tmp_path: Path):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "shard-1.arrow").symlink_to(store / "shard-1.arrow")
    (linked / "shard-2.arrow").hardlink_to(store / "shard-2.arrow")
    (linked / "shard-3.arrow").hardlink_to(store / "shard-2.arrow")
    (linked / "manifest.json").symlink_to(store / "manifest.json")
    (tmp_path / "data").symlink_to(linked)
    entries = describe([tmp_path / "data"])
    stream = io.BytesIO()
    write_archive(entries, stream)
    stream.seek(0)
    there = moved(entries, tmp_path / "data", tmp_path / "there")
    assert receive(there, stream) == [entry.path for entry in there]
    assert (tmp_path / "there" / "shard-1.arrow").read_bytes() == b"one"
    assert (tmp_path / "there" / "shard-3.arrow").read_bytes() == b"two"


def test_only_files_that_differ_are_lacking(store: Path):
    entries = describe([store])
    (store / "shard-2.arrow").write_bytes(b"TWO")
    assert [Path(path).name for path in lacking_here(entries)] == ["shard-2.arrow"]


def test_a_file_damaged_on_the_way_does_not_count_and_what_was_there_stays(store: Path):
    entries = [entry for entry in describe([store]) if entry.path.endswith("shard-1.arrow")]
    with pytest.raises(LaunchError, match=r"shard-1.arrow: .*sha256"):
        receive(entries, stream_of([b"0ne"]))
    assert (store / "shard-1.arrow").read_bytes() == b"one"
    assert len(list(store.iterdir())) == 3  # no temporary file


def test_a_stream_cannot_name_a_file_of_its_own(store: Path, tmp_path: Path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(store / "shard-1.arrow", arcname="../evil")
    stream.seek(0)
    with pytest.raises(LaunchError, match=r"holds '\.\./evil'"):
        receive(describe([store / "shard-1.arrow"]), stream)
    assert not (tmp_path / "evil").exists()


def test_a_transfer_broken_off_leaves_no_store(store: Path, tmp_path: Path):
    there = tmp_path / "there"
    entries = moved(describe([store]), store, there)
    whole = stream_of([b"one" * 5000, b"two", b"{}"]).getvalue()
    with pytest.raises((tarfile.TarError, LaunchError)):
        receive(entries, io.BytesIO(whole[:6000]))
    assert not (there / "manifest.json").exists()


def test_digests_differ_where_content_or_names_do(store: Path, tmp_path: Path):
    raw = tmp_path / "games.pgn"
    raw.write_text("1. e4")
    before = data_digest(raw)
    raw.write_text("1. e4 e5")
    assert data_digest(raw) not in (before, "")
    assert data_digest(tmp_path / "nothing") == ""
