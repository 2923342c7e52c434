"""Figures of a run, read from metrics.jsonl: the newest word on each step, over the wall time of the run."""

import json
import math

import pytest

from alphazero.base.errors import DataError
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import AlarmLine, RunFigures
from tests.support.report.made_up_runs import step_line, write_run

LINES = [
    {"kind": "speed", "step": 10, "samples_per_s": 100.0, "minutes": 1.0},
    {"kind": "speed", "step": 30, "samples_per_s": 100.0, "minutes": 5.0},
    {"kind": "step", "step": 10, "policy_loss": 2.0, "value_loss": 1.0},
    {"kind": "step", "step": 20, "policy_loss": 1.5, "value_loss": 0.9},
]


def test_steps_stand_at_their_minutes(tmp_path) -> None:
    figures = RunFigures.read(write_run(tmp_path / "one", LINES))
    assert figures.minutes(figures.of("step").step).tolist() == [1.0, 3.0]


def test_a_resumed_run_has_the_newest_word_on_each_step(tmp_path) -> None:
    lines = [step_line(step, loss=float(step)) for step in (1, 2, 3, 4)]
    again = [step_line(step, loss=step + 0.5) for step in (3, 4, 5)]
    steps, loss = RunFigures.read(write_run(tmp_path / "one", lines + again)).of("step").known("loss")
    assert steps.tolist() == [1, 2, 3, 4, 5]
    assert loss.tolist() == [1.0, 2.0, 3.5, 4.5, 5.5]


def test_damaged_lines_are_passed_over_and_counted(tmp_path) -> None:
    run = write_run(tmp_path / "one", [step_line(1), step_line(2, loss=math.nan), step_line(4)])
    with run.metrics.open("a") as file:
        file.write('{"kind": "step", "step": 5, "loss": nonsense}\n')
        file.write('{"kind": "step", "step": 6, "loss": [1]}\n')
        file.write("[]\n\n")
        file.write(json.dumps(step_line(7)) + "\n")
        file.write('{"kind": "step", "step": 8, "lo')  # a killed writer's
    figures = RunFigures.read(run)
    assert figures.of("step").step.tolist() == [1, 2, 4, 7]
    assert figures.of("step").known("loss")[0].tolist() == [1, 4, 7]
    assert figures.num_damaged == 3
    assert figures.skipped_steps.tolist() == [3, 5, 6]


@pytest.mark.parametrize("step", ["5000000000", "-1", "1e300", "2.5", "1e999"])
def test_a_step_that_no_run_can_have_is_damage_and_costs_no_memory(tmp_path, step) -> None:
    run = write_run(tmp_path / "one", [step_line(1), step_line(3)])
    with run.metrics.open("a") as file:
        file.write(f'{{"kind": "step", "step": {step}, "loss": 1.0}}\n')
        file.write(f'{{"kind": "speed", "step": {step}, "samples_per_s": 1.0}}\n')
    figures = RunFigures.read(run)
    assert (figures.last_step, figures.num_damaged) == (3, 2)
    assert figures.skipped_steps.tolist() == [2]


def test_the_widest_gap_that_steps_allow_is_not_a_list_of_steps(tmp_path) -> None:
    figures = RunFigures.read(write_run(tmp_path / "one", [step_line(1), step_line(10**9)]))
    assert figures.num_damaged == 0
    assert not len(figures.skipped_steps)


def test_alarms_are_texts(tmp_path) -> None:
    alarm = {
        "kind": "alarm",
        "step": 3,
        "time_s": 4.0,
        "cause": "disk",
        "text": "full soon",
        "advice": "tidy",
    }
    figures = RunFigures.read(write_run(tmp_path / "one", [step_line(1), alarm]))
    assert figures.alarms == (AlarmLine(3, "disk", "full soon", "tidy"),)
    assert figures.num_damaged == 0


def test_a_directory_without_figures_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match=r"metrics\.jsonl: no such"):
        RunFigures.read(RunDirectory(tmp_path))
