"""What a job says of the processors that its ranks were bound to."""

import os
from types import SimpleNamespace

import pytest
import torch

from alphazero.machine import machine
from alphazero.training.ranks.runtime import (
    Runtime,
    default_threads,
    pin_ranks,
    read_runtime,
    with_local_ranks,
)


class Ranks:
    """Two ranks of one host, of which this is the second: what the first one sends, message by message."""

    def __init__(self, *first: object) -> None:
        self._first = list(first)

    def gather(self, own):
        return [self._first.pop(0), own]


def two_on_gpus(text: str) -> Ranks:
    """The first one has GPU 0, and `text` says where it was bound."""
    return Ranks(["here", 0, text])


def runtime(device: str, local_world_size: int = 2) -> Runtime:
    where = torch.device("cuda", 1) if device == "cuda" else torch.device(device)
    return Runtime(1, 1, 2, local_world_size, where, "gloo", "here")


@pytest.fixture
def gpus(monkeypatch):
    """GPU 0 near processor 0, GPU 1 near 1 and 2, of four; what was bound and set."""
    done = {}
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(pci_domain_id=0, pci_bus_id=device.index, pci_device_id=0),
    )
    monkeypatch.setattr(machine, "machine_identity", lambda: "machine")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    near = {"0000:00:00.0": frozenset({0}), "0000:01:00.0": frozenset({1, 2})}
    monkeypatch.setattr(machine, "processors_near", near.__getitem__)
    monkeypatch.setattr(machine, "is_bound_by_launcher", lambda: False)
    monkeypatch.setattr(machine, "bind", lambda share: done.update(bound=share))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: done.update(threads=number))
    return done


def test_a_rank_is_bound_near_its_gpu_with_as_many_threads_as_processors_at_most(gpus):
    lines = pin_ranks(runtime("cuda"), two_on_gpus("0"))
    assert lines == ["processors on here: rank 0 0; rank 1 1-2"]
    assert gpus == {"bound": {1, 2}, "threads": 2}


def test_a_rank_that_its_launcher_bound_stays_there(gpus, monkeypatch):
    monkeypatch.setattr(machine, "is_bound_by_launcher", lambda: True)
    text = "0-3, as the launcher bound it"
    assert pin_ranks(runtime("cuda"), two_on_gpus(text)) == [f"processors on here: {text}"]
    assert gpus == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"processors_near": lambda address: frozenset()},
            "none are known to be nearer",
        ),
        ({"bind": lambda share: os.close(-1)}, "Bad file descriptor"),
    ],
)
def test_where_it_cannot_be_done_the_reason_is_said(gpus, monkeypatch, change, reason):
    for name, replacement in change.items():
        monkeypatch.setattr(machine, name, replacement)
    (line,) = pin_ranks(runtime("cuda"), two_on_gpus("0"))
    assert "rank 1 " in line and reason in line
    assert gpus == {}


def test_ranks_on_cpus_stay_as_they_are_without_a_word(gpus):
    assert pin_ranks(runtime("cpu"), Ranks(["here", 0, ""])) == []
    assert gpus == {}


DEEPSPEED = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}


def test_deepspeed_s_launcher_over_nodes_counts_the_ranks_of_a_node_as_local_size():
    assert read_runtime({**DEEPSPEED, "LOCAL_SIZE": "8"}, "cpu").local_world_size == 8
    both = {**DEEPSPEED, "LOCAL_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    assert read_runtime(both, "cpu").local_world_size == 4
    assert read_runtime({}, "cpu").local_world_size == 1


def test_ranks_of_a_host_are_counted_where_no_launcher_did(monkeypatch):
    monkeypatch.setattr(machine, "machine_identity", lambda: "machine")
    by_hand = read_runtime({**DEEPSPEED, "LOCAL_WORLD_SIZE": "1"}, "cpu")
    assert by_hand.local_world_size == 2  # at least as many as its own number says
    assert with_local_ranks(by_hand, Ranks(["machine", 7, 1])).local_world_size == 8
    assert with_local_ranks(by_hand, Ranks(["another", 7, 1])).local_world_size == 2
    launched = read_runtime({**DEEPSPEED, "LOCAL_WORLD_SIZE": "8"}, "cpu")
    assert with_local_ranks(launched, Ranks(["machine", 0, 8])).local_world_size == 8


def test_two_nodes_of_deepspeed_s_launcher_share_a_node_s_processors_among_its_own_ranks(monkeypatch):
    monkeypatch.setattr("alphazero.training.ranks.runtime.count_processors", lambda: 64)
    assert default_threads(read_runtime({**DEEPSPEED, "LOCAL_SIZE": "8"}, "cpu").local_world_size, {}) == 8
