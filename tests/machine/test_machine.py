"""What the launcher sees of this machine: devices through the real NVML binding, ports, routes, cores."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.base.errors import LaunchError
from alphazero.machine.machine import (
    count_cores,
    find_free_port,
    interface_towards,
    list_addresses,
    outward_address,
    port_is_free,
    visible_devices,
)
from alphazero.machine.nvml import Device
from tests.support.paths import REPOSITORY

PLAIN = tuple(Device(index, f"GPU-{index}{index}aa-bb", "NVIDIA Test") for index in range(4))
SPLIT = (
    Device(0, "GPU-00aa-bb", "NVIDIA Test", True, ("MIG-11", "MIG-22")),
    Device(1, "GPU-11aa-bb", "NVIDIA Test"),
)


def list_devices_in_new_process(files_present: bool, nvml: str, library_path: str) -> dict:
    """What list_devices gives or raises where NVML is the library in library_path."""
    program = """
import json, sys
from alphazero.machine.machine import list_devices
from alphazero.base.errors import LaunchError
try:
    print(json.dumps([[d.index, d.uuid, d.name, d.in_mig_mode, d.mig_uuids] for d in list_devices(FILES)]))
except LaunchError as error:
    print(json.dumps(str(error)))
""".replace("FILES", str(files_present))
    environment = {
        **os.environ,
        "FAKE_NVML": nvml,
        "LD_LIBRARY_PATH": library_path,
        "PYTHONPATH": str(REPOSITORY),
    }
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def test_devices_are_counted_through_nvml_with_their_mig_devices(fake_nvml: Path):
    assert list_devices_in_new_process(True, "GPU-aa,MIG-bb;GPU-cc", str(fake_nvml)) == [
        [0, "GPU-aa", "NVIDIA Test", True, ["MIG-bb"]],
        [1, "GPU-cc", "NVIDIA Test", False, []],
    ]


def test_a_device_whose_driver_does_not_answer_is_an_error_and_never_a_cpu_run(
    fake_nvml: Path, tmp_path: Path
):
    broken = list_devices_in_new_process(True, "broken", str(fake_nvml))
    assert "Driver Not Loaded" in broken
    assert "NVML lists none" in list_devices_in_new_process(True, ";", str(fake_nvml))
    if not list_devices_in_new_process(False, "", str(tmp_path)):  # this machine has no NVML of its own
        absent = list_devices_in_new_process(True, "", str(tmp_path))
        assert "NVML Shared Lib" in absent


def test_without_device_files_a_missing_or_idle_nvml_means_no_device(fake_nvml: Path):
    assert list_devices_in_new_process(False, "broken", str(fake_nvml)) == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, ("0", "1", "2", "3")),
        ("", ()),
        ("-1", ()),
        ("2", ("2",)),
        ("3, 1", ("3", "1")),
        ("GPU-22aa-bb,0", ("GPU-22aa-bb", "0")),
        ("GPU-33", ("GPU-33",)),
    ],
)
def test_cuda_visible_devices_decides_which_devices_count(setting: str | None, expected: tuple[str, ...]):
    assert visible_devices(PLAIN, setting) == expected


def test_a_machine_in_mig_mode_offers_what_cuda_can_use():
    assert visible_devices(SPLIT, None) == ("1",)
    assert visible_devices(SPLIT[:1], None) == ("MIG-11",)
    assert visible_devices(SPLIT, "MIG-22") == ("MIG-22",)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("0,4", "CUDA_VISIBLE_DEVICES=0,4: no device 4 here; expected indices below 4"),
        ("0,-1", "'-1': expected an index"),
        ("all", "'all': expected an index, GPU-<uuid> or MIG-<uuid>"),
        ("0,", "'': expected an index"),
        ("GPU-9", "'GPU-9' means 0 of the devices here; expected one"),
        ("GPU-", "'GPU-' means 4 of the devices here; expected one"),
        ("1,1", "names a device twice"),
        ("1,GPU-11", "names a device twice"),
    ],
)
def test_entries_that_cuda_would_drop_silently_are_errors(setting: str, message: str):
    with pytest.raises(LaunchError) as caught:
        visible_devices(PLAIN, setting)
    assert message in str(caught.value)


def test_two_mig_devices_are_more_than_cuda_shows_a_process():
    with pytest.raises(LaunchError, match="MIG-11,MIG-22"):
        visible_devices(SPLIT, "MIG-11,MIG-22")


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_somebody_listens_on_is_not_free(address: str):
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen()
        port = server.getsockname()[1]
        assert not port_is_free(port)
    assert port_is_free(port)


def test_a_port_taken_on_ipv6_alone_is_not_free():
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            server.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 on this machine")
        server.listen()
        assert not port_is_free(server.getsockname()[1])


def test_a_free_port_is_free():
    assert port_is_free(find_free_port())


def test_the_route_to_this_machine_leads_through_loopback():
    assert interface_towards("127.0.0.1", list_addresses()) == "lo"
    with pytest.raises(LaunchError, match=r"--master-addr no\.such\.host\.invalid"):
        interface_towards("no.such.host.invalid", list_addresses())


def test_cores_are_at_least_one_and_no_more_than_this_process_may_use():
    assert 1 <= count_cores() <= len(os.sched_getaffinity(0))


def test_the_outward_address_is_never_the_loopback_or_of_the_link_alone():
    addresses = (("lo", "127.0.0.1"), ("eth0", "fe80::5"), ("eth0", "10.77.0.5"), ("ib0", "fd00::5"))
    assert outward_address(addresses) == "10.77.0.5"
    assert outward_address(addresses, "ib0") == "fd00::5"
    assert outward_address(addresses, "lo") == ""
    assert outward_address(addresses[:2]) == ""
