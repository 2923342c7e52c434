"""`alphazero runs`: what a directory of runs tells without a lock and without a word of its own."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from alphazero.base.errors import ConfigError
from alphazero.cli.command_table import run_command
from alphazero.machine.lock import LOCK_FILE, only_writer
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState, save
from alphazero.run.checkpoint_files import STATE
from alphazero.run.directory import RunDirectory, create
from alphazero.run.overview import RunState, list_runs, network_text, overview_of
from alphazero.run.rank import HeartbeatWriter, Phase
from alphazero.settings.load import Config, to_table
from alphazero.settings.sections import NetworkConfig

SHAPE = NetworkConfig(game="connect4", blocks=1, filters=8)
TENSORS = {"x": torch.zeros(3)}


def make_run(directory: Path, steps: tuple[int, ...], phase: Phase | None, num_steps: int = 20) -> Path:
    """A run that saved these steps, its rank last heard of in `phase`."""
    run = RunDirectory(directory)
    create(run, to_table(Config(network=SHAPE)), [])
    for step in steps:
        state = TrainingState(
            step, num_steps, 0, 8, 8, "", 1, to_table(Config(network=SHAPE)), figures={"move_error": 1 / step}
        )
        save(run.checkpoints, Checkpoint(state, TENSORS, TENSORS))
    if phase:
        HeartbeatWriter(run.heartbeats, 0, "host", job="").beat(
            phase, max(steps, default=0) + (phase is not Phase.END)
        )
    return directory


def files_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.mark.parametrize(
    ("steps", "phase", "state"),
    [
        ((10, 20), Phase.END, RunState.ENDED),
        ((10, 20), None, RunState.ENDED),
        ((10,), Phase.END, RunState.STOPPED),
        ((10,), None, RunState.STOPPED),
        ((10,), Phase.STEP, RunState.CRASHED),
        ((10, 20), Phase.STEP, RunState.CRASHED),  # it was to go on beyond its first end
        ((), Phase.START, RunState.CRASHED),
        ((), None, RunState.CRASHED),
    ],
)
def test_states(tmp_path, steps, phase, state):
    assert overview_of(make_run(tmp_path / "x", steps, phase)).state is state


def test_a_run_is_running_while_its_process_holds_the_lock(tmp_path):
    run = make_run(tmp_path / "x", (10,), Phase.STEP)
    with only_writer(run, "training", print):
        found = overview_of(run)
        left = (run / LOCK_FILE).read_bytes()
    assert found.state is RunState.RUNNING
    assert found.holder is not None
    assert found.holder.pid == os.getpid()
    assert (found.step, found.num_steps) == (11, 20)
    (run / LOCK_FILE).write_bytes(left)  # as a killed process leaves it
    assert overview_of(run).state is RunState.CRASHED


def test_nothing_is_written_or_changed(tmp_path):
    run = make_run(tmp_path / "x", (10, 20), Phase.END)
    with only_writer(run, "training", print):
        before = files_of(tmp_path)
        list_runs(tmp_path)
        assert files_of(tmp_path) == before


def cut_settings(run: Path) -> None:
    (run / "config.json").write_text('{"network": ')


def other_settings(run: Path) -> None:
    (run / "config.json").write_text('{"network": 3}')


def no_state(run: Path) -> None:
    for path in run.glob(f"checkpoints/*/{STATE}"):
        path.write_text("[]")


def binary_heartbeats(run: Path) -> None:
    (run / "heartbeat" / "rank-00000.json").write_bytes(b"\xff\x00")
    (run / LOCK_FILE).write_bytes(b"\xff" * 10_000)


def settings_are_a_directory(run: Path) -> None:
    (run / "config.json").unlink()
    (run / "config.json").mkdir()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (cut_settings, "config.json"),
        (other_settings, "config.json"),
        (no_state, "no checkpoint can be read"),
        (settings_are_a_directory, "config.json"),
    ],
)
def test_a_damaged_run_is_a_row_that_says_so(tmp_path, capsys, harm, told):
    make_run(tmp_path / "good", (10, 20), Phase.END)
    harm(make_run(tmp_path / "ill", (10, 20), Phase.END))
    assert run_command(["runs", str(tmp_path)]) == 0
    header, good, ill = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "network", "step", "best", "state"]
    assert good.startswith("good  connect4 1x8  20 of 20  move_error 5.00% (step 20)")
    assert good.endswith("ended")
    assert ill.startswith("ill")
    assert "damaged: " in ill
    assert told in ill


def test_damage_of_what_is_only_looked_at_is_passed_over(tmp_path):
    run = make_run(tmp_path / "x", (10, 20), Phase.END)
    binary_heartbeats(run)
    assert overview_of(run).state is RunState.ENDED


def test_json_and_what_is_no_run(tmp_path, capsys):
    make_run(tmp_path / "x", (10,), Phase.END)
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("")
    run_command(["runs", str(tmp_path), "--json"])
    (told,) = json.loads(capsys.readouterr().out)
    assert told["run"] == "x"
    assert told["state"] == "stopped"
    assert told["best"] == {"move_error": {"value": 0.1, "step": 10}}
    run_command(["runs", str(tmp_path / "x"), "--json"])  # the run itself
    assert json.loads(capsys.readouterr().out)[0]["run"] == "x"
    shutil.rmtree(tmp_path / "x")
    run_command(["runs", str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path}: no runs found\n"


def test_a_missing_directory_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere: .*No such file"):
        run_command(["runs", str(tmp_path / "nowhere")])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"blocks": 20, "filters": 256, "se_ratio": 0, "policy_head": "convolution"}, "20x256"),
        (
            {"blocks": 6, "filters": 64, "se_ratio": 8, "policy_head": "attention", "body": "residual"},
            "6x64, squeeze-excitation 1/8, attention policy head",
        ),
        (
            {"blocks": 15, "filters": 768, "se_ratio": 8, "body": "attention", "heads": 24},
            "15x768, attention body with 24 heads",
        ),
        ({"blocks": 5}, ""),
    ],
)
def test_the_text_of_a_network_says_what_it_is_made_of(settings: dict[str, object], text: str):
    assert network_text(settings) == text
