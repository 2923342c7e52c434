"""Thresholds: the shipped file is whole, a user's file changes some, its mistakes are named by line."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError
from alphazero.machine.findings import SECTIONS, SHIPPED, load_thresholds


def test_the_shipped_thresholds_are_those_of_the_design():
    gpu = load_thresholds().gpu
    assert gpu.ecc_uncorrected_volatile_fail == 1
    assert gpu.retired_pages_fail == 11
    assert gpu.temperature_c_warn == 85
    assert gpu.others_memory_mib_warn == 850
    assert gpu.harmless_clock_reasons == ("gpu_idle", "software_power_cap")
    assert set(gpu.xids_fail) == {*(48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120)}


def test_each_shipped_threshold_has_a_comment_on_its_source():
    lines = SHIPPED.read_text().splitlines()
    documented = False
    for line in lines:
        if line.startswith("#"):
            documented = True
        elif not line or line.startswith("["):
            documented = False
        else:
            assert documented, line
    keys = set(re.findall(r"^(\w+) =", SHIPPED.read_text(), re.MULTILINE))
    assert keys == {entry.name for section in SECTIONS.values() for entry in fields(section)}


def test_a_file_changes_what_it_names_and_leaves_the_rest(tmp_path: Path):
    path = tmp_path / "own.toml"
    path.write_text("[gpu]\ntemperature_c_warn = 70\n[collective]\nstage_timeout_s = 1\n")
    own, shipped = load_thresholds(path), load_thresholds()
    assert own.gpu.temperature_c_warn == 70
    assert own.collective.stage_timeout_s == 1.0
    assert own.gpu.xids_fail == shipped.gpu.xids_fail
    assert own.host == shipped.host


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "[gpu]\n\ntemperature = 3\n",
            3,
            "'temperature' = 3: no such threshold; did you mean temperature_c_warn? Expected one of ecc_unc",
        ),
        (
            "[collective]\nstage_timeout_s = 2\n[gpus]\n",
            3,
            "'gpus': no such section; did you mean [gpu]? Expected [gpu], [host]",
        ),
        ("interval_s = 3\n", 1, "'interval_s': no such section"),
        ("[host]\nload_per_core_warn = 1\n[collective]\nload_per_core_warn = 1\n", 4, "no such threshold"),
        ('[gpu]\ntemperature_c_warn = "hot"\n', 2, "temperature_c_warn: 'hot': expected a whole number"),
        ("[gpu]\ntemperature_c_warn = 84.5\n", 2, "84.5: expected a whole number of at least 0"),
        ("[host]\nwants_synchronised_clock = 1\n", 2, "clock: 1: expected true or false"),
        ("[gpu]\ntemperature_c_warn = true\n", 2, "True: expected a whole number"),
        ("[collective]\nstage_timeout_s = -1\n", 2, "-1: expected a number of at least 0"),
        ("[collective]\nstage_timeout_s = inf\n", 2, "inf: expected a number"),
        ("[gpu]\nxids_fail = [48, true]\n", 2, "xids_fail: True: expected a whole number of at least 0"),
        ("[gpu]\nxids_fail = 48\n", 2, "48: expected a list of whole numbers"),
        ("[gpu]\nharmless_clock_reasons = 1\n", 2, "1: expected a list of texts"),
    ],
)
def test_a_mistake_names_file_line_and_what_was_wanted(tmp_path: Path, text: str, line: int, message: str):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_thresholds(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_a_file_that_is_not_toml_or_not_there_is_one_line(tmp_path: Path):
    path = tmp_path / "own.toml"
    with pytest.raises(ConfigError, match=r"own\.toml: cannot be read: No such file"):
        load_thresholds(path)
    path.write_text("[gpu\n")
    with pytest.raises(ConfigError, match=r"own\.toml: .*line 1"):
        load_thresholds(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="byte 0 is not UTF-8"):
        load_thresholds(path)
