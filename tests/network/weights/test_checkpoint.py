"""Checkpoints are whole or absent, whatever fails while they are written."""

import dataclasses
import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from alphazero.base.errors import AlphaZeroError, CheckpointError
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState, load, save
from alphazero.network.weights.open_network import read_weights
from alphazero.run import checkpoint_files
from alphazero.training.loop.writer import CheckpointWriter
from tests.support.jobs.saving import checkpoint_of, write_newest
from tests.support.paths import REPOSITORY

SAVING = "tests.support.jobs.saving"
FIGURES = {"policy_top1": 0.2, "policy_loss": 2.5, "value_mse": 0.4, "composite": 3.5}


def newest(directory: Path) -> tuple[Path | None, list[str]]:
    passed_over: list[str] = []
    return checkpoint_files.find_newest(directory, passed_over.append), passed_over


def test_what_was_saved_is_loaded(tmp_path):
    made = checkpoint_of(3, {"policy_top1": 0.25})
    loaded = load(save(tmp_path, made))
    assert dataclasses.asdict(loaded.state) == dataclasses.asdict(made.state)
    for ours, theirs in ((made.weights, loaded.weights), (made.optimizer, loaded.optimizer)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert loaded.ema is None


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o007, 0o660), (0o077, 0o600)])
def test_files_have_the_modes_of_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        path = save(tmp_path, checkpoint_of(8))
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in path.iterdir()} == {oct(mode)}


def test_a_moving_average_is_saved_beside_the_weights(tmp_path):
    made = dataclasses.replace(checkpoint_of(3), ema={"a": torch.full((3, 2), 0.5)})
    loaded = load(save(tmp_path, made))
    assert loaded.ema is not None and torch.equal(loaded.ema["a"], torch.full((3, 2), 0.5))


def test_a_checkpoint_of_an_older_version_without_the_newer_fields_loads(tmp_path):
    path = save(tmp_path, checkpoint_of(3))
    state = checkpoint_files.read_json(path / "state.json")
    for name in ("data_offset", "skipped_steps", "loss_scale", "figures", "zero_stage", "precision"):
        del state[name]
    checkpoint_files.write_json(path / "state.json", state)
    checkpoint_files.write_manifest(path, ["weights.safetensors", "optimizer.safetensors", "state.json"])
    assert load(path).state == TrainingState(**state)


def test_the_newest_complete_one_is_found_and_the_others_are_named(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, checkpoint_of(step))
    (tmp_path / "step-00000003" / "optimizer.safetensors").unlink()
    with (tmp_path / "step-00000002" / "weights.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x07")
    path, passed_over = newest(tmp_path)
    assert path == tmp_path / "step-00000001"
    assert "optimizer.safetensors: missing" in passed_over[0]
    assert "weights.safetensors: sha256" in passed_over[1]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("manifest.json", "[]", "expected a JSON object"),
        ("manifest.json", '{"magic": "other"}', "magic 'other'"),
        ("manifest.json", '{"magic": "alphazero-checkpoint", "version": 9}', "version 9"),
        ("manifest.json", '{"magic": "alphazero-checkpoint", "version": 1, "files": {}}', "expected weights"),
        ("state.json", '{"step": 1}', "missing"),
        ("state.json", '{"surprise": 1}', "surprise"),
        ("weights.safetensors", "no tensors", "expected a safetensors file"),
    ],
)
def test_a_checkpoint_with_other_content_is_one_line_that_names_the_file(tmp_path, file, content, message):
    path = save(tmp_path, checkpoint_of(1))
    (path / file).write_text(content)
    if file != "manifest.json":
        names = ["weights.safetensors", "optimizer.safetensors", "state.json"]
        checkpoint_files.write_manifest(path, names)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(path)
    assert file in str(caught.value) and "\n" not in str(caught.value)


def test_only_the_newest_and_the_best_are_kept(tmp_path):
    paths = [save(tmp_path, checkpoint_of(step, FIGURES if step == 2 else {})) for step in range(1, 7)]
    (tmp_path / ".step-00000009.tmp").mkdir()
    removed = checkpoint_files.prune(tmp_path, keep=2)
    assert removed == [paths[0], paths[2], paths[3]]
    left = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".", "step")))
    assert left == ["step-00000002", "step-00000005", "step-00000006"]


def test_the_best_by_a_metric_is_that_with_the_better_figure_and_the_first_of_equals(tmp_path):
    better_loss = {**FIGURES, "policy_loss": 2.4, "policy_top1": 0.1, "value_mse": math.inf}
    one, two = (save(tmp_path, checkpoint_of(step, of)) for step, of in ((1, FIGURES), (2, better_loss)))
    save(tmp_path, checkpoint_of(3, FIGURES))
    assert checkpoint_files.find_best(tmp_path, "policy_loss") == two
    assert checkpoint_files.find_best(tmp_path, "policy_top1") == one
    assert checkpoint_files.find_best(tmp_path, "value_mse") == one
    with pytest.raises(CheckpointError, match="no such metric"):
        checkpoint_files.find_best(tmp_path, "strength")
    shutil.rmtree(one)
    assert checkpoint_files.best_of(tmp_path)["policy_top1"][1] == 0.2


@pytest.mark.parametrize(
    "change",
    [{"value": 10**400}, {"value": "1"}, {"checkpoint": 3}, {"checkpoint": "../step-00000001"}],
    ids=lambda change: str(change)[:30],
)
def test_a_damaged_word_on_the_strongest_checkpoint_does_not_count(tmp_path, change):
    checkpoint_files.mark_strongest(save(tmp_path, checkpoint_of(1)), 1500.0)
    assert checkpoint_files.best_of(tmp_path)["elo"][1] == 1500
    file = tmp_path / "best-elo"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert "elo" not in checkpoint_files.best_of(tmp_path)
    with pytest.raises(CheckpointError, match="no best-elo"):
        checkpoint_files.find_best(tmp_path, "elo")


def test_a_run_that_goes_back_puts_newer_checkpoints_aside(tmp_path):
    paths = [save(tmp_path, checkpoint_of(step)) for step in (1, 2, 3)]
    checkpoint_files.mark_strongest(paths[2], 1500.0)
    moved = checkpoint_files.set_aside_after(tmp_path, 1)
    assert [path.name for path in moved] == ["superseded-1-step-00000002", "superseded-1-step-00000003"]
    assert newest(tmp_path) == (paths[0], [])
    assert checkpoint_files.best_of(tmp_path) == {}
    save(tmp_path, checkpoint_of(2))
    (again,) = checkpoint_files.set_aside_after(tmp_path, 1)
    assert again.name == "superseded-2-step-00000002"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("replaced", [False, True])
def test_no_failing_file_operation_makes_half_a_checkpoint_or_loses_the_last(
    tmp_path, monkeypatch, replaced, fault
):
    """Every open, fsync, rename, mkdir and removal of saving, marking and pruning fails in turn."""
    failed = 0
    for number in range(400):
        directory = tmp_path / str(number)
        save(directory, checkpoint_of(1, FIGURES))
        with monkeypatch.context() as patch:
            writer = CheckpointWriter(directory, 1, write_newest(directory), lambda text: None)
            operations = FailingOperations(patch, number, fault)
            writer.submit(checkpoint_of(1 if replaced else 2, {**FIGURES, "policy_top1": 0.3}))
            writer.wait()
        if writer.fault:
            assert os.strerror(fault) in str(writer.fault)
        path, passed_over = newest(directory)
        assert path is not None and passed_over == []
        load(path)
        if (directory / "net.pt").exists():
            read_weights(directory / "net.pt")
        checkpoint_files.settle(directory, 1)
        assert not list(directory.glob(".step-*"))
        if not operations.failed:
            break
        failed += 1
    assert failed >= 20 and not operations.failed


class FailingOperations:
    """Counts file operations and makes number `number` fail."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, fault: int) -> None:
        self.left = number
        self.fault = fault
        self.failed = False
        for owner, name in (
            (os, "fsync"),
            (os, "open"),
            (os, "rmdir"),
            (os, "unlink"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "mkdir"),
            (Path, "open"),
            (Path, "unlink"),
        ):
            patch.setattr(owner, name, self.guarded(getattr(owner, name)))

    def guarded(self, operation):
        def call(*arguments, **keywords):
            self.left -= 1
            if self.left < 0 and not self.failed:
                self.failed = True
                raise OSError(self.fault, os.strerror(self.fault))
            return operation(*arguments, **keywords)

        return call


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB of its own."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def big(step: int) -> Checkpoint:
    """A checkpoint of some 300 kB."""
    return dataclasses.replace(checkpoint_of(step), weights={"a": torch.ones(75_000)})


def test_a_full_disk_is_a_fault_and_the_last_checkpoint_stays(small_disk):
    writer = CheckpointWriter(small_disk, 3, lambda checkpoint, metrics: None, lambda text: None)
    for step in range(1, 9):
        writer.submit(big(step))
        writer.wait()
        if writer.fault:
            break
    assert "No space left" in str(writer.fault)
    path, passed_over = newest(small_disk)
    assert path is not None and checkpoint_files.step_of(path) == step - 1 and passed_over == []
    load(path)


def test_a_disk_that_became_read_only_is_a_fault_and_the_last_checkpoint_stays(small_disk):
    writer = CheckpointWriter(small_disk, 3, lambda checkpoint, metrics: None, lambda text: None)
    writer.submit(big(1))
    writer.wait()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    writer.submit(big(2))
    writer.wait()
    assert "Read-only" in str(writer.fault)
    assert newest(small_disk) == (small_disk / "step-00000001", [])


def test_a_bug_in_the_thread_is_raised_in_training(tmp_path):
    def broken(checkpoint: Checkpoint, metrics: object) -> None:
        raise ZeroDivisionError

    writer = CheckpointWriter(tmp_path, 3, broken, lambda text: None)
    writer.submit(checkpoint_of(1))
    with pytest.raises(ZeroDivisionError):
        writer.wait()


def test_a_fault_is_kept_for_the_one_who_asks(tmp_path):
    def refuses(checkpoint: Checkpoint, metrics: object) -> None:
        raise AlphaZeroError("no")

    writer = CheckpointWriter(tmp_path, 3, refuses, lambda text: None)
    writer.submit(checkpoint_of(1))
    writer.wait()
    assert str(writer.fault) == "no"


def test_killed_at_any_instant_the_newest_complete_one_loads(tmp_path):
    """A process that saves, marks and prunes without end, killed again and again."""
    rng = random.Random(5)
    for number in range(3):
        command = [sys.executable, "-m", SAVING, str(tmp_path)]
        saving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert saving.stdout is not None
        saving.stdout.readline()
        time.sleep(rng.uniform(0, 0.15))
        saving.send_signal(signal.SIGKILL)
        reported = [int(line) for line in saving.stdout.read().split()]
        saving.wait()
        path, passed_over = newest(tmp_path)
        assert path is not None and passed_over == [], f"kill {number}"
        assert checkpoint_files.step_of(path) >= max(reported, default=0)
        load(path)
        assert load(checkpoint_files.find_best(tmp_path, "policy_top1")).state.figures
        read_weights(tmp_path / "net.pt")
