"""Plots of runs: every figure is drawn over the wall time of the run."""

import json

import pytest

from alphazero.cli.main import main
from alphazero.errors import DataError
from alphazero.report.curves import RunFigures, draw
from alphazero.run.run_directory import RunDirectory


@pytest.fixture
def run_of(tmp_path):
    def make(name: str, lines: list[dict]) -> RunDirectory:
        run = RunDirectory(tmp_path / name)
        run.path.mkdir()
        run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run

    return make


LINES = [
    {"kind": "speed", "step": 10, "samples_per_s": 100.0, "minutes": 1.0},
    {"kind": "speed", "step": 30, "samples_per_s": 100.0, "minutes": 5.0},
    {"kind": "step", "step": 10, "policy_loss": 2.0, "value_loss": 1.0},
    {"kind": "step", "step": 20, "policy_loss": 1.5, "value_loss": 0.9},
    {
        "kind": "validation",
        "step": 20,
        "move_error": 0.375,
        "move_error_end_easy": 0.25,
        "move_error_begin_hard": 0.5,
    },
]


def test_steps_stand_at_their_minutes(run_of) -> None:
    figures = RunFigures.read(run_of("one", LINES))
    assert figures.minutes(figures.steps).tolist() == [1.0, 3.0]


def test_a_panel_is_drawn_for_each_kind_of_figure_there_is(run_of) -> None:
    figure = draw([RunFigures.read(run_of("one", LINES))])
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "training loss",
        "moves that err against exact truth (network alone)",
        "training speed",
    ]
    loss, errors, _ = figure.axes
    assert [line.get_ydata().tolist() for line in loss.lines] == [[2.0, 1.5], [1.0, 0.9]]
    assert [line.get_label() for line in errors.lines] == ["end-easy", "begin-hard"]
    assert errors.lines[0].get_xdata().tolist() == [3.0]


def test_several_runs_stand_side_by_side_under_their_names(run_of) -> None:
    runs = [RunFigures.read(run_of(name, LINES)) for name in ("one", "two")]
    loss, errors, _ = draw(runs).axes
    labels = [line.get_label() for line in loss.lines]
    assert labels == ["policy, one", "value, one", "policy, two", "value, two"]
    # Errors by class would be six lines a run: of several runs the whole is drawn, each in its colour.
    assert [line.get_label() for line in errors.lines] == ["one", "two"]
    assert [line.get_ydata().tolist() for line in errors.lines] == [[0.375], [0.375]]
    assert len({line.get_color() for line in errors.lines}) == 2


def test_a_run_without_figures_is_refused(run_of) -> None:
    with pytest.raises(DataError, match="no figures to draw yet"):
        draw([RunFigures.read(run_of("empty", []))])


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_command_writes_the_plot(run_of, tmp_path, capsys, suffix, magic) -> None:
    run, out = run_of("one", LINES), tmp_path / f"plot.{suffix}"
    assert main(["report", str(run.path), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(magic)
    assert capsys.readouterr().out.strip() == str(out)
