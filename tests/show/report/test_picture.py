"""A report as one picture: what the page has, over steps."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from alphazero.base.errors import DataError
from alphazero.cli.main import main
from alphazero.run.validation_record import append_record
from alphazero.show.report.picture import draw
from alphazero.show.report.report import RunReport, build
from tests.support.report.made_up_runs import record_of, supervised_lines, supervised_run, write_run

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
ERRORS = "Moves that err against exact truth"


def report_of(*paths) -> RunReport:
    return build(paths)


def curves_in(axis):
    """Those with a name: not the stars of best values, nor the upright lines of events."""
    return [line for line in axis.lines if not line.get_label().startswith("_")]


def test_a_panel_is_drawn_for_each_kind_of_figure_there_is(tmp_path) -> None:
    write_run(tmp_path / "one", LINES, "connect4")
    axes = {axis.get_title(): axis for axis in draw(report_of(tmp_path / "one")).axes}
    assert list(axes) == ["Policy loss", "Value loss", ERRORS, "Training throughput"]
    assert [line.get_ydata().tolist() for line in curves_in(axes["Policy loss"])] == [[2.0, 1.5]]
    assert axes["Policy loss"].get_xlabel() == "step"
    errors = curves_in(axes[ERRORS])
    assert [line.get_label() for line in errors] == [
        "end-easy 25.0%, best 25.0% at step 20",
        "begin-hard 50.0%, best 50.0% at step 20",
    ]
    assert errors[0].get_xdata().tolist() == [20.0]
    assert all(line.get_marker() == "." for line in errors)  # a single point is seen


def test_several_runs_stand_side_by_side_under_their_names(tmp_path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, LINES, "connect4")
    axes = {axis.get_title(): axis for axis in draw(report_of(tmp_path / "one", tmp_path / "two")).axes}
    assert [line.get_label() for line in curves_in(axes["Policy loss"])] == [
        "one: training 1.500",
        "two: training 1.500",
    ]
    # Errors by class would be six lines a run: of several runs the whole is drawn, each in its colour.
    errors = curves_in(axes[ERRORS])
    assert [line.get_label() for line in errors] == [
        f"{name}: all classes 37.5%, best 37.5% at step 20" for name in ("one", "two")
    ]
    assert [line.get_ydata().tolist() for line in errors] == [[0.375], [0.375]]
    assert len({line.get_color() for line in errors}) == 2


def test_bars_of_several_runs_stand_around_their_category(tmp_path) -> None:
    for name in ("one", "two", "three"):
        supervised_run(tmp_path / name)
    figure = draw(report_of(*(tmp_path / name for name in ("one", "two", "three"))))
    axis = next(axis for axis in figure.axes if axis.get_title().endswith("by phase of the game"))
    middles = sorted(bar.get_x() + bar.get_width() / 2 for bar in axis.patches)
    num_categories = len(axis.get_xticklabels())
    assert len(middles) == 3 * num_categories
    assert np.reshape(middles, (num_categories, 3)).mean(1) == pytest.approx(axis.get_xticks())


def test_a_run_without_figures_is_refused(tmp_path) -> None:
    write_run(tmp_path / "empty", [])
    with pytest.raises(DataError, match="no figures"):
        report_of(tmp_path / "empty")


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_command_writes_the_picture(tmp_path, capsys, suffix, magic) -> None:
    write_run(tmp_path / "one", LINES)
    out = tmp_path / f"plot.{suffix}"
    assert main(["report", str(tmp_path / "one"), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(magic)
    assert capsys.readouterr().out.strip() == str(out)


BAD = "$\\bad{$\udcff"  # a formula that no reader takes, and a letter that is no UTF-8


@pytest.mark.parametrize("out", ["x.svg", "x.html", "x.json"])
def test_names_from_outside_are_shown_as_they_are(tmp_path, out, recwarn) -> None:
    run = write_run(tmp_path / os.fsdecode(b"$\\bad{$\xff"), supervised_lines())
    with run.metrics.open("a") as file:
        for line in ({"kind": "validation", "move_error": 0.1}, {"kind": "gpu"}):
            file.write(json.dumps({**line, "step": 40, f"{BAD}/gpu0/utilisation_percent": 0.5}) + "\n")
    record = record_of(40)
    append_record(run, replace(record, phases=tuple(replace(one, name=BAD) for one in record.phases)))
    assert main(["report", str(run.path), "--out", str(tmp_path / out)]) == 0
    assert not recwarn.list
    if out == "x.svg":
        assert b"<!-- $\\bad{$" in (tmp_path / out).read_bytes()


def test_png_is_the_default_of_the_flag_and_draws_every_kind_of_panel(tmp_path, capsys) -> None:
    supervised_run(tmp_path / "a $name$ of _signs")
    assert main(["report", str(tmp_path / "a $name$ of _signs"), "--png"]) == 0
    assert (tmp_path / "a $name$ of _signs" / "report.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_has_the_figures_of_the_page_in_its_units(tmp_path) -> None:
    run = supervised_run(tmp_path / "one")
    report = report_of(run.path)
    figure = draw(report)
    drawn = {axis.get_title(): axis for axis in figure.axes}
    assert set(drawn) == {panel.title for panel in report.panels if panel.marks}
    for panel in report.panels:
        if not panel.marks or panel.kind != "curves":
            continue
        axis = drawn[panel.title]
        assert (axis.get_ylabel(), axis.get_xlabel()) == (panel.unit, "step")
        curves = [line for line in axis.lines if len(line.get_xdata()) == len(panel.marks[0]["step"])]
        expected = panel.marks[0]["mean"] or panel.marks[0]["value"]
        assert curves[0].get_xdata().tolist() == panel.marks[0]["step"]
        assert curves[0].get_ydata().tolist() == expected
        assert axis.get_legend_handles_labels()[1][0].startswith(
            f"{panel.marks[0]['label']} {panel.marks[0]['last']}"
        )
    result = report.body["runs"][0]["result"]
    assert result["sentence"] in " ".join(figure.get_suptitle().split())
    # The restart at step 20.
    assert any(
        line.get_linestyle() == "--" and list(line.get_xdata()) == [20, 20]
        for line in drawn["Policy loss"].lines
    )
