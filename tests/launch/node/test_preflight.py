"""The preflight on real gloo ranks: healthy, missing, stopped."""

import queue
import subprocess
import sys
import threading
import time

import pytest
from torch.distributed import HashStore

from alphazero.launch.node.preflight import RollCall
from tests.support.jobs.jobs import environment, free_port
from tests.support.paths import REPOSITORY, SUPPORT

SCRIPT = SUPPORT / "jobs" / "preflight_with.py"


def start(rank: int, world_size: int, port: int, *arguments: str) -> subprocess.Popen[str]:
    """One rank, as an agent would start it."""
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PYTHONPATH": str(REPOSITORY),
    }
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(ranks: list[int], fault: str, odd_rank: int, timeout_s: float):
    """Ranks of three; (exit status, stdout, stderr) by rank, None for one that had to be killed."""
    port = free_port()
    common = (fault, str(odd_rank), "--timeout", str(timeout_s))
    processes = {rank: start(rank, 3, port, *common) for rank in ranks}
    results = {}
    try:
        for rank, process in processes.items():
            if (fault, odd_rank) != ("stopped", rank):
                out, err = process.communicate(timeout=90)
                results[rank] = (process.returncode, out, err)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return results


@pytest.mark.slow
def test_healthy_ranks_under_torchrun_end_with_0_and_a_line():
    agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *agent, "-m", "alphazero.launch.node.preflight"],
        env={**environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("alphazero: preflight: 2 ranks on 1 host, cpu: all-reduce of 4 MiB at ")


def test_a_rank_that_never_comes_is_named():
    begin = time.monotonic()
    results = run([0, 1], "none", 0, timeout_s=5)
    assert time.monotonic() - begin < 60
    assert [results[rank][0] for rank in (0, 1)] == [2, 2]
    said = results[0][2] + results[1][2]
    assert "rank 2: did not" in said and "'start'" in said
    assert "Traceback" not in said


def test_the_ranks_that_are_behind_are_named(capfd: pytest.CaptureFixture[str]):
    store, ended = HashStore(), queue.Queue()
    call = RollCall(lambda: store, 1, 3, 1.0, end=ended.put)
    threading.Thread(target=call.start, daemon=True).start()
    assert ended.get(timeout=20) == 2
    for rank in (0, 2):
        store.set(f"preflight/steps/{rank}", "1")  # lets the thread go
    said = "rank 0, rank 2: did not reach step 'start' in 1 s"
    assert capfd.readouterr().err == f"alphazero: error: preflight: {said}\n"


@pytest.mark.slow
def test_the_one_who_serves_the_store_is_named_where_it_never_comes():
    results = run([1], "none", 0, timeout_s=4)
    assert results[1][0] == 2
    assert "rank 0 did not" in results[1][2]
    assert "Traceback" not in results[1][2]


@pytest.mark.slow
def test_a_rank_that_stops_on_the_way_is_named():
    results = run([0, 1, 2], "stopped", 1, timeout_s=10)
    assert [results[rank][0] for rank in (0, 2)] == [2, 2]
    assert "rank 1: did not" in results[0][2] and "'all-reduce'" in results[0][2], results
