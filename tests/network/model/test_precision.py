"""Which device a process takes."""

import pytest
import torch

from alphazero.base.errors import LaunchError
from alphazero.network.model.precision import choose_device


def test_a_task_of_slurm_that_sees_one_device_takes_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("alphazero.network.model.precision.device_files_present", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    task = {"SLURM_LOCALID": "3", "SLURM_GPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert choose_device("auto", 3, task) == torch.device("cuda", 0)
    for other in ({"SLURM_LOCALID": "3"}, {**task, "SLURM_LOCALID": "0"}):
        with pytest.raises(LaunchError, match=r"local rank 3: .*1 CUDA"):
            choose_device("auto", 3, other)
