"""The doctor on the hosts of a hostfile: a page per host, and a line for one that is not there."""

import json
import subprocess
import sys

import pytest

from tests.support.jobs.jobs import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_host_examines_itself_with_its_slots(network, tmp_path):
    hosts = network(2)
    (tmp_path / "hostfile").write_text("host1 slots=1\nhost2 slots=2\nhost9 slots=1\n")
    argv = [
        sys.executable,
        "-m",
        "alphazero",
        "doctor",
        "--hostfile",
        "hostfile",
        "--json",
        "--device",
        "cpu",
    ]
    process = hosts.hosts[0].popen(
        *argv,
        *("--presets", "othello", "--seconds", "1"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 2, errors
    first, second, missing = json.loads(output)["hosts"]
    assert (first["host"], first["presets"][0]["ranks"]) == ("host1", 1)
    assert (second["host"], second["presets"][0]["ranks"]) == ("host2", 2)
    assert second["presets"][0]["trains"] > 0
    assert second["environment"]["host"] == "host2"
    assert (missing["host"], missing["presets"]) == ("host9", [])
    assert "its name is not known here" in missing["fault"]
