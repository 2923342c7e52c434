"""What viewers get: curves and texts; and where they are missing."""

import importlib.machinery
import importlib.util
import json
import os
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from alphazero.base.errors import ConfigError
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import load_config
from alphazero.settings.sections import RunConfig
from alphazero.show.tensorboard import points_of
from alphazero.show.viewers import open_writers
from alphazero.show.weights_and_biases import require_wandb


def events_of(run):
    events = EventAccumulator(str(run.path), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def test_figures_are_grouped_and_ids_and_unknown_kinds_are_no_curves():
    figures = {"loss": 2.0, "sample_id_sum": 7.0}
    assert list(points_of("step", 1, figures)) == [("1_train/loss", 1, 2.0)]
    assert list(points_of("epoch", 1, {**figures, "ended_in_step": 30.0})) == [
        ("1_train/epoch_loss", 30, 2.0)
    ]
    assert list(points_of("time_share", 10, {"checkpoint": 0.5})) == [
        ("4_speed/share_of_time/checkpoint", 10, 0.5)
    ]
    assert list(points_of("unknown", 1, {"loss": 1.0})) == []


def test_a_generation_stands_at_the_first_step_that_trains_on_it():
    assert list(points_of("self_play", 20, {"games": 3.0})) == [("3_selfplay/games", 21, 3.0)]


def test_tensorboard_has_curves_and_events(tmp_path):
    run, config = RunDirectory(tmp_path), load_config("connect4", {})
    writers = open_writers(run, config, 0, print)
    writers.write("step", 1, {"loss": 2.0, "moves_left_loss": 0.0, "sample_id_sum": 1.0})
    writers.write("validation", 1, {"move_error": 0.25})
    writers.event("alarm", {"cause": "disk", "text": "the disk fills"})
    writers.close()
    events = events_of(run)
    assert events.Tags()["scalars"] == ["1_train/loss", "2_validation/move_error"]
    (value,) = events.Tensors("alarm/text_summary")[0].tensor_proto.string_val
    assert value.decode() == "**cause**: disk  \n**text**: the disk fills"


def test_events_of_runs_are_side_by_side_in_a_directory_that_is_named(tmp_path):
    run, config = RunDirectory(tmp_path / "mine"), load_config("connect4", {})
    run.path.mkdir()
    config = replace(config, run=replace(config.run, tensorboard_dir=str(tmp_path / "events")))
    writers = open_writers(run, config, 0, print)
    writers.write("step", 1, {"loss": 2.0})
    writers.close()
    assert list((tmp_path / "events" / "mine").glob("events.out.*")) and not list(run.path.glob("events.*"))


def test_a_return_to_a_checkpoint_hides_what_came_after_it(tmp_path):
    run, config = RunDirectory(tmp_path), load_config("chess_cpu", {})
    writers = open_writers(run, config, 0, print)
    for step in (1, 2, 3):
        writers.write("step", step, {"loss": 1.0})
    writers.rewind(1)
    for step in (2, 3):
        writers.write("step", step, {"loss": 2.0})
    writers.close(failed=True)
    points = [(event.step, event.value) for event in events_of(run).Scalars("1_train/loss")]
    assert points == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_of_several_readings_at_one_step_the_first_is_shown_and_a_curve_begins_after_its_zeros(tmp_path):
    run, config = RunDirectory(tmp_path), load_config("chess_cpu", {})
    writers = open_writers(run, config, 4, print)
    for step, load, waits in ((4, 9.0, 0.5), (5, 1.0, 0.0), (5, 2.0, 0.0), (6, 3.0, 0.5), (7, 0.0, 0.0)):
        writers.write("health", step, {"host/load": load})
        writers.write("time_share", step, {"checkpoint": waits})
    writers.close()
    seen = {
        name: [(event.step, event.value) for event in events_of(run).Scalars(name)]
        for name in ("5_system/host/load", "4_speed/share_of_time/checkpoint")
    }
    assert list(seen.values()) == [[(5, 1.0), (6, 3.0), (7, 0.0)], [(6, 0.5), (7, 0.0)]]


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("wandb", None)])
def test_a_missing_package_is_told_and_a_directory_of_its_name_is_none(monkeypatch, spec):
    """wandb leaves a directory `wandb` where it ran: Python takes it for a package without content."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    require_wandb(RunConfig())
    with pytest.raises(ConfigError, match=r"^--wandb: .*pip"):
        require_wandb(replace(RunConfig(), wandb=True))


def test_weights_and_biases_without_tensorboard_is_refused_before_ranks_start(tmp_path):
    argv = ["launch", "--gpus", "2", "--device", "cpu", "--wandb", "--no-tensorboard", "--runs-dir"]
    done = subprocess.run(
        [sys.executable, "-m", "alphazero", *argv, str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if "alphazero: " in line]
    assert "--wandb" in errors[-1] and "--tensorboard" in errors[-1]
    assert not (tmp_path / "runs").exists()


STARTS = """
import sys
from pathlib import Path
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import load_config
from alphazero.show.viewers import open_writers

run, first = RunDirectory(Path(sys.argv[1])), int(sys.argv[2])
writers = open_writers(run, load_config("connect4", {"wandb": True}), first, print)
for step in range(first + 1, first + 4):
    writers.write("step", step, {"loss": 1.0 / step})
writers.close()
"""


def rows_of(content):
    """The rows of an offline run, a LevelDB log in blocks of 32 KiB of crc, length, kind, message."""
    from wandb.proto.wandb_internal_pb2 import Record

    at, message = 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        message, at = message + content[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # its last part
            record, message = Record.FromString(message), b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.mark.slow
def test_weights_and_biases_gets_the_curves_of_all_starts_in_one_run(tmp_path):
    pytest.importorskip("wandb")
    run = tmp_path / "job"
    run.mkdir()
    for first_step in (0, 2):
        done = subprocess.run(
            [sys.executable, "-c", STARTS, str(run), str(first_step)],
            cwd=tmp_path,  # where most users' runs are: W&B handles files below it in another way
            env={**os.environ, "WANDB_MODE": "offline"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert "wandb sync" in done.stdout
    files = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))
    assert {path.stem for path in files} == {f"run-{(run / 'wandb.id').read_text()}"}
    rows = [row for path in files for row in rows_of(path.read_bytes())]
    assert [(row["global_step"], row["1_train/loss"]) for row in rows if "1_train/loss" in row] == [
        (step, pytest.approx(1.0 / step)) for step in (1, 2, 3, 3, 4, 5)
    ]
