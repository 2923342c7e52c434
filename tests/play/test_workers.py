"""Worker processes: where each computes, what crosses to it, and how a command learns of its end."""

import argparse
import json
import os
import time
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import psutil
import pytest

from alphazero.base.errors import ConfigError, LaunchError, LostConnectionError
from alphazero.machine.machine import WORKER_VARIABLE, Machine
from alphazero.machine.nvml import Device
from alphazero.play.workers import Place, Worker, Workers, find_places, serve
from tests.support.launch.resolving import CPU, GPUS


def places(gpus: int, machine: Machine = CPU, device: str = "auto", **environment: str) -> list[Place]:
    """On a made-up machine, of which `--device cpu` sees no GPU."""
    return list(
        find_places(
            gpus,
            device,
            environment,
            lambda asked: replace(machine, devices=()) if asked == "cpu" else machine,
        )
    )


def test_one_process_is_this_one_and_the_machine_is_not_looked_at():
    def look(device: str) -> Machine:
        raise AssertionError(device)

    assert find_places(1, "auto", {}, look) == ()


def test_without_a_gpu_processes_share_the_cores_and_there_are_no_more_than_cores():
    assert places(2) == [Place("cpu", {"OMP_NUM_THREADS": "2"})] * 2
    assert places(2, GPUS, "cpu") == places(2)
    assert places(3) == [Place("cpu", {"OMP_NUM_THREADS": "1"})] * 3
    assert places(2, OMP_NUM_THREADS="4") == [Place("cpu", {"OMP_NUM_THREADS": "4"})] * 2
    assert places(-1) == []
    with pytest.raises(LaunchError, match=r"^--gpus 5: .* 4 cores"):
        places(5)
    with pytest.raises(LaunchError, match=r"^--device cuda: .* box "):
        places(2, device="cuda")


def test_each_process_sees_one_gpu_of_those_that_are_visible():
    numbered = [
        {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(number)}
        for number in range(4)
    ]
    assert [place.variables for place in places(-1, GPUS)] == numbered
    assert [place.device for place in places(-1, GPUS)] == ["cuda"] * 4
    two = places(2, GPUS, CUDA_VISIBLE_DEVICES="3,1,0")
    assert [place.variables["CUDA_VISIBLE_DEVICES"] for place in two] == ["3", "1"]
    assert "CUDA_DEVICE_ORDER" not in two[0].variables
    with pytest.raises(LaunchError, match=r"^--gpus 5: .* 4 NVIDIA devices"):
        places(5, GPUS)


def test_all_gpus_of_a_machine_with_one_are_this_process():
    assert places(-1, replace(CPU, devices=(Device(0, "GPU-0", "NVIDIA Test"),))) == []


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch):
    """The parent's end of the connection of a worker, which serve() finds in the environment."""
    ours, theirs = Pipe()
    monkeypatch.setenv(WORKER_VARIABLE, str(os.dup(theirs.fileno())))
    theirs.close()
    yield ours
    ours.close()


def test_a_worker_gets_the_arguments_does_tasks_until_it_is_to_stop_and_says_when_each_is_done(connected):
    connected.send_bytes(b'{"out": {"path": "a/b"}, "seconds": Infinity, "player": [["x=1"]], "gpus": null}')
    for message in (b"one", b"two", b""):
        connected.send_bytes(message)
    seen: list[object] = []

    def work(args: argparse.Namespace, worker: Worker) -> None:
        seen.append(args)
        for task in worker.tasks():
            seen.append((task, worker.is_asked_to_stop))
            worker.reply("answer", task + b"\n\x00")

    assert serve(work) == 0
    assert seen == [
        argparse.Namespace(out=Path("a/b"), seconds=float("inf"), player=[["x=1"]], gpus=None),
        (b"one", True),
        (b"two", True),
    ]
    sent = [connected.recv_bytes() for _ in range(4)]
    assert sent == [b"answer\none\n\x00", b"done\n", b"answer\ntwo\n\x00", b"done\n"]
    assert WORKER_VARIABLE not in os.environ


def test_a_worker_sends_the_error_of_a_user_and_ends_quietly_without_its_parent(connected):
    connected.send_bytes(b"{}")

    def fail(args: argparse.Namespace, worker: Worker) -> None:
        raise ConfigError("--x 1: expected 2")

    assert serve(fail) == 2
    assert connected.recv_bytes() == b"failed\n" + json.dumps(["config", "--x 1: expected 2"]).encode()


def test_a_worker_whose_parent_has_ended_ends_too(connected):
    connected.send_bytes(b"{}")
    connected.close()
    assert serve(lambda args, worker: [worker.reply("x") for _ in worker.tasks()] and None) == 0


def test_a_worker_that_cannot_start_is_named(capfd: pytest.CaptureFixture[str]):
    workers = Workers("no-such-command", argparse.Namespace(), [Place("cpu", {})] * 2)
    with (
        pytest.raises(LostConnectionError, match=r"^process [12] of 2 .*\(pid \d+\)"),
        workers,
    ):
        list(workers.replies(["{}", "{}"]))
    assert "no-such-command" in capfd.readouterr().err


def test_a_worker_that_has_failed_before_its_task_says_why():
    args = argparse.Namespace(config="no-such-preset", weights="w.pt", out=Path("games"), play_for=None)
    before = psutil.Process().children()  # of other tests
    with Workers("selfplay", args, [Place("cpu", {})]) as workers:
        (child,) = (one for one in psutil.Process().children() if one not in before)
        deadline = time.monotonic() + 60
        while child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(ConfigError, match="no-such-preset"):
            list(workers.replies(["{}"]))
