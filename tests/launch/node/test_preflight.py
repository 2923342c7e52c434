"""The preflight on real gloo ranks: healthy, slow, of other versions, missing, stopped."""

import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from torch.distributed import HashStore

from alphazero.launch.node.preflight import RollCall
from alphazero.launch.node.preflight_measure import link_peers, partner_in_round
from alphazero.launch.node.preflight_report import (
    RankRecord,
    RankTimes,
    judge_network,
    judge_records,
    judge_times,
)
from alphazero.machine.findings import load_thresholds
from alphazero.machine.machine import tcp_segments
from tests.support.jobs.jobs import environment, free_port
from tests.support.paths import REPOSITORY, SUPPORT

SCRIPT = SUPPORT / "jobs" / "preflight_with.py"
# Wide, as the machine of a test may be busy. The odd rank is thirty times slower, and slows the others
# down where cores are few.
THRESHOLDS = "[collective]\nstraggler_ratio_warn = 4\nstraggler_floor_ms = 20\n"


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
    thresholds = directory / "own.toml"
    thresholds.write_text(THRESHOLDS + f"stage_timeout_s = {timeout_s}\n")
    port = free_port()
    common = (fault, str(odd_rank), "--thresholds", str(thresholds), "--hosts", "node1=2", "node2=1", *flags)
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


def test_healthy_ranks_under_torchrun_end_with_0_and_figures(tmp_path: Path):
    thresholds = tmp_path / "own.toml"
    thresholds.write_text("[collective]\nstraggler_ratio_warn = 20\nstraggler_floor_ms = 500\n")
    agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    flags = ["--json", "--thresholds", str(thresholds), "--config-file", str(thresholds)]
    done = subprocess.run(
        [sys.executable, *agent, "-m", "alphazero.launch.node.preflight", *flags],
        env={**environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["format"], report["severity"], report["backend"]) == ("alphazero-preflight", "ok", "gloo")
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    assert all(rank["times"]["compute_ms"] > 0 for rank in report["ranks"])
    assert report["ranks"][0]["files"] == report["ranks"][1]["files"] != {}
    figures = report["all_reduce"]
    assert figures["bytes"] == 4 << 20
    assert figures["latency_us"] > 0
    assert figures["bus_gb_s"] == pytest.approx(figures["algorithm_gb_s"])  # 2 (n - 1) / n = 1 at n = 2


@pytest.mark.parametrize(
    ("fault", "name"),
    [("compute", "compute_ms"), pytest.param("host", "arrival_ms", marks=pytest.mark.slow)],
)
def test_a_slow_rank_is_named(tmp_path: Path, fault: str, name: str):
    results = run(tmp_path, [0, 1, 2], fault, 2, "--json")
    assert [results[rank][0] for rank in (0, 1, 2)] == [1, 0, 0], results
    report = json.loads(results[0][1])
    faults = [finding for finding in report["findings"] if finding["severity"] != "ok"]
    assert [(found["device"], found["name"]) for found in faults] == [("rank2", name)]
    assert "straggler" in faults[0]["advice"]


def test_a_rank_with_another_version_is_named_and_nothing_is_measured(tmp_path: Path):
    results = run(tmp_path, [0, 1, 2], "version", 1)
    assert [results[rank][0] for rank in (0, 1, 2)] == [2, 0, 0], results
    table = results[0][1]
    assert "rank1: torch = 9.9.9" in table
    assert "most, ranks 0, 2, have 2." in table
    assert "all-reduce" not in table
    assert table.endswith("preflight: fail\n")


def test_a_rank_that_never_comes_is_named_with_its_host(tmp_path: Path):
    begin = time.monotonic()
    results = run(tmp_path, [0, 1], "none", 0, timeout_s=5)
    assert time.monotonic() - begin < 60
    assert [results[rank][0] for rank in (0, 1)] == [2, 2]
    said = results[0][2] + results[1][2]
    assert said.count("rank 2 (node2) did not reach step 'start' within 5 s") == 1, said
    assert "Traceback" not in said


def test_one_rank_alone_speaks_of_those_that_are_behind(capfd: pytest.CaptureFixture[str]):
    store, ended = HashStore(), queue.Queue()
    for rank in (1, 2):
        call = RollCall(lambda: store, rank, 4, 1.0, lambda rank: f"node{rank}", end=ended.put)
        threading.Thread(target=call.start, daemon=True).start()
    assert [ended.get(timeout=20) for _ in range(2)] == [2, 2]
    for rank in (0, 3):
        store.set(f"preflight/steps/{rank}", "1")  # lets both threads go
    said = "rank 0 (node0), rank 3 (node3) did not reach step 'start' within 1 s"
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
    assert "rank 1 (node1) did not reach step 'barrier 1' within 10 s" in results[0][2], results


def test_a_mistake_in_the_hosts_is_one_line(tmp_path: Path):
    results = run(tmp_path, [0], "none", 0, "--hosts", "node1")
    assert results[0] == (
        2,
        "",
        "alphazero: error: preflight: --hosts node1: expected HOST=SLOTS, as node1=8\n",
    )


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8])
def test_in_a_tournament_each_meets_each_once(count: int):
    rounds = count - 1 if count % 2 == 0 else count
    met = []
    for number in range(rounds):
        partners = [partner_in_round(own, count, number) for own in range(count)]
        assert all(partner is None or partners[partner] == own for own, partner in enumerate(partners))
        assert partners.count(None) == count % 2
        met += [(own, other) for own, other in enumerate(partners) if other is not None and own < other]
    assert sorted(met) == list(combinations(range(count), 2))


def test_links_are_compared_among_their_like():
    one_host = [("a", 0), ("a", 1), ("a", 2)]
    two_hosts = [("a", 0), ("b", 0)]
    three_hosts = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]
    assert link_peers(1, one_host) == [0, 1, 2]
    assert link_peers(0, two_hosts) == []
    assert link_peers(2, three_hosts) == [0, 2, 4]
    assert link_peers(3, three_hosts) == [1, 3]


def record(rank: int, **changes: str) -> RankRecord:
    """A rank of a job whose ranks agree, but for `changes`."""
    versions = {"torch": "2.13.0", "python": "3.11.7"} | changes
    digest = versions.pop("config", "aa")
    return RankRecord(rank, 0, f"node{rank}", "cpu", tuple(versions.items()), (("ds_config.json", digest),))


def test_the_ranks_that_differ_from_most_are_named():
    assert [finding.severity.word for finding in judge_records([record(0), record(1)])] == ["ok"]
    odd = judge_records([record(0), record(1), record(2), record(3, config="bb")])
    assert [(found.host, found.device, found.name, found.value) for found in odd] == [
        ("node3", "rank3", "ds_config.json", "bb")
    ]
    assert "ranks 0-2, have aa" in odd[0].advice
    assert odd[0].severity.word == "fail"
    odd = judge_records([record(0, python="3.10.1"), record(1), record(2)])
    assert [(found.device, found.severity.word) for found in odd] == [("rank0", "warn")]


def times(compute: float, arrival: float, link: float | None = None) -> RankTimes:
    """Of one rank, ms."""
    return RankTimes(compute, arrival, 0.1, 1.0, link)


@pytest.mark.parametrize(
    ("measured", "named"),
    [
        ([times(20, 25), times(21, 26), times(22, 27)], []),
        ([times(20, 25), times(20, 25), times(31, 36)], ["rank2 compute_ms"]),
        ([times(20, 25), times(20, 40), times(20, 25)], ["rank1 arrival_ms"]),
        ([times(20, 25), times(90, 95)], ["rank1 compute_ms"]),
        ([times(1, 1.5), times(1, 1.5), times(2.9, 3.4)], []),  # under the floor
        ([times(20, 25, 3), times(20, 25, 9), times(20, 25, 3)], ["rank1 link_ms"]),
        ([times(20, 25, None), times(20, 25, 3), times(20, 25, 3)], []),
    ],
)
def test_a_straggler_is_far_over_the_median_and_over_the_floor(measured, named):
    thresholds = replace(
        load_thresholds().collective, straggler_ratio_warn=1.5, straggler_floor_ms=2.0, stage_timeout_s=1
    )
    records = [record(rank) for rank in range(len(measured))]
    findings = judge_times(records, measured, thresholds)
    assert [f"{found.device} {found.name}" for found in findings if found.severity.word == "warn"] == named


# An all-reduce of 64 MiB in 0.6 s is 0.11 GB/s.
HEALTHY = RankTimes(20, 25, latency_ms=0.3, bandwidth_ms=600, link_ms=None, segments=50_000, retransmitted=5)


@pytest.mark.parametrize(
    ("second", "named"),
    [
        (HEALTHY, []),
        (replace(HEALTHY, latency_ms=12.0), ["rank0's host latency_ms"]),
        (replace(HEALTHY, bandwidth_ms=7000.0), ["rank0's host bandwidth_gb_s"]),
        (replace(HEALTHY, retransmitted=900), ["rank1 retransmitted"]),
        (replace(HEALTHY, segments=100, retransmitted=9), []),  # too few to say
        (replace(HEALTHY, segments=0, retransmitted=0), []),  # not known there
    ],
)
def test_a_slow_or_lossy_network_between_hosts_is_a_warning(second: RankTimes, named: list[str]):
    first = replace(second, retransmitted=0)  # the receiver of what is lost sends nothing again
    records = [replace(record(rank), host=f"host{rank}", local_rank=0) for rank in (0, 1)]
    findings = judge_network(records, [first, second], 64 << 20, load_thresholds().collective)
    assert [f"{found.device or 'rank0' + chr(39) + 's host'} {found.name}" for found in findings] == named
    assert {found.severity.word for found in findings} <= {"warn"}


def test_one_host_has_no_network_to_warn_of():
    slow = replace(HEALTHY, latency_ms=50.0, retransmitted=9000)
    records = [replace(record(rank), host="here") for rank in (0, 1)]
    assert judge_network(records, [slow, slow], 64 << 20, load_thresholds().collective) == []


def test_the_counters_of_tcp_are_read_by_their_names(tmp_path: Path):
    path = tmp_path / "snmp"
    path.write_text("Ip: A B\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: 200 7000 21 0\n")
    assert tcp_segments(path) == (7000, 21)
    assert tcp_segments(tmp_path / "none") == (0, 0)
    assert tcp_segments()[0] > 0
