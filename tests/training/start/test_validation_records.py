"""What validations of real runs record: the same for one rank and for two."""

import json
import math

import pytest

from alphazero.data.open import open_store
from alphazero.run.directory import RunDirectory
from alphazero.run.next_command import continuing
from alphazero.run.validation_record import Bins, read_games, read_records
from tests.support.data.stores import write_random_store

ARGUMENTS = ("--steps", "4", "--validation-interval", "2", "--validation-positions", "1500")


@pytest.mark.slow
def test_one_rank_and_two_record_the_same_validation(zygote, tmp_path):
    store = tmp_path / "store"
    write_random_store(store, num_games=64)
    found = []
    for ranks in (1, 2):
        directory = tmp_path / str(ranks)
        zygote.run_job(directory, store, ranks, *ARGUMENTS, "--validation-share", "0.3")
        found.append(RunDirectory(directory / "runs" / "job"))
    for run in found:
        (started,) = (json.loads(path.read_text()) for path in run.path.glob("started-*.json"))
        line = continuing(started["command"], "job", "--steps", "8")
        assert f"continue with: {line}" in (run.path / "log.txt").read_text()
    one, two = (read_records(run) for run in found)
    game_of = {board.fen: number for number, game in enumerate(open_store(store)) for board in game.boards()}
    assert [record.step for record in one] == [record.step for record in two] == [2, 4]
    figures = [json.loads(line) for line in found[0].metrics.read_text().splitlines()]
    validations = [line for line in figures if line["kind"] == "validation"]
    for alone, together, told in zip(one, two, validations, strict=True):
        assert sum(alone.score.count) == alone.positions == told["num_positions"]
        assert sum(phase.positions for phase in alone.phases) == alone.positions
        right = sum(phase.right_moves * phase.positions for phase in alone.phases)
        assert math.isclose(right / alone.positions, told["policy_top1"], abs_tol=1e-4)
        # Networks are equal to rounding, so a position may stand in the next bin.
        assert sum(abs(a - b) for a, b in zip(alone.score.count, together.score.count, strict=True)) <= 4
        assert math.isclose(mean_of(alone.score), mean_of(together.score), abs_tol=1e-4)
        assert [(wrong.by, wrong.position, wrong.move) for wrong in alone.wrong[:3]] == [
            (wrong.by, wrong.position, wrong.move) for wrong in together.wrong[:3]
        ]
        assert [wrong.by for wrong in alone.wrong] == ["policy"] * 6 + ["value"] * 6
        for by in ("policy", "value"):
            shown = [game_of[wrong.position] for wrong in alone.wrong if wrong.by == by]
            assert len(set(shown)) == len(shown) == 6
    games = [read_games(run) for run in found]
    assert games[0] is not None
    assert games[1] is not None
    assert games[0].step == 4
    for alone, together in zip(games[0].games, games[1].games, strict=True):
        assert alone.moves == together.moves
        assert len(alone.plies) == len(alone.moves)
        assert all(ply is not None and len(ply.policy) <= 5 for ply in alone.plies)


def mean_of(bins: Bins) -> float:
    rows = zip(bins.count, bins.predicted, strict=True)
    return sum(count * mean for count, mean in rows) / sum(bins.count)
