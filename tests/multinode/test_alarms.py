"""The alarm of a network that loses packets, on two hosts whose switch has a port too slow for them."""

import json
import signal

import pytest

from alphazero.base.files import complete_lines
from tests.support.hosts.hosts import run
from tests.support.hosts.real_job import Job, write_hostfile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Tokens for a few packets: what comes faster is dropped, as by a switch whose buffer is full.
TOO_SLOW = ("root", "tbf", "rate", "20mbit", "burst", "6k", "limit", "9k")


def test_segments_that_are_sent_again_are_told_with_their_host(network, tmp_path, random_store):
    hosts = network(2)
    write_hostfile(tmp_path, 2)
    flags = ("--hostfile", "hostfile", "--steps", "1000000", "--filters", "32", "--log-interval", "10")
    job = Job(hosts.hosts[0], tmp_path, random_store, *flags)
    job.wait_for(r"step 20/")
    run(hosts.switch.enter("tc", "qdisc", "add", "dev", "port2", *TOO_SLOW))
    job.wait_for(r"alarm network: host1 had to send [\d,]+ of [\d,]+ TCP segments again")
    run(hosts.switch.enter("tc", "qdisc", "del", "dev", "port2", "root"))
    job.process.send_signal(signal.SIGTERM)
    job.end()
    lines = map(json.loads, complete_lines(tmp_path / "runs" / "job" / "metrics.jsonl"))
    assert "network" in [line["cause"] for line in lines if line["kind"] == "alarm"]
