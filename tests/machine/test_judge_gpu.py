"""`alphazero health` on GPUs, through the real NVML binding and a fake library underneath."""

import subprocess
import sys
from pathlib import Path

import pytest

ONE = "gpu GPU-aa\nname NVIDIA H200\n"
TWO = ONE + "gpu GPU-bb\nname NVIDIA H200\n"

# NVML's codes, from nvml.h
NOT_SUPPORTED = "!3"
UNINITIALISED, DRIVER_NOT_LOADED, IS_LOST, VERSION_MISMATCH = 1, 9, 15, 18


def found(report: dict, severity: str) -> dict[tuple[str | None, str], object]:
    """(device, name) -> value of the findings of one severity."""
    return {
        (finding["device"], finding["name"]): finding["value"]
        for finding in report["findings"]
        if finding["severity"] == severity
    }


def the_only_fault(report: dict) -> dict:
    """The one finding that is a warning or failure."""
    faults = [finding for finding in report["findings"] if finding["severity"] in ("warn", "fail")]
    assert len(faults) == 1, faults
    assert faults[0]["advice"]
    assert "\n" not in faults[0]["advice"]
    return faults[0]


def test_a_healthy_machine_is_told_in_numbers_and_ends_with_0(gpus):
    gpus.are("driver 570.86.15\ncuda 12080\n" + TWO)
    report = gpus.report(0)
    assert report["severity"] == "ok"
    assert report["driver"] == "570.86.15"
    assert found(report, "unknown") == {}
    gpu = report["gpus"][1]
    assert (gpu["index"], gpu["uuid"], gpu["name"]) == (1, "GPU-bb", "NVIDIA H200")
    assert (gpu["temperature_c"], gpu["power_w"], gpu["power_limit_w"]) == (41, 75.5, 700.0)
    assert gpu["memory_total_bytes"] == 143771 * 2**20
    assert gpu["memory_used_bytes"] == 100 * 2**20  # 600, of which the driver reserves 500
    assert (gpu["utilisation_percent"], gpu["pcie_width"], gpu["mig_enabled"]) == (7, 16, None)
    assert list(gpu["nvlinks"].values()) == [True] * 18
    assert gpu["clock_reasons"] == ["gpu_idle"]


@pytest.mark.parametrize(
    ("lines", "status", "name", "value"),
    [
        ("ecc_volatile 1", 2, "ecc_uncorrected_volatile", 1),
        ("remap_pending 1", 2, "remap_pending", "yes"),
        ("remap_failed 1", 2, "remap_failed", "yes"),
        ("retired_single 5\nretired_double 6", 2, "retired_pages", 11),
        ("retired_pending 1", 2, "retired_pages_pending", "yes"),
        ("temperature 85", 1, "temperature_c", 85),
        ("links 111111101111111111", 2, "nvlinks", "inactive: 7"),
        ("clock_reasons 72", 1, "clock_reasons", "hardware_slowdown, hardware_thermal_slowdown"),
        ("clock_reasons 4096", 1, "clock_reasons", "0x1000"),
    ],
)
def test_a_fault_is_found_on_its_device_and_decides_the_exit_status(gpus, lines, status, name, value):
    gpus.are(TWO + lines + "\n")
    fault = the_only_fault(gpus.report(status))
    assert (fault["device"], fault["uuid"], fault["name"]) == ("gpu1", "GPU-bb", name)
    assert fault["value"] == value
    assert fault["severity"] == ("warn" if status == 1 else "fail")


@pytest.mark.parametrize(
    "lines",
    [
        "clock_reasons 1",  # idle
        "clock_reasons 4",  # software power cap
        "retired_single 10",
        "temperature 84",
        "process 1 849",
        "memory_used_mib 1349",  # of which the driver reserves 500
    ],
)
def test_what_is_below_its_threshold_or_no_fault_is_healthy(gpus, lines):
    gpus.are(TWO + lines + "\n")
    assert found(gpus.report(0), "warn") == {}


def test_counters_and_settings_are_read_and_no_fault(gpus):
    counters = "ecc 0\necc_aggregate 10\npcie_replays 480\npcie_width 8\n"
    gpus.are(ONE + counters)
    (gpu,) = gpus.report(0)["gpus"]
    assert (gpu["ecc_enabled"], gpu["ecc_uncorrected_aggregate"]) == (False, 10)
    assert (gpu["pcie_replays"], gpu["pcie_width"], gpu["pcie_width_max"]) == (480, 8, 16)
    assert gpu["slowdown_temperature_c"] == 92


def test_no_active_nvlink_on_the_whole_host_is_a_warning(gpus):
    gpus.are(ONE + "links 0000\n")
    assert the_only_fault(gpus.report(1))["name"] == "nvlinks"


@pytest.mark.parametrize("line", [f"lost {IS_LOST}", f"handle !{IS_LOST}", f"temperature !{IS_LOST}"])
def test_a_lost_device_fails_and_the_others_are_still_looked_at(gpus, line):
    gpus.are("gpu GPU-aa\n" + line + "\ngpu GPU-bb\necc_volatile 3\n")
    report = gpus.report(2)
    assert found(report, "fail") == {
        ("gpu0", "answers"): "GPU is lost",
        ("gpu1", "ecc_uncorrected_volatile"): 3,
    }
    assert report["gpus"][0]["lost"] == "GPU is lost"


def test_what_the_driver_does_not_tell_is_unknown_and_never_a_pass(gpus):
    fields = {
        "ecc": "ecc_enabled",
        "ecc_volatile": "ecc_uncorrected_volatile",
        "ecc_aggregate": "ecc_uncorrected_aggregate",
        "retired_single": "retired_pages",
        "retired_pending": "retired_pages_pending",
        "temperature": "temperature_c",
        "clock_reasons": "clock_reasons",
        "links": "nvlinks",
        "pcie_replays": "pcie_replays",
        "pcie_width": "pcie_width",
    }
    lines = "".join(f"{line} {NOT_SUPPORTED}\n" for line in (*fields, "remap_pending"))
    gpus.are(ONE + lines)
    report = gpus.report(0)
    unknown = found(report, "unknown")
    judged = set(fields.values()) - {"ecc_enabled", "ecc_uncorrected_aggregate", "pcie_replays", "pcie_width"}
    assert set(unknown) == {("gpu0", name) for name in (*judged, "remap_pending", "remap_failed")}
    assert set(unknown.values()) == {None}
    passed = {name for device, name in found(report, "ok") if device == "gpu0"}
    assert passed == {"answers", "others_memory_mib"}
    assert all(report["gpus"][0][name] is None for name in fields.values())


def test_a_foreign_process_is_named_with_its_memory_and_an_own_one_is_not(gpus):
    # A child of this test is no relative of the command it starts next.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        gpus.are(ONE + f"process {foreign.pid} 850\nmemory_used_mib 1850\n")
        fault = the_only_fault(gpus.report(1))
        foreign.communicate(b"\n")
    assert fault["name"] == "others_memory_mib"
    assert fault["value"] == 1350
    assert f"pid {foreign.pid} (" in fault["advice"]


def test_memory_that_no_listed_process_holds_is_in_use_by_others(gpus):
    gpus.are(ONE + "memory_used_mib 5500\n")
    assert the_only_fault(gpus.report(1))["value"] == 5000


def test_devices_that_cuda_visible_devices_leaves_out_are_not_judged(gpus):
    gpus.are(TWO + f"lost {IS_LOST}\n")
    assert [gpu["uuid"] for gpu in gpus.report(0, CUDA_VISIBLE_DEVICES="0")["gpus"]] == ["GPU-aa"]
    assert gpus.report(2, CUDA_VISIBLE_DEVICES="GPU-aa,1")["severity"] == "fail"


def test_a_mig_device_is_read(gpus):
    gpus.are(ONE + "mig MIG-cc\n")
    assert gpus.report(0, CUDA_VISIBLE_DEVICES="MIG-cc")["gpus"][0]["mig_enabled"] is True


@pytest.mark.parametrize(
    ("scenario", "value"),
    [
        (f"init {DRIVER_NOT_LOADED}\n" + ONE, "Driver Not Loaded"),
        (f"init {VERSION_MISMATCH}\n" + ONE, "RM has detected an NVML/RM version mismatch."),
        (f"init {UNINITIALISED}\n" + ONE, "Uninitialized"),
        ("", "0 GPUs"),
    ],
)
def test_a_driver_that_does_not_work_fails_where_a_gpu_must_be(gpus, scenario, value):
    gpus.are(scenario)
    report = gpus.report(2, "--device", "cuda")
    fault = the_only_fault(report)
    assert (fault["name"], fault["device"], fault["value"]) == ("nvml", None, value)
    assert "dmesg" in fault["advice"]
    assert report["gpus"] == []


def test_no_library_fails_where_a_gpu_must_be_and_is_a_cpu_host_elsewhere(gpus, tmp_path: Path):
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    probe = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"
    if subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("this machine has an NVML of its own")
    here = {"LD_LIBRARY_PATH": str(nothing)}
    fault = the_only_fault(gpus.report(2, "--device", "cuda", **here))
    assert "Not Found" in fault["value"]
    report = gpus.report(0, **here)
    assert found(report, "ok")[(None, "nvml")] == "no NVIDIA device"
    assert "no NVIDIA device" in gpus.health(**here).stdout


def test_a_version_mismatch_is_a_failure_even_where_no_device_shows_itself(gpus):
    gpus.are(f"init {VERSION_MISMATCH}\n")
    assert gpus.report(2)["severity"] == "fail"


def test_gpus_are_not_asked_for_on_a_cpu_job(gpus):
    gpus.are(ONE + f"lost {IS_LOST}\n")
    assert gpus.report(0, "--device", "cpu")["gpus"] == []


def test_the_table_has_a_line_a_device_and_then_the_faults(gpus):
    gpus.are(ONE + "retired_single !3\nretired_pending !3\n" + f"gpu GPU-bb\nlost {IS_LOST}\n")
    lines = gpus.health().stdout.splitlines()
    assert lines[0].endswith("not fit for training (1 failure, 2 unknown readings)")
    head = next(line for line in lines if line.startswith("device"))
    first = next(line for line in lines if line.startswith("gpu0"))
    assert first.index("NVIDIA H200") == head.index("name")
    assert first.index("0.1/140.4") == head.index("memory GiB")
    assert first.endswith("ok")
    assert any(line.startswith("fail") and "gpu1" in line and "GPU is lost" in line for line in lines)
    assert any(
        line.split()[:4] == ["unknown", "gpu0", "retired_pages,", "retired_pages_pending"] for line in lines
    )
