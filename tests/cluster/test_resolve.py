"""From flags and machine to a plan: every combination that works, every contradiction named."""

from dataclasses import replace
from pathlib import Path

import pytest

from alphazero.cluster.health import Device, Machine
from alphazero.cluster.resolve import HandLaunch, LaunchPlan, LaunchRequest, resolve
from alphazero.errors import LaunchError

ADDRESSES = (("lo", "127.0.0.1"), ("eth0", "10.0.0.5"))
CPU = Machine("box", (), 4, ADDRESSES, has_infiniband=False)
GPUS = replace(CPU, devices=tuple(Device(index, f"GPU-{index}", "NVIDIA Test") for index in range(4)))


def plan(request: LaunchRequest, machine: Machine = CPU, taken: tuple[int, ...] = (), **environment: str):
    """resolve() where all ports but `taken` are free."""
    return resolve(request, machine, environment, lambda port: port not in taken, lambda: 40000)


def test_no_flags_on_a_machine_without_gpus_is_one_cpu_rank_said_loudly():
    found = plan(LaunchRequest())
    notice = (
        "NO NVIDIA DEVICE ON THIS MACHINE: training on the CPU with 1 CPU rank "
        "(more with --gpus N; 4 cores here)"
    )
    assert found == LaunchPlan(1, 0, 1, "cpu", (), "127.0.0.1", 12355, "torchrun", (notice,))


def test_no_flags_on_a_machine_with_gpus_is_a_rank_for_each():
    found = plan(LaunchRequest(), GPUS)
    assert found == LaunchPlan(1, 0, 4, "cuda", ("0", "1", "2", "3"), "127.0.0.1", 12355, "torchrun")
    assert plan(LaunchRequest(gpus=-1), GPUS) == found


def test_gpus_n_takes_the_first_n_visible_devices():
    found = plan(LaunchRequest(gpus=2), GPUS, CUDA_VISIBLE_DEVICES="3,1,0")
    assert (found.num_processes, found.visible) == (2, ("3", "1"))


@pytest.mark.parametrize(("gpus", "processes"), [(None, 1), (-1, 1), (1, 1), (8, 8)])
def test_without_gpus_the_number_means_cpu_ranks(gpus: int | None, processes: int):
    assert plan(LaunchRequest(gpus=gpus)).num_processes == processes


def test_the_cpu_can_be_asked_for_and_hidden_devices_are_respected():
    asked = plan(LaunchRequest(device="cpu", gpus=2), GPUS)
    assert (asked.device, asked.num_processes, asked.visible) == ("cpu", 2, ())
    assert asked.notices[0].startswith("--device cpu: training on the CPU with 2 CPU ranks (--gpus 2;")
    hidden = plan(LaunchRequest(), GPUS, CUDA_VISIBLE_DEVICES="")
    assert hidden.device == "cpu"
    assert hidden.notices[0] == "CUDA_VISIBLE_DEVICES= hides all NVIDIA devices"


def test_by_hand_each_node_has_its_rank_and_the_same_master():
    request = LaunchRequest(gpus=8, nodes=2, node_rank=1, master_addr="192.168.1.100")
    found = plan(request, taken=(12355,))  # only the master's machine must have the port free
    assert (found.num_nodes, found.node_rank, found.num_processes) == (2, 1, 8)
    assert (found.master_addr, found.master_port) == ("192.168.1.100", 12355)


def test_a_taken_default_port_is_replaced_and_said_on_one_machine():
    found = plan(LaunchRequest(), taken=(12355,))
    assert found.master_port == 40000
    assert "port 12355 is in use here: taking 40000" in found.notices


@pytest.mark.parametrize(
    ("request_", "machine", "message"),
    [
        (LaunchRequest(gpus=8), GPUS, "--gpus 8: this machine has 4 NVIDIA devices; wanted at most as many"),
        (LaunchRequest(gpus=0), CPU, "--gpus 0: wanted a number of processes from 1, or -1"),
        (LaunchRequest(gpus=-2), CPU, "--gpus -2: wanted a number of processes from 1, or -1"),
        (LaunchRequest(device="cuda"), CPU, "--device cuda: wanted an NVIDIA device, there is none on box"),
        (LaunchRequest(nodes=0), CPU, "--nodes 0: wanted at least 1"),
        (LaunchRequest(nodes=2), CPU, "--nodes 2: wanted --node-rank beside it, 0 to 1"),
        (LaunchRequest(nodes=2, node_rank=0), CPU, "--nodes 2: wanted --master-addr beside it"),
        (LaunchRequest(node_rank=1), CPU, "--node-rank 1: wanted 0 to 0 (--nodes 1)"),
        (LaunchRequest(nodes=2, node_rank=2, master_addr="a"), CPU, "--node-rank 2: wanted 0 to 1"),
        (LaunchRequest(nodes=2, node_rank=-1, master_addr="a"), CPU, "--node-rank -1: wanted 0 to 1"),
        (LaunchRequest(master_port=0), CPU, "--master-port 0: wanted 1 to 65535"),
        (LaunchRequest(master_port=65536), CPU, "--master-port 65536: wanted 1 to 65535"),
        (
            LaunchRequest(nodes=2, node_rank=0, master_addr="a", launcher="deepspeed"),
            CPU,
            "--launcher deepspeed: starts one machine only",
        ),
    ],
)
def test_what_cannot_be_is_an_error(request_: LaunchRequest, machine: Machine, message: str):
    with pytest.raises(LaunchError) as caught:
        plan(request_, machine)
    assert str(caught.value).startswith(message)


def test_more_gpus_than_cuda_visible_devices_names_it():
    with pytest.raises(LaunchError, match=r"has 2 NVIDIA devices \(CUDA_VISIBLE_DEVICES=0,1\)"):
        plan(LaunchRequest(gpus=4), GPUS, CUDA_VISIBLE_DEVICES="0,1")


def test_a_taken_port_that_was_asked_for_is_an_error_with_another_one():
    with pytest.raises(LaunchError, match=r"--master-port 5000: is in use here .*; 40000 is free"):
        plan(LaunchRequest(master_port=5000), taken=(5000,))
    by_hand = LaunchRequest(nodes=2, node_rank=0, master_addr="10.0.0.5")
    with pytest.raises(LaunchError, match="give --master-port 40000 on every node"):
        plan(by_hand, taken=(12355,))


@pytest.fixture
def hostfile(tmp_path: Path):
    """Writes a hostfile, gives its path."""

    def write(text: str) -> Path:
        path = tmp_path / "hostfile"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "BOX", "10.0.0.5", "me@localhost"])
def test_a_hostfile_that_names_this_machine_alone_runs_here_with_its_slots(hostfile, name: str):
    found = plan(LaunchRequest(hostfile=hostfile(f"{name} slots=2\n")))
    assert (found.num_nodes, found.num_processes) == (1, 2)


def test_a_hostfile_with_other_hosts_is_for_hands(hostfile):
    two = plan(LaunchRequest(hostfile=hostfile("localhost slots=2\nother slots=4\n"), master_port=5000))
    assert isinstance(two, HandLaunch)
    assert [(host.name, host.slots) for host in two.hosts] == [("localhost", 2), ("other", 4)]
    assert two.master_port == 5000
    assert isinstance(plan(LaunchRequest(hostfile=hostfile("other slots=4\n"))), HandLaunch)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"gpus": 4}, "--gpus 4 contradicts slots=2 of --hostfile"),
        ({"nodes": 1}, "--nodes 1 contradicts --hostfile"),
        ({"node_rank": 0}, "--node-rank 0 contradicts --hostfile"),
        ({"master_addr": "10.0.0.5"}, "--master-addr 10.0.0.5 contradicts --hostfile"),
    ],
)
def test_flags_that_contradict_the_hostfile_are_errors_that_name_both(hostfile, extra: dict, message: str):
    with pytest.raises(LaunchError) as caught:
        plan(LaunchRequest(hostfile=hostfile("localhost slots=2\n"), **extra))
    assert str(caught.value).startswith(message)
    assert plan(LaunchRequest(hostfile=hostfile("localhost slots=2\n"), gpus=2)).num_processes == 2


def test_more_slots_than_gpus_is_an_error(hostfile):
    with pytest.raises(LaunchError, match="slots=8: this machine has 4 NVIDIA devices"):
        plan(LaunchRequest(hostfile=hostfile("localhost slots=8\n")), GPUS)
