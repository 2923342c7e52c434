"""`alphazero health` as typed on a machine without a GPU."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from alphazero.cli.main import main
from alphazero.machine.memory import HostReading

GOOD = HostReading(
    memory_total=65536 << 20,
    memory_available=60000 << 20,
    swap_total=0,
    swap_used=0,
    directory="/runs",
    disk_free=500_000 << 20,
    shm_free=None,
    open_files=65536,
    load=1.0,
    cores=16,
)


@pytest.mark.parametrize(
    ("free_mib", "status", "verdict"),
    [(1000, 2, ": not fit for training (1"), (10000, 0, ": fit for training (1")],
)
def test_the_host_alone_is_told_and_judged(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free_mib: int,
    status: int,
    verdict: str,
):
    reading = replace(GOOD, disk_free=free_mib << 20)
    monkeypatch.setattr("alphazero.machine.health.read_host", lambda directory: reading)
    flags = ["health", "--device", "cpu"]
    assert main(flags) == status
    table = capsys.readouterr().out.splitlines()
    assert ["ok", "host", "nvml"] in [line.split()[:3] for line in table]
    assert verdict in table[0]
    severity = "fail" if status else "warn"
    fault = next(line for line in table if line.startswith(severity))
    assert fault.split()[:4] == [severity, "host", "disk_free_mib", str(free_mib)]
    assert "/runs" in fault
    assert main([*flags, "--strict", "--json"]) == (status or 1)
    report = json.loads(capsys.readouterr().out)
    assert (report["format"], report["version"], report["gpus"]) == ("alphazero-health", 2, [])
    assert report["exit_status"] == (status or 1)
    assert report["machine"]["disk_free"] == free_mib << 20
    assert [one["name"] for one in report["findings"] if one["severity"] == severity] == ["disk_free_mib"]


def test_health_needs_no_torch(tmp_path: Path):
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from alphazero.cli.main import main\n"
        "sys.exit(main(['health', '--device', 'cpu', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode in (0, 1, 2)
    assert json.loads(done.stdout)["exit_status"] == done.returncode
