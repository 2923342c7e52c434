"""Records of validations: written line by line, read back, and what is damaged passed over."""

import dataclasses

import pytest

from alphazero.run.directory import RunDirectory
from alphazero.run.validation_record import (
    GAMES,
    RECORDS,
    Bins,
    SeenGame,
    SeenGames,
    SeenPly,
    append_record,
    read_games,
    read_records,
    write_games,
)
from tests.support.report.made_up_runs import record_of


def test_records_come_back_the_newest_word_on_each_step(tmp_path) -> None:
    run = RunDirectory(tmp_path)
    for step, positions in ((10, 100), (20, 200), (10, 300)):
        append_record(run, record_of(step, positions))
    assert read_records(run) == [record_of(10, 300), record_of(20, 200)]


def test_what_a_killed_writer_left_is_cut_off(tmp_path) -> None:
    run = RunDirectory(tmp_path)
    append_record(run, record_of(10))
    with (tmp_path / RECORDS).open("a") as file:
        file.write('{"version": 1, "step": 20, "tru')
    append_record(run, record_of(20))
    assert [record.step for record in read_records(run)] == [10, 20]


@pytest.mark.parametrize(
    "change",
    [
        ('"step": 10', '"step": null'),
        ('"count": [', '"count": [5, '),
        ('"share": 0.004', '"share": NaN'),
        ('"by": "policy"', '"by": 3'),
        ('"positions": 100', '"positions": 1e999'),
        ('"count": [', '"count": [1' + 300 * "0"),
    ],
)
def test_a_damaged_record_is_passed_over(tmp_path, change) -> None:
    run = RunDirectory(tmp_path)
    append_record(run, record_of(10))
    path = tmp_path / RECORDS
    damaged = path.read_text().replace(*change, 1)
    assert damaged != path.read_text()
    path.write_text(damaged)
    append_record(run, record_of(20))
    assert [record.step for record in read_records(run)] == [20]


def test_games_are_whole_or_none(tmp_path) -> None:
    run = RunDirectory(tmp_path)
    assert read_games(run) is None
    ply = SeenPly(-0.25, 0.5, (("e2e4", 0.5),))
    game = SeenGame(None, ("e2e4", "e7e5"), "1-0", (ply, None), {"white": "Anna"})
    games = SeenGames(5, "chess", (game,))
    write_games(run, games)
    assert read_games(run) == games
    write_games(run, dataclasses.replace(games, step=6))
    newer = read_games(run)
    assert newer is not None
    assert newer.step == 6
    (tmp_path / GAMES).write_text('{"step": 1, "game": "chess", "games": [{}]}')
    assert read_games(run) is None


def test_the_calibration_error_is_the_mean_distance_by_positions() -> None:
    assert Bins((1, 3, 0), (0.2, 0.6, 0.0), (0.4, 0.5, 0.0)).error == pytest.approx((0.2 + 3 * 0.1) / 4)
    assert Bins((0,), (0.0,), (0.0,)).error == 0
