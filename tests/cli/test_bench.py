"""`alphazero bench`: every benchmark runs and gives figures."""

import json
import sys

import pytest

from alphazero.cli import bench
from alphazero.cli.main import main

SMALL = {
    "engine": [
        *("--gpus", "1", "--blocks", "1", "--filters", "8", "--batch", "8", "--micro-batch", "4"),
        *("--rounds", "2", "--steps", "1", "--checkpoint-steps", "8"),
    ],
    "launcher": ["--rounds", "1"],
    "loader": ["--seconds", "0.05", "--repeats", "1"],
    "network": ["--blocks", "1", "--filters", "8", "--batch", "4", "--seconds", "0.05"],
    "pgn_import": ["--rounds", "1", "--games", "5"],
}


def test_there_is_a_small_run_of_every_benchmark():
    assert sorted(SMALL) == bench.names()


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_benchmark_prints_one_json_object_of_figures(name, capsys):
    assert main(["bench", name, "--json", *SMALL[name]]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bench"] == name
    assert any(isinstance(value, (int, float)) and value > 0 for value in figures.values())


def test_the_pause_of_a_checkpoint_is_told_from_steps_that_only_run_beside_its_writing():
    bench.load("engine")
    pause_figures = sys.modules["benchmarks.engine"].pause_figures
    # Steps end at 0, 10 (to warm up), 12, 14, 20 (a pause of 4), 23, 25: taken after the step at 14.
    figures = pause_figures([0, 10, 12, 14, 20, 23, 25], [3], [(17, 22)])
    assert figures["step_s"] == 2
    assert figures["checkpoint_write_s"] == 5
    assert figures["checkpoint_pause_in_steps"] == 2
    assert figures["steps_with_checkpoint"] == 2
    assert figures["steps_with_checkpoint_mean_in_steps"] == 4.5 / 2
    assert figures["steps_with_checkpoint_largest_in_steps"] == 3
    assert figures["steps_without_largest_in_steps"] == 1
