"""The preflight on real gloo ranks: healthy, of other versions, missing, stopped."""

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore

from alphazero.launch.node.preflight import RollCall
from alphazero.launch.preflight_report import RankRecord, differences
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


def run(directory: Path, ranks: list[int], fault: str, odd_rank: int, *flags: str, timeout_s: float = 60):
    """Ranks of three; (exit status, stdout, stderr) by rank, None for one that had to be killed."""
    port = free_port()
    common = (
        fault,
        str(odd_rank),
        "--timeout",
        str(timeout_s),
        "--hosts",
        "node1",
        "node1",
        "node2",
        *flags,
    )
    processes = {rank: start(rank, 3, port, *common, *flags) for rank in ranks}
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


def test_healthy_ranks_under_torchrun_end_with_0_and_figures(tmp_path: Path):
    config = tmp_path / "own.toml"
    config.write_text("[run]\n")
    agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    flags = ["--json", "--config-file", str(config)]
    done = subprocess.run(
        [sys.executable, *agent, "-m", "alphazero.launch.node.preflight", *flags],
        env={**environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["format"], report["backend"], report["num_ranks"]) == ("alphazero-preflight", "gloo", 2)
    assert report["faults"] == []
    assert report["num_bytes"] == 4 << 20
    assert report["gb_s"] > 0


def test_a_rank_with_another_version_is_named_and_nothing_is_measured(tmp_path: Path):
    results = run(tmp_path, [0, 1, 2], "version", 1)
    assert [results[rank][0] for rank in (0, 1, 2)] == [2, 0, 0], results
    table = results[0][1]
    assert ": torch 9.9.9; expected 2." in table
    assert table.endswith("as on ranks 0,2\n")
    assert "all-reduce" not in table


def test_a_rank_that_never_comes_is_named_with_its_host(tmp_path: Path):
    begin = time.monotonic()
    results = run(tmp_path, [0, 1], "none", 0, timeout_s=5)
    assert time.monotonic() - begin < 60
    assert [results[rank][0] for rank in (0, 1)] == [2, 2]
    said = results[0][2] + results[1][2]
    assert "rank 2 (node2) did not reach step 'start' within 5 s" in said
    assert "Traceback" not in said


def test_the_ranks_that_are_behind_are_named(capfd: pytest.CaptureFixture[str]):
    store, ended = HashStore(), queue.Queue()
    call = RollCall(lambda: store, 1, 3, 1.0, ("node0", "node1"), end=ended.put)
    threading.Thread(target=call.start, daemon=True).start()
    assert ended.get(timeout=20) == 2
    for rank in (0, 2):
        store.set(f"preflight/steps/{rank}", "1")  # lets the thread go
    said = "rank 0 (node0), rank 2 (host unknown) did not reach step 'start' within 1 s"
    assert capfd.readouterr().err == f"alphazero: error: preflight: {said}\n"


@pytest.mark.slow
def test_the_one_who_serves_the_store_is_named_where_it_never_comes(tmp_path: Path):
    results = run(tmp_path, [1], "none", 0, timeout_s=4)
    assert results[1][0] == 2
    assert "rank 1: rank 0 did not answer at 127.0.0.1:" in results[1][2]
    assert "Traceback" not in results[1][2]


@pytest.mark.slow
def test_a_rank_that_stops_on_the_way_is_named(tmp_path: Path):
    results = run(tmp_path, [0, 1, 2], "stopped", 1, timeout_s=10)
    assert [results[rank][0] for rank in (0, 2)] == [2, 2]
    assert "rank 1 (node1) did not reach step 'all-reduce' within 10 s" in results[0][2], results


def record(rank: int, **changes: str) -> RankRecord:
    """A rank of a job whose ranks agree, but for `changes`; two ranks a host."""
    return RankRecord(rank, f"node{rank // 2}", {"torch": "2.13.0", "ds_config.json": "aa"} | changes)


def test_a_host_that_differs_from_most_is_named_once():
    assert differences([record(0), record(1)]) == []
    odd = [record(rank, **({"torch": "2.9.0"} if rank > 3 else {})) for rank in range(6)]
    assert [(fault.rank, fault.line) for fault in differences(odd)] == [
        (4, "node2: torch 2.9.0; expected 2.13.0 as on ranks 0-3")
    ]
