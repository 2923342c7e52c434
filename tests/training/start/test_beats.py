"""Signs of life of a rank before its run is open."""

from pathlib import Path

import pytest
import torch

from alphazero.run.directory import RunDirectory
from alphazero.run.rank import JOB_VARIABLE, Phase, read_heartbeats
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.start.open_services import beat_of_start


def test_an_agent_sees_that_a_start_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = RunDirectory(tmp_path / "run")
    runtime = Runtime(1, 1, 2, 2, torch.device("cpu"), "gloo", "host1")
    monkeypatch.delenv(JOB_VARIABLE, raising=False)
    beat_of_start(run, runtime)()
    assert not run.path.exists()
    monkeypatch.setenv(JOB_VARIABLE, "token")
    beat_of_start(run, runtime)()
    (found,) = read_heartbeats(run.heartbeats)
    assert (found.rank, found.job, found.phase, found.progress) == (1, "token", Phase.START, 1)
