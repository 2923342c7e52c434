"""Shards against their manifest: what was changed is named, what was read before is not read again."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.data.store import verification as module
from alphazero.data.store.store import GameStore, damaged
from alphazero.data.store.verification import Verification, default_cache_directory
from tests.support.data.stores import write_random_store


@pytest.fixture
def store(tmp_path: Path) -> GameStore:
    write_random_store(tmp_path / "s", 30)
    return GameStore.open(tmp_path / "s")


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the last change cannot be set back, so that a test would have to wait."""
    monkeypatch.setattr(module, "_SETTLED_S", 0.0)


def flip(path: Path, offset: int) -> None:
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a careless copy leaves it


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every piece that is hashed."""
    sizes: list[int] = []
    real = module.hashlib.sha256

    class Counted:
        def __init__(self) -> None:
            self._real = real()

        def update(self, data: bytes) -> None:
            sizes.append(len(data))
            self._real.update(data)

        def hexdigest(self) -> str:
            return self._real.hexdigest()

    monkeypatch.setattr(module.hashlib, "sha256", Counted)
    return sizes


def test_a_good_store_is_read_once(store: GameStore, tmp_path: Path, reads: list[int]):
    cache = tmp_path / "cache"
    for _ in range(3):
        Verification(store.listed_shards(), cache=cache).wait()
    assert sum(reads) == sum(entry.size_bytes for entry in store.manifest.shards)


def test_a_changed_bit_is_named_although_size_and_mtime_are_as_before(store: GameStore, tmp_path: Path):
    cache = tmp_path / "cache"
    Verification(store.listed_shards(), cache=cache).wait()
    shard = store.shards[-1].path
    flip(shard, shard.stat().st_size // 2)
    expected = store.manifest.shards[-1].sha256[:16]
    words = rf"{shard.name}: .* sha256 [0-9a-f]{{16}}\.\.\., expected {expected}\.\.\."
    for _ in range(2):  # what is wrong stays wrong
        with pytest.raises(DataError, match=words):
            Verification(GameStore.open(store.path).listed_shards(), cache=cache)


def test_a_file_put_in_its_place_is_read(store: GameStore, tmp_path: Path):
    cache = tmp_path / "cache"
    Verification(store.listed_shards(), cache=cache).wait()
    shard = store.shards[0].path
    other = bytearray(shard.read_bytes())
    other[-1] ^= 1
    (tmp_path / "other").write_bytes(other)
    (tmp_path / "other").replace(shard)
    with pytest.raises(DataError, match="its checksum"):
        Verification(store.listed_shards(), cache=cache)


def test_what_takes_longer_goes_on_beside_the_work_and_wait_tells(
    store: GameStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go_on = threading.Event()
    real = Verification._verify

    def slow(self: Verification, *arguments: object) -> None:
        assert go_on.wait(60)
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Verification, "_verify", slow)
    flip(store.shards[0].path, 200)
    verification = Verification(store.listed_shards(), cache=tmp_path / "cache", first_s=0.05)
    assert not verification.is_done
    go_on.set()
    with pytest.raises(DataError, match="its checksum"):
        verification.wait()


def test_closing_ends_the_thread_early(store: GameStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    real = module.hashlib.sha256

    class Slow:
        def __init__(self) -> None:
            self.update = lambda data: time.sleep(0.01)
            self.hexdigest = real().hexdigest

    monkeypatch.setattr(module.hashlib, "sha256", Slow)
    begin = time.monotonic()
    with Verification(store.listed_shards(), cache=tmp_path / "cache", first_s=0.02) as verification:
        assert not verification.is_done
    assert verification.is_done
    assert time.monotonic() - begin < 10


def test_a_shard_cut_off_or_gone_is_named(store: GameStore, tmp_path: Path):
    shard = store.shards[0].path
    os.truncate(shard, 100)
    with pytest.raises(DataError, match=rf"{shard.name}: 100 bytes, [\d,]+ when"):
        Verification(store.listed_shards(), cache=tmp_path / "cache")
    shard.unlink()
    with pytest.raises(DataError, match=rf"{shard.name}: .*No such file"):
        Verification(store.listed_shards(), cache=tmp_path / "cache")


def test_a_damaged_or_unwritable_cache_only_costs_time(store: GameStore, tmp_path: Path, reads: list[int]):
    cache = tmp_path / "cache"
    Verification(store.listed_shards(), cache=cache).wait()
    (file,) = cache.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"\xff\xfe\nnonsense\n[1]\n" + b"[" * 100_000 + b"\n[1, 2, 3, 4")
    Verification(store.listed_shards(), cache=cache).wait()
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the directory should be")
    Verification(store.listed_shards(), cache=blocked).wait()
    assert sum(reads) == 3 * sum(entry.size_bytes for entry in store.manifest.shards)


def test_what_was_written_just_now_is_not_remembered(
    store: GameStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_SETTLED_S", 3600.0)
    Verification(store.listed_shards(), cache=tmp_path / "cache").wait()
    assert not (tmp_path / "cache").exists()


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_directory() == tmp_path / "alphazero"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_directory() == tmp_path / "home" / ".cache" / "alphazero"


def test_the_advice_for_a_damaged_file_fits_where_its_games_come_from(tmp_path):
    shard = tmp_path / "runs" / "x" / "games" / "shard-00003.arrow"
    assert str(damaged(shard, "a" * 64, "b" * 64)).endswith("copy it again, or import its games again")
    (tmp_path / "runs" / "x" / "checkpoints").mkdir(parents=True)
    advice = "copy it again, or play its games again: --resume STEP --no-verify-data with a checkpoint from"
    assert advice in str(damaged(shard, "a" * 64, "b" * 64))
