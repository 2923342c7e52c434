"""The model of `bench scaling` on two hosts whose link is slow: it must see the network in its parts."""

import dataclasses
import json
import shutil

import pytest

from benchmarks.scaling_parts.measured import Job, measure
from benchmarks.scaling_parts.start import TOGETHER, environment, results, start, wait_for_all
from tests.support.hosts.fixtures import cannot_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PORT = 23457
# 3 MB of gradients cross in a quarter of a second; the steps of this network take a few hundredths.
RATE = ("rate", "100mbit", "burst", "64kb", "latency", "400ms")
JOB = Job(
    blocks=4,
    filters=64,
    precision="fp32",
    positions=16,
    micro_batch=16,
    steps=5,
    rounds=1,
    threads=1,
    num_parameters=0,  # counted below
)


class OnHosts:
    """Runs ranks one to a host."""

    def __init__(self, hosts, directory):
        self.hosts = hosts
        self.directory = directory
        self.runs = 0

    def __call__(self, order, ranks):
        self.runs += 1
        place = self.directory / f"run-{self.runs}"
        place.mkdir()
        processes = []
        for rank in range(ranks):
            host = self.hosts[rank]
            variables = environment("cpu", order["what"], rank, ranks, PORT)
            if order["what"] == TOGETHER:
                variables |= {"MASTER_ADDR": self.hosts[0].address, "GLOO_SOCKET_IFNAME": "eth0"}
                variables |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            log = (place / f"log-{rank}").open("w+b")
            processes.append((start(place, order, rank, variables, log, host.argv()), log))
        wait_for_all(processes, order["what"], 400)
        return [results(place, rank) for rank in range(ranks)]


def test_a_slow_link_is_seen_in_the_parts_and_predicted_in_the_steps(network, tmp_path):
    if shutil.which("tc") is None:
        cannot_run("tc (iproute2) is not installed")
    from benchmarks.scaling import parameter_count

    hosts = network(2).hosts
    for host in hosts:
        host.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *RATE)
    job = dataclasses.replace(JOB, num_parameters=parameter_count(JOB.blocks, JOB.filters))
    found = measure(job, "cpu", [1, 2], OnHosts(hosts, tmp_path))
    (tmp_path / "found.json").write_text(json.dumps(found, indent=1))
    two = next(part for part in found["parts"] if part["ranks"] == 2)
    at_line_rate = job.gradient_bytes * 8 / 100e6
    assert two["all_reduce_s"][str(job.gradient_bytes)] > 0.7 * at_line_rate
    weak = next(row for row in found["scaling"] if row["ranks"] == 2 and row["kind"] == "weak")
    print(json.dumps(found["scaling"], indent=1))
    # The machine may be busy: what a model without a network would say is further away.
    assert 1 / 3 < weak["measured_to_predicted"] < 3
    assert min(weak["measured_s"], weak["predicted_s"]) > 0.7 * at_line_rate
