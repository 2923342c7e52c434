"""`alphazero health` as typed on a machine without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.cli.main import main

NO_DISK = "[host]\ndisk_free_mib_fail = 999999999999\n"


def test_the_host_alone_is_told_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    thresholds = tmp_path / "own.toml"
    thresholds.write_text(NO_DISK)
    flags = ["health", "--device", "cpu", "--thresholds", str(thresholds), "--runs-dir", str(tmp_path)]
    assert main(flags) == 2
    table = capsys.readouterr().out
    assert ["ok", "host", "nvml"] in [line.split()[:3] for line in table.splitlines()]
    assert ": not fit for training (1 failure" in table.splitlines()[0]
    fault = next(line for line in table.splitlines() if line.startswith("fail"))
    assert fault.split()[:3] == ["fail", "host", "disk_free_mib"]
    assert f"make room in {tmp_path}" in fault
    assert main([*flags, "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["format"], report["version"], report["gpus"]) == ("alphazero-health", 1, [])
    assert report["machine"]["directory"] == str(tmp_path)
    fails = [finding["name"] for finding in report["findings"] if finding["severity"] == "fail"]
    assert fails == ["disk_free_mib"]


def test_warnings_fail_a_machine_only_where_they_shall(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    thresholds = tmp_path / "own.toml"
    quiet = "load_per_core_warn = 9999\nwants_synchronised_clock = false\nswap_used_percent_warn = 101\n"
    thresholds.write_text(f"[host]\ndisk_free_mib_warn = 999999999999\ndisk_free_mib_fail = 0\n{quiet}")
    flags = ["health", "--device", "cpu", "--thresholds", str(thresholds), "--runs-dir", str(tmp_path)]
    assert main(flags) == 0
    table = capsys.readouterr().out
    assert ": fit for training (1 warning" in table.splitlines()[0]
    assert "(limit 999999999999)" in next(line for line in table.splitlines() if line.startswith("warn"))
    assert main([*flags, "--strict"]) == 1
    capsys.readouterr()
    assert main([*flags, "--strict", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["exit_status"] == 1


def test_a_mistake_in_the_thresholds_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    thresholds = tmp_path / "own.toml"
    thresholds.write_text("[gpu]\nheat = 3\n")
    assert main(["health", "--thresholds", str(thresholds)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"alphazero: error: {thresholds}:2: 'heat' = 3: no such threshold")
    assert error.count("\n") == 1


def test_health_needs_no_torch(tmp_path: Path):
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from alphazero.cli.main import main\n"
        "sys.exit(main(['health', '--device', 'cpu', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode in (0, 1, 2)
    assert json.loads(done.stdout)["exit_status"] == done.returncode
