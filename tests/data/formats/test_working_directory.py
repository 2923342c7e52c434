"""An import touches what imports made, and nothing else of that name."""

from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.working_directory import WorkingDirectory

GAME = '[Event "e"]\n\n1. e4 e5 1-0\n\n'


@pytest.fixture
def games(tmp_path: Path) -> Path:
    path = tmp_path / "games.pgn"
    path.write_text(GAME)
    return path


def run(games: Path, store: Path) -> None:
    import_games([games], store, workers=1)


def test_a_link_of_that_name_is_refused_and_what_it_points_to_stays(games: Path, tmp_path: Path):
    treasure = tmp_path / "treasure"
    (treasure / "store").mkdir(parents=True)
    (treasure / "thesis.tex").write_text("all of it")
    (treasure / "store" / "photo.jpg").write_text("a photo")
    store = tmp_path / "s"
    WorkingDirectory(store).path.symlink_to(treasure)
    with pytest.raises(DataError, match=r"s\.importing: was not"):
        run(games, store)
    assert (treasure / "thesis.tex").read_text() == "all of it"
    assert (treasure / "store" / "photo.jpg").exists()


@pytest.mark.parametrize("name", ["notes.txt", "store/photo.jpg", "store/deep/x", "lock/x"])
def test_a_folder_of_that_name_with_other_things_in_it_is_refused_and_stays(
    games: Path, tmp_path: Path, name: str
):
    store = tmp_path / "s"
    stray = WorkingDirectory(store).path / name
    stray.parent.mkdir(parents=True)
    stray.write_text("mine")
    with pytest.raises(DataError, match=r"s\.importing: was not"):
        run(games, store)
    assert stray.read_text() == "mine"


@pytest.mark.parametrize("inside", ["store", "lock", "store/quarantine.jsonl"])
def test_a_link_within_it_is_not_followed(games: Path, tmp_path: Path, inside: str):
    store, target = tmp_path / "s", tmp_path / "target"
    if inside == "store":
        target.mkdir()
        (target / "shard-00007.arrow").write_text("of another store")
    else:
        target.write_text("mine")
    link = WorkingDirectory(store).path / inside
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(DataError, match=r"s\.importing: was not"):
        run(games, store)
    kept = target / "shard-00007.arrow" if inside == "store" else target
    assert kept.read_text() in ("mine", "of another store")


def test_a_foreign_folder_beside_a_complete_store_stays(games: Path, tmp_path: Path):
    store = tmp_path / "s"
    run(games, store)
    WorkingDirectory(store).path.mkdir()
    (WorkingDirectory(store).path / "notes.txt").write_text("mine")
    run(games, store)  # the store is there already
    assert (WorkingDirectory(store).path / "notes.txt").read_text() == "mine"


def test_a_folder_without_a_marker_is_refused_although_its_names_fit(games: Path, tmp_path: Path):
    store = tmp_path / "s"
    shard = WorkingDirectory(store).path / "store" / "shard-00000.arrow"
    shard.parent.mkdir(parents=True)
    shard.write_text("of another program")
    with pytest.raises(DataError, match=r"s\.importing: was not"):
        run(games, store)
    assert shard.read_text() == "of another program"


def test_an_empty_folder_of_that_name_is_used(games: Path, tmp_path: Path):
    store = tmp_path / "s"
    WorkingDirectory(store).path.mkdir()
    run(games, store)
    assert (store / "manifest.json").exists()
    assert not WorkingDirectory(store).path.exists()
