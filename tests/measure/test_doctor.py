"""What the doctor makes of its measurements: hours, energy, a page, JSON; its readings of disk and energy."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from alphazero.base.records import from_output, to_json
from alphazero.cli.training.doctor import duration, page, rate
from alphazero.machine.environment import environment
from alphazero.machine.nvml import Device
from alphazero.measure import doctor
from alphazero.measure.doctor import (
    MARK,
    DiskSpeed,
    Examination,
    ExaminedHost,
    PresetSpeed,
    cpu_peak,
    estimates,
    gpu_peak,
    measure_disk,
    why_left_out,
)
from alphazero.measure.short_run import EnergyCounters
from alphazero.settings.load import preset_names
from tests.support.paths import REPOSITORY

CHESS = PresetSpeed(
    **{"preset": "chess_cpu", "game": "chess", "network": "6x64", "mode": "supervised", "ranks": 2},
    **{"device": "cpu", "precision": "fp32", "batch_size": 256, "trains": 500.0, "memory_bytes": 3 << 29},
)
FOUR = PresetSpeed("connect4", "connect4", "5x64", trains=2048.0, plays=100.0, batch_size=512)
BROKEN = PresetSpeed("othello", fault="exit status 1: no space left")
HOST = ExaminedHost("host1", environment(), DiskSpeed("/runs", 2**30, 2**31), "", (CHESS, BROKEN))
WITH_POWER = PresetSpeed(**{**vars(CHESS), "watts": {"gpu0": 100.0, "processor 0": 44.0}})


def test_a_million_positions_at_five_hundred_a_second():
    hours = WITH_POWER.hours(1_000_000)
    assert hours == pytest.approx(2000 / 3600)
    assert WITH_POWER.kwh(hours) == pytest.approx(0.08)
    assert FOUR.kwh(hours) is None
    assert BROKEN.hours(1) is None


def test_the_demo_plays_what_it_trains_on_as_often_as_its_preset_reuses_it():
    (demo,) = estimates([FOUR])
    (generations,) = re.findall(r"--generations (\d+) --run-name demo", (REPOSITORY / "Makefile").read_text())
    trained = int(generations) * 100 * 512
    assert demo.hours == pytest.approx((trained / 2048 + trained / 4 / 100) / 3600)
    assert f"make demo: {generations} generations" in demo.job


def test_a_hundred_million_positions_of_chess_are_estimated_for_every_preset_of_chess():
    chess, demo = estimates([WITH_POWER, PresetSpeed("connect4", "connect4", trains=1.0)])
    assert chess.job == "100 million positions of chess"
    assert chess.hours == pytest.approx(2e5 / 3600)
    assert chess.kwh == pytest.approx(8.0)
    assert demo.hours is None


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (0.01, "36 seconds"),
        (1 / 60, "1.0 minutes"),
        (0.5, "30 minutes"),
        (1.9, "114 minutes"),
        (3.25, "3.2 hours"),
        (47.0, "47 hours"),
        (100.0, "4.2 days"),
        (24 * 3650.0, "10 years"),
        (None, "not measured"),
    ],
)
def test_durations_are_in_the_unit_that_people_would_use(hours, expected):
    assert duration(hours) == expected


def test_rates_keep_three_digits():
    assert [rate(value) for value in (1.4371, 18.06, 723.2, 12345.6)] == ["1.44", "18.1", "723", "12,346"]


def test_a_host_travels_whole():
    line = MARK + to_json(HOST)
    assert from_output(ExaminedHost, MARK, f"Welcome!\n{line}\nbye\n") == HOST
    assert from_output(ExaminedHost, MARK, "Welcome!\n") is None
    assert from_output(ExaminedHost, MARK, line[:-5]) is None


def test_the_page_has_the_environment_and_the_table():
    text = page(HOST)
    assert "/runs: writes 1,024 MiB/s, reads 2,048 MiB/s" in text
    row = next(line for line in text.splitlines() if line.startswith("chess_cpu"))
    assert row.split("  ")[0] == "chess_cpu"
    for cell in ("chess 6x64", "2 x cpu", "fp32", "500 positions/s", "1.5 GiB", "33 minutes"):
        assert cell in row
    assert "100 million positions of chess, chess_cpu: about 2.3 days" in text
    assert "energy: not measured" in text
    assert "othello: could not be measured: exit status 1: no space left" in text


def test_the_share_of_the_peak_is_that_of_all_devices() -> None:
    """500 positions/s of 2e8 operations are 1e11 of 4e11."""
    speed = dataclasses.replace(CHESS, step_flop=200_000_000, peak=4e11)
    assert speed.share_of_peak == 0.25
    assert CHESS.share_of_peak is None
    text = page(dataclasses.replace(HOST, presets=(speed,)))
    assert "25%" in next(line for line in text.splitlines() if line.startswith("chess_cpu"))


def test_presets_that_were_left_out_are_named() -> None:
    host = dataclasses.replace(HOST, left_out=("chess_1b: left out: too large",))
    assert page(host).splitlines()[-1] == "chess_1b: left out: too large"
    assert host.to_json()["left_out"] == ("chess_1b: left out: too large",)


def test_what_no_cpu_steps_in_seconds_and_what_no_memory_holds_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpu = Examination((), "runs", "cpu", 1.0)
    large = {name for name in preset_names() if why_left_out(name, on_cpu)}
    assert large == {"chess_1b", "chess_bt3", "chess_bt4"}
    assert "too many for a CPU" in why_left_out("chess_bt4", on_cpu)
    monkeypatch.setattr(doctor, "visible_gpus", lambda device: tuple("01234567"))
    monkeypatch.setattr(doctor, "_smallest_gpu_bytes", lambda: 80 << 30)
    assert [name for name in preset_names() if why_left_out(name, on_cpu)] == []  # eight GPUs of 80 GiB
    assert "on each GPU" in why_left_out("chess_1b", dataclasses.replace(on_cpu, ranks=1))
    monkeypatch.setattr(doctor, "_smallest_gpu_bytes", lambda: 6 << 30)
    assert "6,442,450,944 here" in why_left_out("chess_1b", on_cpu)


def test_a_cpu_has_a_peak_and_a_gpu_the_one_of_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1e8 < cpu_peak("fp32") < 1e14
    for name, peak in (("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA T4", 0.0)):
        devices = (Device(0, "GPU-aa", name),)
        monkeypatch.setattr(doctor, "list_devices", lambda files_present, found=devices: found)
        assert gpu_peak("bf16") == peak
        assert gpu_peak("fp32") == 0.0


def test_energy_is_shown_where_it_was_measured():
    text = page(ExaminedHost("host1", environment(), None, "/x: cannot be written", (WITH_POWER,)))
    assert "0.08 kWh" in text
    assert "energy: 144 W in chess_cpu (gpu0, processor 0, while training" in text
    assert "/x: cannot be written" in text


def test_a_host_without_an_answer_is_one_line():
    text = page(ExaminedHost("host2", {}, fault="no answer; expected a host that is up"))
    assert text == "host2\n\ncould not be examined: no answer; expected a host that is up"


def test_json_has_the_hours_and_the_estimates():
    found = json.loads(json.dumps(HOST.to_json()))
    assert found["presets"][0]["hours_per_million"] == 1e6 / 500 / 3600
    assert found["presets"][0]["kwh_per_million"] is None
    assert found["presets"][1]["fault"]
    assert found["estimates"][0]["preset"] == "chess_cpu"


def package(root: Path, name: str, microjoules: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "energy_uj").write_text(microjoules)


def test_whole_processors_are_read_and_what_cannot_be_read_is_left_out(tmp_path):
    package(tmp_path, "intel-rapl:0", "5000000\n")
    package(tmp_path, "intel-rapl:1", "7000000\n")
    package(tmp_path, "intel-rapl:0:0", "1000000\n")  # its cores, which are in it
    package(tmp_path, "intel-rapl:2", "nothing\n")
    counters = EnergyCounters.read(tmp_path).joules
    assert {name: joules for name, joules in counters.items() if name.startswith("processor")} == {
        "processor 0": 5.0,
        "processor 1": 7.0,
    }
    assert not any(name.startswith("processor") for name in EnergyCounters.read(tmp_path / "none").joules)


def test_power_is_the_difference_by_time_and_a_counter_that_was_reset_has_none():
    before = EnergyCounters(10.0, {"processor 0": 100.0, "processor 1": 900.0, "gpu0": 1.0})
    after = EnergyCounters(14.0, {"processor 0": 300.0, "processor 1": 5.0})
    assert before.watts_until(after) == {"processor 0": 50.0}


def test_the_energy_of_gpus_is_read_from_nvml(gpus, monkeypatch, tmp_path):
    gpus.are("gpu GPU-aa\n")
    assert EnergyCounters.read(tmp_path).joules == {}  # this library does not count it, or is not there


def test_a_disk_is_measured_above_a_directory_that_is_not_there_yet_and_nothing_is_left(tmp_path):
    speed = measure_disk(tmp_path / "runs" / "later", size_bytes=8 << 20)
    assert speed.directory == str(tmp_path)
    assert speed.write > 0
    assert speed.read > 0
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_may_not_be_written_is_an_error_of_the_system():
    with pytest.raises(OSError, match=r"."):
        measure_disk(Path("/proc/1"))
