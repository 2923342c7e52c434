"""Energy by counters and the speed of a disk."""

from pathlib import Path

import pytest

from alphazero.doctor.disk_speed import measure_disk
from alphazero.doctor.energy import Counters, read_counters, watts_between


def package(root: Path, name: str, microjoules: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "energy_uj").write_text(microjoules)


def test_whole_processors_are_read_and_what_cannot_be_read_is_left_out(tmp_path):
    package(tmp_path, "intel-rapl:0", "5000000\n")
    package(tmp_path, "intel-rapl:1", "7000000\n")
    package(tmp_path, "intel-rapl:0:0", "1000000\n")  # its cores, which are in it
    package(tmp_path, "intel-rapl:2", "nothing\n")
    counters = read_counters(tmp_path).joules
    assert {name: joules for name, joules in counters.items() if name.startswith("processor")} == {
        "processor 0": 5.0,
        "processor 1": 7.0,
    }
    assert not any(name.startswith("processor") for name in read_counters(tmp_path / "none").joules)


def test_power_is_the_difference_by_time_and_a_counter_that_began_anew_tells_none():
    before = Counters(10.0, {"processor 0": 100.0, "processor 1": 900.0, "gpu0": 1.0})
    after = Counters(14.0, {"processor 0": 300.0, "processor 1": 5.0})
    assert watts_between(before, after) == {"processor 0": 50.0}


def test_the_energy_of_gpus_is_asked_of_nvml(gpus, monkeypatch, tmp_path):
    gpus.are("gpu GPU-aa\n")
    assert read_counters(tmp_path).joules == {}  # this library does not count it, or is not there


def test_a_disk_is_measured_above_a_directory_that_is_not_there_yet_and_nothing_is_left(tmp_path):
    speed = measure_disk(tmp_path / "runs" / "later", size_bytes=8 << 20)
    assert speed.directory == str(tmp_path)
    assert speed.write > 0
    assert speed.read > 0
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_may_not_be_written_is_an_error_of_the_system():
    with pytest.raises(OSError, match=r"."):
        measure_disk(Path("/proc/1"))
