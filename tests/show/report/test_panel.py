"""Panels: curves thinned without losing extremes, the best marked, and a reason where there is nothing."""

from pathlib import Path

import numpy as np
import pytest

from alphazero.run.figures import RunFigures
from alphazero.run.overview import RunOverview, RunState
from alphazero.show.report.overview import ReadRun
from alphazero.show.report.panel import MOST_POINTS, curve, thin
from alphazero.show.report.panel_list import all_panels, gpu_panels, rating_panel, speed_panels
from tests.support.report.made_up_runs import step_line, supervised_lines, write_run


def read(figures: RunFigures, config: dict | None = None, ratings: dict | None = None) -> ReadRun:
    """A run with these figures and nothing else."""
    return ReadRun(figures, config or {}, (), ratings or {}, RunOverview(Path("one"), RunState.ENDED))


def test_a_thinned_curve_keeps_ends_minima_and_maxima() -> None:
    rng = np.random.default_rng(1)
    step, value = np.arange(1.0, 100_001.0), rng.normal(size=100_000)
    value[12_345], value[77_777] = -40.0, 50.0
    middle, mean, low, high = thin(step, value)
    assert len(middle) == len(mean) == len(low) == len(high) == MOST_POINTS
    assert (middle[0], middle[-1]) == (1, 100_000)
    assert (low.min(), high.max()) == (-40.0, 50.0)
    assert np.all(np.diff(middle) > 0)
    assert np.all((low <= mean) & (mean <= high))
    assert mean.mean() == pytest.approx(value.mean(), abs=1e-3)


def test_a_short_curve_stays_as_it_is() -> None:
    step, value = np.arange(5.0), np.arange(5.0) ** 2
    assert [part.tolist() for part in thin(step, value)] == [step.tolist(), value.tolist(), [], []]


@pytest.mark.parametrize(("best", "step", "value"), [("lowest", 2, 1.0), ("highest", 3, 9.0)])
def test_the_best_value_is_marked_where_it_was(best, step, value) -> None:
    columns = np.array([1.0, 2.0, 3.0]), np.array([4.0, 1.0, 9.0])
    (found,) = curve("loss", 0, 0, RunFigures("run"), columns, best)
    assert (found["best"]["step"], found["best"]["value"]) == (step, value)


def test_every_panel_has_marks_or_says_why_not(tmp_path) -> None:
    panels = all_panels([read(RunFigures.read(write_run(tmp_path / "one", [step_line(1)])))])
    assert all(bool(panel.marks) != bool(panel.to_json()["empty"]) for panel in panels)
    assert {panel.name for panel in panels if panel.marks} == {
        "policy_loss",
        "value_loss",
        "accuracy",
        "value_mse",
        "learning_rate",
    }


def test_errors_against_exact_truth_are_drawn_where_there_are_no_classes_of_positions(tmp_path) -> None:
    figures = {"move_error": 0.3}, {"move_error": 0.3, "move_error_end_easy": 0.1}
    for number, known in enumerate(figures):
        lines = [step_line(1), {"kind": "validation", "step": 1, **known}]
        run = read(RunFigures.read(write_run(tmp_path / str(number), lines)))
        panels = {panel.name: panel for panel in all_panels([run])}
        (mark,) = panels["exact_truth"].marks
        assert mark["value"] == [min(known.values())]


def test_devices_of_all_hosts_have_a_curve_each(tmp_path) -> None:
    runs = [RunFigures.read(write_run(tmp_path / "one", supervised_lines()))]
    panels = {panel.name: panel for panel in gpu_panels(runs)}
    assert [mark["label"] for mark in panels["gpu_utilisation"].marks] == ["node1 gpu0", "node1 gpu1"]
    assert "gpu_power" in panels
    assert "gpu_temperature" not in panels  # of which nothing is known


def test_self_play_is_a_share_of_the_time(tmp_path) -> None:
    lines = [
        {"kind": "self_play", "step": 0, "seconds": 30.0},
        {"kind": "speed", "step": 10, "samples_per_s": 100.0, "minutes": 1.0},
        {"kind": "time_share", "step": 10, "compute": 0.9, "data_wait": 0.1},
        {"kind": "speed", "step": 20, "samples_per_s": 100.0, "minutes": 1.2},
        {"kind": "time_share", "step": 20, "compute": 1.0, "data_wait": 0.0},
        {"kind": "self_play", "step": 20, "seconds": 10.0},
        {"kind": "speed", "step": 30, "samples_per_s": 100.0, "minutes": 1.3},
        {"kind": "time_share", "step": 30, "compute": 1.0, "data_wait": 0.0},
    ]
    run = read(RunFigures.read(write_run(tmp_path / "one", lines)), {"training": {"batch_size": 100}})
    # A step is 100 positions, a second: 30 s of games and 20 s of training; then 10 s and 10 s.
    *_, shares = speed_panels([run])
    assert shares.kind == "shares"
    found = {mark["label"]: mark["value"] for mark in shares.marks}
    assert found["self-play"] == pytest.approx([0.6, 0.5])
    assert found["compute"] == pytest.approx([19 / 50, 0.5])
    assert found["data"] == pytest.approx([1 / 50, 0.0])


def test_games_of_actors_have_panels_of_their_age_and_of_the_wait_for_them(tmp_path) -> None:
    played = {"kind": "self_play", "step": 0, "plies": 9.0}
    brought = {**played, "age_mean": 3.0, "age_oldest": 8.0, "waited_s": 1.5}
    here, elsewhere = (
        {panel.name: panel.marks for panel in all_panels([read(RunFigures.read(write_run(path, [line])))])}
        for path, line in ((tmp_path / "here", played), (tmp_path / "elsewhere", brought))
    )
    assert not {"age", "waited"} & here.keys()
    assert [mark["value"] for mark in elsewhere["age"]] == [[3.0], [8.0]]
    assert [mark["value"] for mark in elsewhere["waited"]] == [[1.5]]


def test_ratings_have_their_intervals() -> None:
    panel = rating_panel([read(RunFigures("run"), ratings={10: (900.0, 850.0, 940.0)})])
    (mark,) = panel.to_json()["marks"]
    assert (mark["step"], mark["value"], mark["low"], mark["high"]) == ([10], [900.0], [850.0], [940.0])
