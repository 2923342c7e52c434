"""`alphazero bench`: every benchmark runs and gives figures."""

import json

import pytest

from alphazero.cli import bench
from alphazero.cli.main import main
from tests.support.paths import FIXTURES

SMALL = {
    "ceilings": ["--size", "32", "--seconds", "0.01"],
    "training": [
        *("--device", "cpu", "--blocks", "1", "--filters", "8", "--batch-size", "64"),
        *("--seconds", "1", "--checkpoint-interval", "4"),
    ],
    "engine": [
        *("--gpus", "1", "--blocks", "1", "--filters", "8", "--batch", "8", "--micro-batch", "4"),
        *("--rounds", "2", "--steps", "1"),
    ],
    "loader": ["--seconds", "0.05", "--repeats", "1"],
    "network": ["--game", "connect4", "--blocks", "1", "--filters", "8", "--batch", "4", "--seconds", "0.05"],
    "precision": [
        *("--weights", str(FIXTURES / "v0/selfplay/AlphaZeroNet_1x8_distributed.pt")),
        *("--positions", "16", "--batch", "4", "--seconds", "0.03"),
    ],
    "search": ["--slots", "4", "--seconds", "0.1"],
    "tree": ["--nodes", "500", "--turns", "1", "--search-threads", "2", "--device-ms", "0.1"],
    "selfplay": [
        *("--game", "connect4", "--blocks", "1", "--filters", "8", "--se-ratio", "0"),
        *("--batch", "8", "--simulations", "4", "--seconds", "0.1", "--device", "cpu"),
    ],
    "pgn_import": ["--rounds", "1", "--games", "5"],
    "lc0_import": ["--rounds", "1", "--games", "5"],
}


def test_there_is_a_small_run_of_every_benchmark():
    """Those that `all` leaves out have tests of their own in tests/benchmarks."""
    assert sorted([*SMALL, *bench.NOT_IN_ALL]) == bench.names()


def test_help_behind_a_name_is_that_of_the_benchmark(capsys):
    assert main(["bench", "search", "--help"]) == 0
    assert "--slots" in capsys.readouterr().out
    assert main(["bench", "--help"]) == 0
    assert "search" in capsys.readouterr().out


def test_all_leaves_out_what_takes_minutes_or_a_gpu(monkeypatch):
    asked = []

    class Module:
        run = staticmethod(lambda arguments: {})

    monkeypatch.setattr(bench, "load", lambda name: asked.append(name) or Module)
    assert main(["bench", "all", "--json"]) == 0
    assert asked == sorted(SMALL)


def test_a_wheel_has_no_benchmarks_and_says_what_is_needed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "DIRECTORY", tmp_path)
    for name in ("search", "all"):
        assert main(["bench", name]) == 2
        error = capsys.readouterr().err
        assert error.startswith("alphazero: error: bench: ") and error.count("\n") == 1
        assert error.endswith("expected the `alphazero` of a checkout\n")


# These start jobs or processes, and what they measure has tests of its own.
SLOW = ("engine", "training")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in sorted(SMALL)]
)
def test_a_benchmark_prints_one_json_object_of_figures(name, capsys):
    argv = ["bench", name, "--json", *SMALL[name]]
    assert main(argv) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bench"] == name
    assert any(isinstance(value, (int, float)) and value > 0 for value in figures.values())
