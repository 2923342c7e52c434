"""The GPUs of all hosts: read by local rank 0 of each, brought together by adding up messages."""

import math
from types import SimpleNamespace
from typing import Any

import torch

from alphazero.machine.nvml import GpuReading
from alphazero.machine.watcher import Doing, UsageMeter
from alphazero.training.loop.usage import GpuBoard, gpu_figures, utilisation

GIB = 1 << 30


def boards(*places: tuple[str, int, str]) -> list[GpuBoard]:
    """One per rank: host, local rank, UUID of its GPU."""
    made = []
    for rank, (host, local_rank, uuid) in enumerate(places):
        exchange: Any = SimpleNamespace(rank=rank, gather=lambda own: [list(place) for place in places])
        made.append(GpuBoard(exchange, host, local_rank, uuid, UsageMeter()))
    return made


def reading(index: int, uuid: str, busy: int | None, **figures: Any) -> GpuReading:
    return GpuReading(index, uuid=uuid, utilisation_percent=busy, **figures)


def total(made: list[GpuBoard], doing: Doing = Doing.TRAINING) -> torch.Tensor:
    """What adding up the messages of all ranks gives."""
    return torch.stack([board.message(doing) for board in made]).sum(0)


def test_every_gpu_of_every_host_is_told_with_means_of_its_readings():
    ranks = boards(("a", 0, "GPU-0"), ("a", 1, "GPU-1"), ("b", 0, "GPU-2"))
    first = reading(0, "GPU-0", 40, memory_used_bytes=2 * GIB, temperature_c=50, power_w=100.0)
    second = reading(0, "GPU-0", 60, memory_used_bytes=GIB, temperature_c=60, power_w=300.0)
    ranks[0].meter.add([first, reading(1, "GPU-1", 100)])
    ranks[0].meter.add([second, reading(1, "GPU-1", 100)])
    ranks[2].meter.add([reading(3, "GPU-2", 10), reading(4, "GPU-unused", 0)])
    gpus = ranks[0].read(total(ranks))
    figures = gpu_figures(gpus)
    assert figures["a/gpu0/utilisation_percent"] == 50
    assert figures["a/gpu0/memory_used_gib"] == 2
    assert figures["a/gpu0/temperature_c"] == 60
    assert figures["a/gpu0/power_w"] == 200
    assert figures["b/gpu3/utilisation_percent"] == 10
    assert figures["b/gpu4/utilisation_percent"] == 0
    assert not any(math.isnan(value) for value in figures.values())
    assert "b/gpu3/power_w" not in figures
    # The one that no rank computes on is not counted.
    assert [gpu.num_ranks for gpu in gpus] == [1, 1, 1, 0]
    assert utilisation(gpus) == (0.5 + 1.0 + 0.1) / 3


def test_readings_are_told_once_and_apart_by_what_the_job_did():
    (board,) = boards(("a", 0, "GPU-0"))
    board.meter.add([reading(0, "GPU-0", 90)])
    with board.meter.doing(Doing.OTHER):
        board.meter.add([reading(0, "GPU-0", 0)])
        with board.meter.doing(Doing.SELF_PLAY):
            board.meter.add([reading(0, "GPU-0", 30), reading(1, "GPU-1", 0)])
        board.meter.add([reading(0, "GPU-0", 0)])
    assert utilisation(board.read(total([board], Doing.SELF_PLAY))) == 0.3
    assert utilisation(board.read(total([board]))) == 0.9
    assert board.read(total([board])) == []
    assert utilisation([]) is None


def test_a_lost_gpu_and_one_without_figures_do_no_harm():
    (board,) = boards(("a", 0, "GPU-0"))
    board.meter.add([GpuReading(0, uuid="GPU-0", lost="GPU is lost"), reading(1, "GPU-1", None)])
    gpus = board.read(total([board]))
    assert [gpu.name for gpu in gpus] == ["a/gpu1"]
    assert gpus[0].figures == {}
    assert utilisation(gpus) is None


def test_two_ranks_on_one_gpu_and_hosts_of_one_name_are_told_apart():
    ranks = boards(("a", 0, "GPU-0"), ("a", 1, "GPU-0"), ("a", 0, "GPU-1"))
    ranks[0].meter.add([reading(0, "GPU-0", 20)])
    ranks[2].meter.add([reading(0, "GPU-1", 40)])
    gpus = ranks[1].read(total(ranks))
    assert [(gpu.name, gpu.num_ranks) for gpu in gpus] == [("a-0/gpu0", 2), ("a-1/gpu0", 1)]
