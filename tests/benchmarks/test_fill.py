"""The simulation of how full self-play's batches are."""

import numpy as np
import pytest

from alphazero.games.lines import leaves_of, random_lines
from alphazero.play.selfplay import Played, new_lane
from benchmarks import fill
from benchmarks.fill import Ages, MadeUpNetwork, times


def test_padding_and_what_smaller_batches_save_are_computed_from_the_sizes():
    """Sizes of evaluations: 4, 16 and 64. A full batch takes 10 ms, of which 2 do not depend on its size."""
    found = times({64: 3, 10: 1}, 64, evaluations=202, batch_ms=10.0, launch_ms=2.0)
    assert found["batch_fill"] == 202 / 256
    assert found["evaluations_per_s"] == 1000 * 202 / 40
    assert found["gain_of_smaller_batches"] == pytest.approx(40 / (3 * 10 + 2 + 8 / 4) - 1)


@pytest.mark.parametrize("game", ["chess", "connect4"])
def test_an_evaluation_is_a_function_of_the_position_alone(game: str):
    network = MadeUpNetwork(game, 64, 2)
    lines = random_lines(game)[:8]
    packed, index, offset = leaves_of(lines)
    together = network.submit(packed, index, offset)
    for row, line in enumerate(lines):
        alone = network.submit(*leaves_of([line]))
        assert np.array_equal(alone.legal_logits, together.legal_logits[offset[row] : offset[row + 1]])
        assert np.array_equal(alone.wdl[0], together.wdl[row])
    np.testing.assert_allclose(together.wdl.sum(axis=1), 1, rtol=1e-6)
    assert together.wdl.min() >= 0
    assert len({*map(bytes, together.wdl)}) > 1
    assert network.sizes == {8: 1, 1: 8}


def test_the_age_of_a_game_counts_the_generations_since_it_began():
    def played(finished: list[int], under_way: list[int]) -> Played:
        lanes = []
        for number in (*finished, *under_way):
            lanes.append(new_lane(0))
            lanes[-1].number = number
        return Played(True, lanes[: len(finished)], lanes[len(finished) :], 0, 0, 0, 0, 0)

    ages = Ages()
    assert ages.see(played([0], [1]), 0) == [0]
    assert ages.see(played([], [1]), 1) == []
    assert ages.see(played([1, 2], [3]), 3) == [3, 0]


SMALL = """
[network]
game = "connect4"
[training]
batch_size = 64
[search]
simulations = 16
[self_play]
mode = "selfplay"
steps_per_generation = 20
reuse = 2
evaluation_batch = 16
opening_plies = 8
"""


@pytest.fixture
def small(tmp_path) -> str:
    """A preset with generations of 640 positions."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def test_longer_rounds_are_fuller_and_more_lanes_make_older_games(small: str):
    def row(*flags: str) -> dict:
        quick = ("--config", small, "--ranks", "1", "--generations", "2", "--warm-up", "1")
        return fill.run([*quick, "--batches-ahead", "1", *flags])["rows"][0]

    short, long = (
        row("--lanes", "32", "--simulations-per-round", simulations) for simulations in ("16", "320")
    )
    assert short["batch_fill"] < long["batch_fill"] < 1
    assert (short["round"], short["lanes"]) == ("16 simulations", 32)
    by_moves = row("--lanes", "256", "--moves", "2")
    assert (by_moves["round"], by_moves["lanes"]) == ("2 moves", 256)
    assert by_moves["mean_age"] > long["mean_age"]


def test_the_table_has_a_line_for_each_number_of_ranks(small: str):
    quick = ("--config", small, "--generations", "1", "--warm-up", "0", "--divide", "4")
    found = fill.run([*quick, "--ranks", "1", "2"])
    lines = fill.text(found).splitlines()
    assert lines[0].endswith("small.toml, searches and budgets divided by 4; a batch takes 2.3 ms")
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| 1", "| 2"]
