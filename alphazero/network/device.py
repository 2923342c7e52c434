"""The device that a network computes on: the CPU, or one of this machine's GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alphazero.errors import LaunchError
from alphazero.host.machine import device_files_present
from alphazero.text import counted


def choose_device(asked: str, local_rank: int, environment: Mapping[str, str]) -> torch.device:
    """The device of a process; `asked` is auto, cuda or cpu.

    Raises LaunchError where an NVIDIA device is there and CUDA cannot use it: a broken driver must
    never become a silent CPU run.
    """
    hidden = environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if asked == "cpu" or (asked == "auto" and (hidden or not device_files_present())):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"
        raise LaunchError(
            f"--device {asked}: CUDA does not work here ({built}); expected a working driver or --device cpu"
        )
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise LaunchError(
            f"local rank {local_rank}: this host has {counted(count, 'CUDA device')}; "
            "expected at most one process per device"
        )
    return torch.device("cuda", local_rank)
