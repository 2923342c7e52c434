"""What a job says of the processors that its ranks were bound to."""

import os
from types import SimpleNamespace

import pytest
import torch

from alphazero.machine import machine
from alphazero.training.ranks.runtime import pin_ranks


class Ranks:
    """Two ranks of one host, of which this is the second."""

    def __init__(self, first: str) -> None:
        self._first = first

    def gather(self, own):
        return [["here", 0, self._first], own]


def runtime(device: str) -> SimpleNamespace:
    return SimpleNamespace(device=torch.device(device), host="here", rank=1, local_rank=1, local_world_size=2)


@pytest.fixture
def gpus(monkeypatch):
    """GPU 0 near processor 0, GPU 1 near 1 and 2, of four; what was bound and set."""
    done = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda local: SimpleNamespace(uuid=f"uuid-{local}")
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    near = {"uuid-0": frozenset({0}), "uuid-1": frozenset({1, 2})}
    monkeypatch.setattr(machine, "processors_near", lambda uuids: tuple(near[uuid] for uuid in uuids))
    monkeypatch.setattr(machine, "is_bound_by_launcher", lambda: False)
    monkeypatch.setattr(machine, "nodes_of", lambda share: (1,))
    monkeypatch.setattr(machine, "bind", lambda share: done.update(bound=share))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: done.update(threads=number))
    return done


def test_a_rank_is_bound_near_its_gpu_with_as_many_threads_as_processors_at_most(gpus):
    lines = pin_ranks(runtime("cuda"), Ranks("0 (NUMA node 0)"))
    assert lines == ["processors on here: rank 0 0 (NUMA node 0); rank 1 1-2 (NUMA node 1)"]
    assert gpus == {"bound": {1, 2}, "threads": 2}


def test_a_rank_that_its_launcher_bound_stays_there(gpus, monkeypatch):
    monkeypatch.setattr(machine, "is_bound_by_launcher", lambda: True)
    text = "0-3, as the launcher bound it"
    assert pin_ranks(runtime("cuda"), Ranks(text)) == [f"processors on here: {text}"]
    assert gpus == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"share_of": lambda *args: None}, "none are known to be nearer to one GPU than to another"),
        ({"bind": lambda share: os.close(-1)}, "Bad file descriptor"),
    ],
)
def test_where_it_cannot_be_done_the_reason_is_said(gpus, monkeypatch, change, reason):
    for name, replacement in change.items():
        monkeypatch.setattr(machine, name, replacement)
    text = f"ranks are not pinned: {reason}"
    assert pin_ranks(runtime("cuda"), Ranks(text)) == [f"processors on here: {text}"]
    assert gpus == {}


def test_ranks_on_cpus_stay_as_they_are_without_a_word(gpus):
    assert pin_ranks(runtime("cpu"), Ranks("")) == []
    assert gpus == {}
