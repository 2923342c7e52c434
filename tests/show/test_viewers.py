"""What viewers get beside curves: settings with final figures, texts; and where they are missing."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from dataclasses import replace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from alphazero.base.errors import ConfigError
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import load_config
from alphazero.settings.sections import RunConfig
from alphazero.show.viewers import open_writers
from alphazero.show.weights_and_biases import _id_of, require_package
from tests.support.paths import REPOSITORY


def events_of(run):
    events = EventAccumulator(str(run.path), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def test_tensorboard_has_settings_with_final_figures_and_texts(tmp_path):
    run, config = RunDirectory(tmp_path), load_config("connect4", {})
    (tmp_path / "tensorboard").mkdir()
    writers = open_writers(run, config, 0, 2, print)
    writers.write("step", 1, {"loss": 2.0, "moves_left_loss": 0.0, "sample_id_sum": 1.0})
    writers.write("validation", 1, {"move_error": 0.25})
    writers.event("alarm", {"cause": "disk", "text": "the disk fills"})
    writers.note("opening", "# a board")
    writers.close()
    events = events_of(run)
    assert events.Tags()["scalars"] == ["1_train/loss", "2_validation/move_error"]
    texts = {
        tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        for tag in ("alarm/text_summary", "opening/text_summary")
    }
    assert texts["alarm/text_summary"] == "**cause**: disk  \n**text**: the disk fills"
    assert texts["opening/text_summary"] == "# a board"
    start = metadata.parse_session_start_info_plugin_data(
        events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    )
    assert start.hparams["game"].string_value == "connect4"
    assert start.hparams["ranks"].number_value == 2
    experiment = metadata.parse_experiment_plugin_data(
        events.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
    )
    assert "2_validation/move_error" in [info.name.tag for info in experiment.metric_infos]
    assert {info.name for info in experiment.hparam_infos} == set(start.hparams)
    end = metadata.parse_session_end_info_plugin_data(
        events.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
    )
    assert end.status == 1  # STATUS_SUCCESS
    assert not (tmp_path / "tensorboard").exists()


def test_a_return_to_a_checkpoint_hides_what_came_after_it(tmp_path):
    run, config = RunDirectory(tmp_path), load_config("chess_cpu", {})
    writers = open_writers(run, config, 0, 1, print)
    for step in (1, 2, 3):
        writers.write("step", step, {"loss": 1.0})
    writers.rewind(1)
    for step in (2, 3):
        writers.write("step", step, {"loss": 2.0})
    writers.close(failed=True)
    points = [(event.step, event.value) for event in events_of(run).Scalars("1_train/loss")]
    assert points == [(1, 1.0), (2, 2.0), (3, 2.0)]


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("wandb", None)])
def test_a_missing_package_is_told_and_a_directory_of_its_name_is_none(monkeypatch, spec):
    """wandb leaves a directory `wandb` where it ran: Python takes it for a package without content."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    require_package(RunConfig())
    with pytest.raises(ConfigError, match="the package wandb is not installed; expected pip install wandb"):
        require_package(replace(RunConfig(), wandb=True))


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed")
@pytest.mark.parametrize("command", [("train",), ("launch", "--gpus", "2", "--device", "cpu")])
def test_a_missing_package_is_told_before_ranks_start(tmp_path, command):
    done = subprocess.run(
        [sys.executable, "-m", "alphazero", *command, "--wandb", "--runs-dir", str(tmp_path / "runs")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if "alphazero: " in line]
    assert errors[-1].startswith("alphazero: error: --wandb: the package wandb is not installed")
    assert "starting" not in done.stderr and not (tmp_path / "runs").exists()


def test_the_id_of_a_run_is_kept_in_its_directory(tmp_path):
    run = RunDirectory(tmp_path)
    assert _id_of(run) == _id_of(run)
    (tmp_path / "wandb.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"wandb\.json: cannot be read \(TypeError\); expected the id"):
        _id_of(run)
