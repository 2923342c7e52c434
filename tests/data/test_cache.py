"""A shared cache of imported files: only a store of these very files, made by somebody trusted, is taken."""

import os
import shutil
from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.data.open import open_or_import
from alphazero.data.store import verification
from tests.support.data.pgn_sources import game

STRANGER = 65534  # nobody


@pytest.fixture
def pgn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    (tmp_path / "games.pgn").write_text("".join(map(game, range(5))))
    return tmp_path / "games.pgn"


def place_of(pgn: Path, cache: Path) -> Path:
    """Where the store of a file is looked for."""
    (store,) = open_or_import([pgn], cache)
    return store.path


def test_a_store_of_other_games_is_not_taken(pgn: Path, tmp_path: Path):
    place = place_of(pgn, tmp_path / "cache")
    other = tmp_path / "other" / "games.pgn"
    other.parent.mkdir()
    other.write_text("".join(map(game, range(5, 16))))
    shutil.rmtree(place)
    shutil.copytree(place_of(other, tmp_path / "elsewhere"), place)
    for compare_content in (True, False):
        with pytest.raises(DataError, match=r"other .*games.pgn"):
            open_or_import([pgn], tmp_path / "cache", compare_content=compare_content)


def test_content_counts_where_name_size_and_time_are_alike(pgn: Path, tmp_path: Path):
    open_or_import([pgn], tmp_path / "cache")
    status = pgn.stat()
    pgn.write_text(pgn.read_text().replace("game 3", "game 8"))
    os.utime(pgn, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match=r"sha256 \w{12}"):
        open_or_import([pgn], tmp_path / "cache")


def test_games_that_were_imported_here_are_not_read_again(
    pgn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verification, "_SETTLED_S", 0.0)
    open_or_import([pgn], tmp_path / "cache")
    monkeypatch.setattr(verification.hashlib, "sha256", None)  # whoever hashes stumbles
    known = verification.KnownDigests()
    assert len(known.of(pgn)) == 64


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", ["", "manifest.json", "shard-00000.arrow"])
def test_a_store_of_another_owner_is_refused(pgn: Path, tmp_path: Path, name: str):
    place = place_of(pgn, tmp_path / "cache")
    os.chown(place / name, STRANGER, -1)
    with pytest.raises(DataError, match=r"user 65534: .*user \(0\)"):
        open_or_import([pgn], tmp_path / "cache")
    os.chown(pgn, STRANGER, -1)  # the owner of the games could change them as well
    assert open_or_import([pgn], tmp_path / "cache")[0].num_games == 5
    os.chown(pgn, STRANGER - 1, -1)
    with pytest.raises(DataError, match="owned by user 65534"):
        open_or_import([pgn], tmp_path / "cache")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_of_another_owner_is_refused(pgn: Path, tmp_path: Path):
    place = place_of(pgn, tmp_path / "cache")
    place.rename(tmp_path / "real")
    place.symlink_to(tmp_path / "real")
    assert open_or_import([pgn], tmp_path / "cache")[0].num_games == 5
    os.chown(place, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(DataError, match="owned by user 65534"):
        open_or_import([pgn], tmp_path / "cache")
