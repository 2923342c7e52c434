"""Checkpoints are whole or absent, whatever fails while they are written."""

import dataclasses
import errno
import os
from pathlib import Path

import pytest
import torch

from alphazero.errors import CheckpointError
from alphazero.training import checkpoint as checkpoints
from alphazero.training.checkpoint import Checkpoint, TrainingState


def make(step: int) -> Checkpoint:
    state = TrainingState(step, 100, 0, 64, 16, "window", 2, {"network": {}})
    weights = {"a": torch.full((3, 2), float(step)), "count": torch.tensor(step)}
    return Checkpoint(state, weights, {"a/exp_avg": torch.ones(3, 2), "step": torch.tensor(float(step))})


def newest(directory: Path) -> tuple[Path | None, list[str]]:
    passed_over: list[str] = []
    return checkpoints.find_newest(directory, passed_over.append), passed_over


def test_what_was_saved_is_loaded(tmp_path):
    path = checkpoints.save(tmp_path, make(3))
    loaded = checkpoints.load(path)
    assert dataclasses.asdict(loaded.state) == dataclasses.asdict(make(3).state)
    assert torch.equal(loaded.weights["a"], make(3).weights["a"])
    assert (tmp_path / "latest").read_text() == "step-00000003\n"


def test_the_newest_complete_one_is_found_and_the_others_are_named(tmp_path):
    for step in (1, 2, 3):
        checkpoints.save(tmp_path, make(step))
    (tmp_path / "step-00000003" / "optimizer.safetensors").unlink()
    with (tmp_path / "step-00000002" / "weights.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x07")
    path, passed_over = newest(tmp_path)
    assert path == tmp_path / "step-00000001"
    assert "optimizer.safetensors: missing" in passed_over[0]
    assert "weights.safetensors: sha256" in passed_over[1]


def test_only_the_newest_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        checkpoints.save(tmp_path, make(step))
    (tmp_path / ".step-00000009.tmp").mkdir()
    checkpoints.prune(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000003", "step-00000004"]


@pytest.mark.parametrize("replaced", [False, True])
def test_no_failing_file_operation_makes_half_a_checkpoint_or_loses_the_last(tmp_path, monkeypatch, replaced):
    """Every open, fsync, rename and mkdir of a save fails in turn, as on a full disk."""
    failed = 0
    for number in range(200):
        directory = tmp_path / str(number)
        checkpoints.save(directory, make(1))
        with monkeypatch.context() as patch:
            operations = FailingOperations(patch, number)
            try:
                checkpoints.save(directory, make(1 if replaced else 2))
            except CheckpointError as error:
                assert "No space left" in str(error)
        path, passed_over = newest(directory)
        assert path is not None and passed_over == []
        checkpoints.load(path)
        if not operations.failed:
            break
        failed += 1
    assert failed >= 10 and not operations.failed


class FailingOperations:
    """Counts file operations and makes number `number` fail."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        self.failed = False
        for owner, name in (
            (os, "fsync"),
            (os, "open"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "mkdir"),
            (Path, "open"),
        ):
            patch.setattr(owner, name, self.guarded(getattr(owner, name)))

    def guarded(self, operation):
        def call(*arguments, **keywords):
            self.left -= 1
            if self.left < 0 and not self.failed:
                self.failed = True
                raise OSError(errno.ENOSPC, "No space left on device")
            return operation(*arguments, **keywords)

        return call
