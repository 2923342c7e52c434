"""Imports that store some of the games they read: which, how they are counted, going on after a break."""

import json
from pathlib import Path

import chess.pgn
import pytest

from alphazero.base.errors import DataError
from alphazero.cli.main import main
from alphazero.data.formats.importer import ImportReport, import_games
from alphazero.data.store.store import GameStore
from alphazero.settings.data import GameFilters
from tests.support.data.lichess_games import lichess_games, write_pgn
from tests.support.data.pgn_sources import ILLEGAL, LIMITS, content

FILTERS = GameFilters(min_elo=1500, max_elo=1599, events=("blitz", "rapid", "classical"))
TEXTS = ("min_elo 1500", "max_elo 1599", "events blitz, rapid, classical")


@pytest.fixture(scope="module")
def games() -> list[chess.pgn.Game]:
    return lichess_games(400, "filtered import")


@pytest.fixture(scope="module")
def month(games: list[chess.pgn.Game], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files; one game of the second is illegal."""
    folder = tmp_path_factory.mktemp("month")
    write_pgn(folder / "a.pgn", games[:150])
    write_pgn(folder / "b.pgn", games[150:])
    with (folder / "b.pgn").open("a") as file:
        file.write("\n" + ILLEGAL)
    return folder


def run(
    sources: Path,
    store: Path,
    filters: GameFilters = FILTERS,
    *,
    workers: int = 1,
    chunk_bytes: int = 4 << 20,
) -> ImportReport:
    return import_games(
        [sources],
        store,
        workers=workers,
        filters=filters,
        chunk_bytes=chunk_bytes,
        shard_limits=LIMITS,
    )


def elos(game: chess.pgn.Game) -> list[int]:
    return [int(game.headers[name].replace("?", "0")) for name in ("WhiteElo", "BlackElo")]


def expected(games: list[chess.pgn.Game]) -> tuple[list[chess.pgn.Game], list[int]]:
    """The games that pass, and what each filter removes of what is left to it."""
    removed = []
    for passes in (
        lambda game: min(elos(game)) >= 1500,
        lambda game: max(elos(game)) <= 1599,
        lambda game: "Bullet" not in game.headers["Event"],
    ):
        left = [game for game in games if passes(game)]
        removed.append(len(games) - len(left))
        games = left
    return games, removed


def test_what_is_stored_and_counted_is_what_python_chess_says(
    games: list[chess.pgn.Game], month: Path, tmp_path: Path
):
    report = run(month, tmp_path / "store")
    passing, removed = expected(games)
    assert len(passing) > 20 and all(removed)
    manifest = report.manifest
    assert manifest.filters == TEXTS and manifest.filtered == dict(zip(TEXTS, removed, strict=True))
    assert manifest.games == len(passing)
    assert manifest.plies == sum(len(list(game.mainline_moves())) for game in passing)
    assert report.games_read == 401 == manifest.games + sum(removed) + manifest.quarantine.games
    for source, part in zip(manifest.sources, (games[:150], games[150:]), strict=True):
        assert list(source.filtered.values()) == expected(part)[1]
    store = GameStore.open(tmp_path / "store")
    store.verify()
    stored = [
        pair
        for shard in store.shards
        for pair in zip(
            shard.table.column("white_elo").to_pylist(),
            shard.table.column("black_elo").to_pylist(),
            strict=True,
        )
    ]
    assert stored == [tuple(elos(game)) for game in passing]


def test_the_store_is_the_same_for_any_number_of_workers_and_any_chunks(month: Path, tmp_path: Path):
    run(month, tmp_path / "one")
    for number, (workers, chunk_bytes) in enumerate(((3, 4 << 20), (1, 900), (2, 20_000))):
        run(month, tmp_path / str(number), workers=workers, chunk_bytes=chunk_bytes)
        assert content(tmp_path / str(number)) == content(tmp_path / "one")


def test_other_filters_are_another_store(month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(month, tmp_path / "store")
    assert run(month, tmp_path / "store").was_there
    with pytest.raises(DataError, match=r"1500, .*no filters"):
        run(month, tmp_path / "store", GameFilters())
    run(month, tmp_path / "all", GameFilters())
    manifest = json.loads((tmp_path / "all" / "manifest.json").read_text())
    assert "filters" not in manifest and "filtered" not in manifest["sources"][0]
    with pytest.raises(DataError, match=r"no filters; .*1500"):
        run(month, tmp_path / "all")


def test_an_import_of_nothing_tells_what_each_filter_removed(month: Path, tmp_path: Path):
    with pytest.raises(DataError) as error:
        run(month, tmp_path / "store", GameFilters(min_elo=1700, events=("blitz",)))
    said = str(error.value)
    assert "min_elo 1700: removed 400; " in said
    assert not (tmp_path / "store").exists()


def test_the_command_tells_what_was_removed(
    games: list[chess.pgn.Game], month: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = tmp_path / "store"
    flags = ["--min-elo", "1500", "--max-elo", "1599", "--events", "blitz", "rapid", "classical"]
    assert main(["data", "import", str(month), "--store", str(store), "--workers", "1", *flags]) == 0
    said = capsys.readouterr().out
    passing, removed = expected(games)
    assert f"imported {len(passing)} + quarantined 1 + " in said
    for text, count in zip(TEXTS, removed, strict=True):
        assert f"  {text}: removed {count} games" in said
    assert main(["data", "info", str(store), "--skip-plies", "10", "--max-positions-per-game", "2"]) == 0
    said = capsys.readouterr().out
    assert f"{removed[0]} games by" in said
    lengths = [len(list(game.mainline_moves())) for game in passing]
    skipped = sum(min(10, length) for length in lengths)
    left = [min(2, length - 10) for length in lengths if length > 10]
    assert f"skip_plies 10: removed {skipped:,} of {sum(lengths):,} " in said
    assert f"left          {len(left)} games, {sum(left):,} positions" in said
    assert main(["data", "info", str(store), "--json", "--merge-duplicates"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["filters"]["games"] == len(passing)
    assert body["filters"]["removed"][0]["text"] == "merge_duplicates"
    assert main(["data", "info", str(store), "--min-elo", "1600"]) == 2
    assert "min_elo 1600: removed" in capsys.readouterr().err
    assert main(["data", "import", str(month), "--store", str(store), "--time-classes", "slow"]) == 2
    assert "--time-classes: 'slow'" in capsys.readouterr().err
