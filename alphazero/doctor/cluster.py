"""The doctor on many hosts at once: each examines itself, and here the answers come together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from alphazero.cluster.launch.compare import explain
from alphazero.cluster.launch.remote import CHECKOUT, Remote, SshOptions, run_everywhere
from alphazero.cluster.plan import commands as programs
from alphazero.cluster.plan.hostfile import Host
from alphazero.doctor.examined_host import ExaminedHost, Wishes, decode


def examine_hosts(
    hosts: Sequence[Host],
    python: str,
    ssh: SshOptions,
    wishes: Wishes,
    limit_s: float,
    checkout: Path = CHECKOUT,
) -> list[ExaminedHost]:
    """All at once, each with as many ranks as it has slots; in the hosts' order."""
    remotes = [Remote(host.address, host.name, ssh=ssh) for host in hosts]
    orders = [json.dumps(wishes.with_ranks(host.slots).to_json()) + "\n" for host in hosts]
    found = []
    for answer in run_everywhere(remotes, python, ["-m", programs.DOCTOR], orders, limit_s, checkout):
        name = answer.remote.name
        host = decode(answer.output) if answer.status == 0 else None
        found.append(host or ExaminedHost(name, {}, fault=explain(answer, python, checkout, limit_s)))
    return found
