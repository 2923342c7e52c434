"""Sources: what is found below paths, what each packing gives, and what damage says."""

import bz2
import gzip
import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from alphazero.base.errors import DataError
from alphazero.data.formats.files import ignore
from alphazero.data.formats.pgn import PGN, SourceReader

TEXT = b"".join(b'[Event "%d"]\n\n1. e4 e5 *\n\n' % game for game in range(20_000))

PACKINGS = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": zstandard.compress,
    "gzip members": lambda text: gzip.compress(text[:1000]) + gzip.compress(text[1000:]),
    "bzip2 streams": lambda text: bz2.compress(text[:1000]) + bz2.compress(text[1000:]),
    "zstd frames": lambda text: zstandard.compress(text[:1000]) + zstandard.compress(text[1000:]),
    "gzip with padding": lambda text: gzip.compress(text) + b"\0" * 1000,
    "zstd with a skippable frame": lambda text: b"\x50\x2a\x4d\x18\4\0\0\0data" + zstandard.compress(text),
    "zstd with a large window": lambda text: zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    ).compress(text),
}


def read(path: Path, block_bytes: int = 1 << 16) -> bytes:
    (source,) = PGN.find([path], ignore)
    reader = SourceReader(source, lambda num_bytes: None)
    try:
        return b"".join(reader.blocks(block_bytes))
    finally:
        reader.close()


@pytest.mark.parametrize("packing", PACKINGS)
def test_text_comes_out_of(packing: str, tmp_path: Path):
    path = tmp_path / "games.pgn"  # found by content, not by name
    path.write_bytes(PACKINGS[packing](TEXT))
    assert read(path) == TEXT


def test_the_digest_and_the_count_are_of_the_file_itself(tmp_path: Path):
    path = tmp_path / "games.pgn.gz"
    path.write_bytes(gzip.compress(TEXT) + b"\0" * 100)
    counts: list[int] = []
    (source,) = PGN.find([path], ignore)
    reader = SourceReader(source, counts.append)
    next(reader.blocks(100))
    assert reader.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sum(counts) == path.stat().st_size == source.size_bytes


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "zstd"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_data_that_breaks_off_is_an_error(packing: str, share: float, tmp_path: Path):
    path = tmp_path / "games"
    whole = PACKINGS[packing](TEXT)
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=rf"games: damaged {packing} data after \d+"):
        read(path)


@pytest.mark.parametrize("packing", ["gzip", "bzip2"])
def test_a_changed_bit_is_an_error(packing: str, tmp_path: Path):
    path = tmp_path / "games"
    damaged = bytearray(PACKINGS[packing](TEXT))
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=f"damaged {packing} data after"):
        read(path)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "zstd"])
def test_garbage_behind_the_data_is_an_error(packing: str, tmp_path: Path):
    path = tmp_path / "games"
    path.write_bytes(PACKINGS[packing](TEXT) + b"garbage")
    with pytest.raises(DataError, match=f"damaged {packing} data after {len(TEXT)} bytes"):
        read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04...", "zip archive"),
        (b"\xfd7zXZ\x00", "xz data"),
        ('[Event "x"]'.encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_not_read_is_refused_by_name(content: bytes, words: str, tmp_path: Path):
    path = tmp_path / "games.pgn"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read(path)


def make_files(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(b"")


def test_directories_are_searched_and_sorted(tmp_path: Path):
    make_files(tmp_path, "b.pgn", "a/z.PGN.GZ", "a/y.pgn.zst", "c.pgn.bz2", "notes.txt", "a/b/c.pgn")
    found = PGN.find([tmp_path], ignore)
    assert [source.name for source in found] == [
        "a/b/c.pgn",
        "a/y.pgn.zst",
        "a/z.PGN.GZ",
        "b.pgn",
        "c.pgn.bz2",
    ]


def test_the_order_is_that_of_the_arguments(tmp_path: Path):
    make_files(tmp_path, "b.pgn", "a.pgn", "d/x.pgn", "other.txt")
    found = PGN.find([tmp_path / name for name in ("other.txt", "b.pgn", "d", "a.pgn")], ignore)
    assert [source.name for source in found] == ["other.txt", "b.pgn", "x.pgn", "a.pgn"]


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_files(tmp_path, "a/x.pgn", "b/x.pgn", "y.pgn")
    monkeypatch.chdir(tmp_path)
    found = PGN.find([Path("a/x.pgn"), Path("b"), Path("y.pgn")], ignore)
    assert [source.name for source in found] == ["a/x.pgn", "b/x.pgn", "y.pgn"]


def test_what_cannot_be_used_is_refused(tmp_path: Path):
    make_files(tmp_path, "a.pgn")
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (["missing.pgn"], r"missing\.pgn: cannot read: No such file"),
        (["a.pgn", "a.pgn"], r"a\.pgn: given twice"),
        ([".", "a.pgn"], r"a\.pgn: given twice"),
        (["empty"], "empty: no PGN files below this directory"),
    ):
        with pytest.raises(DataError, match=words):
            PGN.find([tmp_path / argument for argument in arguments], ignore)


@pytest.mark.parametrize(
    ("packing", "begin"),
    [("bzip2", bz2.compress), ("gzip", gzip.compress), ("zstd", zstandard.compress)],
)
def test_a_small_file_that_unfolds_to_much_does_so_block_by_block(
    packing: str, begin: Callable[[bytes], bytes], tmp_path: Path
):
    """256 MiB of spaces in a few kilobytes; bzip2 alone made 6 GB at once of 2 KB."""
    path = tmp_path / "games"
    path.write_bytes(begin(b" " * (1 << 28)))
    assert path.stat().st_size < 1 << 20
    (source,) = PGN.find([path], ignore)
    reader = SourceReader(source, lambda num_bytes: None)
    sizes = [len(block) for block in reader.blocks(1 << 22)]
    reader.close()
    assert sum(sizes) == 1 << 28
    assert max(sizes) <= 1 << 22


def test_a_zstd_header_that_asks_for_gigabytes_is_refused(tmp_path: Path):
    path = tmp_path / "games"
    # Magic, a header without a content size, a window of 2 GiB (RFC 8878, 3.1.1.1.2), one empty last block.
    path.write_bytes(bytes.fromhex("28b52ffd") + bytes([0x00, 21 << 3]) + bytes([1, 0, 0]))
    with pytest.raises(DataError, match=r"above 128 MiB"):
        read(path)


def test_a_pipe_given_by_name_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "x.pgn")
    with pytest.raises(DataError, match=r"x\.pgn: .*no file"):
        PGN.find([tmp_path / "x.pgn"], ignore)
    with pytest.raises(DataError, match=r"/dev/zero: .*file"):
        PGN.find([Path("/dev/zero")], ignore)


def test_pipes_and_sockets_below_a_directory_are_passed_over_with_a_line(tmp_path: Path):
    make_files(tmp_path, "a.pgn")
    os.mkfifo(tmp_path / "b.pgn")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "c.pgn"))
    lines: list[str] = []
    assert [source.name for source in PGN.find([tmp_path], lines.append)] == ["a.pgn"]
    assert len(lines) == 2
    assert "b.pgn: this" in lines[0]
    assert "c.pgn: this is" in lines[1]


def test_files_of_other_packings_below_a_directory_are_passed_over_with_a_line(tmp_path: Path):
    make_files(tmp_path, "a.pgn", "b.pgn.xz", "c.ZIP", "notes.txt")
    lines: list[str] = []
    assert [source.name for source in PGN.find([tmp_path], lines.append)] == ["a.pgn"]
    expected = "expected a name ending in .pgn, .pgn.gz, .pgn.bz2, .pgn.zst"
    assert lines == [f"passed over: {tmp_path / name}: {expected}" for name in ("b.pgn.xz", "c.ZIP")]


def test_a_name_that_is_not_utf8_is_told_in_ascii(tmp_path: Path):
    path = tmp_path / os.fsdecode(b"caf\xe9.pgn")
    path.write_bytes(TEXT)
    assert [source.name for source in PGN.find([tmp_path], ignore)] == ["caf\\xe9.pgn"]
    assert [source.name for source in PGN.find([path], ignore)] == ["caf\\xe9.pgn"]
    assert read(path) == TEXT
