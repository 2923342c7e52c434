"""Command lines as typed by hand: arguments, environment, and their printed form."""

import base64
import json
import shlex
from dataclasses import replace

import pytest

from alphazero.launch.plan.commands import (
    actor_commands,
    build_command,
    choose_environment,
)
from alphazero.launch.plan.launch_plan import HostPlan, LaunchPlan, Remote
from alphazero.launch.plan.programs import DEEPSPEED, TORCHRUN, words_of
from alphazero.machine.machine import Machine

MACHINE = Machine("box", (), 8, (), has_infiniband=False)
HOST = HostPlan(Remote("box"), "127.0.0.1", 2, machine=MACHINE)
CPU = LaunchPlan((HOST,), "cpu", "127.0.0.1", 12355)
GPU = LaunchPlan((replace(HOST, devices=("2", "3")),), "cuda", "127.0.0.1", 12355)
TRAINER = ("/repo/train_distributed.py",)


def two(plan: LaunchPlan, node_rank: int = 0, master_addr: str = "10.0.0.5", **changes) -> LaunchPlan:
    """The plan on two hosts alike, with changes to each of them."""
    host = replace(plan.hosts[0], **changes)
    return replace(plan, hosts=(host, host), node_rank=node_rank, master_addr=master_addr)


def one(plan: LaunchPlan, **changes) -> LaunchPlan:
    """The plan with changes to its host."""
    return replace(plan, hosts=(replace(plan.hosts[0], **changes),))


def build(plan: LaunchPlan, *arguments: str, **environment: str):
    """build_command with the trainer of a checkout."""
    return build_command(plan, plan.node_rank or 0, environment, "/venv/bin/python", (*TRAINER, *arguments))


def variables(command) -> dict[str, str]:
    """What the command adds to the environment."""
    return {variable.name: variable.value for variable in command.variables}


def test_torchrun_by_hand_has_the_arguments_of_the_manual():
    plan = two(CPU, 1, "192.168.1.100", num_ranks=8)
    assert build(plan, "--batch-size", "2048").argv == (
        "/venv/bin/python",
        *words_of(TORCHRUN),
        "--nproc_per_node=8",
        "--nnodes=2",
        "--node_rank=1",
        "--master_addr=192.168.1.100",
        "--master_port=12355",
        "--start_timeout=1800",
        "--silence_timeout=10",
        "/repo/train_distributed.py",
        "--batch-size",
        "2048",
    )


def test_deepspeed_on_one_machine_is_told_of_its_ranks_and_reads_no_hostfile():
    command = build(replace(CPU, launcher="deepspeed"), "--epochs", "1")
    assert command.argv[1:4] == words_of(DEEPSPEED)
    world, *rest = (word.partition("=")[2] for word in command.argv[4:8])
    assert json.loads(base64.urlsafe_b64decode(world)) == {"node0": ["0", "1"]}
    assert rest == ["0", "127.0.0.1", "12355"]
    assert command.argv[8:] == ("--no_local_rank", "/repo/train_distributed.py", "--epochs", "1")
    assert variables(command)["DS_ACCELERATOR"] == "cpu"


def test_the_environment_of_cpu_ranks_on_one_node():
    assert variables(build(CPU)) == {
        "OMP_NUM_THREADS": "4",
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    assert variables(build(one(CPU, num_ranks=16)))["OMP_NUM_THREADS"] == "1"


def test_threads_that_the_user_set_reach_the_ranks_as_such():
    assert "ALPHAZERO_THREADS" not in variables(build(CPU, ALPHAZERO_THREADS="9"))
    assert variables(build(CPU, OMP_NUM_THREADS="2")) == {
        "ALPHAZERO_THREADS": "2",
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def test_one_machine_stays_on_the_loopback():
    assert variables(build(GPU))["GLOO_SOCKET_IFNAME"] == "lo"
    assert variables(build(GPU))["NCCL_SOCKET_IFNAME"] == "lo"


def test_the_environment_of_gpus_on_several_nodes():
    plan = two(GPU, interface="eth0")
    assert variables(build(plan)) == {
        "OMP_NUM_THREADS": "4",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_IB_DISABLE": "1",
    }
    with_infiniband = build(two(plan, machine=replace(MACHINE, has_infiniband=True)))
    assert "NCCL_IB_DISABLE" not in variables(with_infiniband)
    assert "GLOO_SOCKET_IFNAME" not in variables(build(two(GPU)))


def test_ranks_see_the_devices_of_the_job_alone_in_the_order_the_user_gave():
    assert variables(build(GPU, CUDA_VISIBLE_DEVICES="2,3,0"))["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_DEVICE_ORDER" not in variables(build(GPU, CUDA_VISIBLE_DEVICES="2,3,0"))
    assert "CUDA_VISIBLE_DEVICES" not in variables(build(GPU, CUDA_VISIBLE_DEVICES="2,3"))


def test_a_weight_reaches_the_ranks_of_its_host_alone_and_beats_a_leftover():
    weighted = build(one(CPU, weight=0.5), ALPHAZERO_HOST_WEIGHT="3")
    assert variables(weighted)["ALPHAZERO_HOST_WEIGHT"] == "0.5"
    assert "ALPHAZERO_HOST_WEIGHT" not in variables(build(CPU))


def test_the_interface_a_user_chose_says_so():
    chosen = choose_environment(replace(two(CPU, interface="eth0"), interface="ib0"), 0, {})
    assert [variable.reason for variable in chosen if variable.value == "ib0"] == ["--interface"]
    by_route = choose_environment(two(CPU, interface="ib0"), 0, {})
    assert [variable.reason for variable in by_route if variable.value == "ib0"] == ["the route to 10.0.0.5"]


def test_torchrun_takes_the_arguments():
    """torchrun's own parser reads what we build."""
    run = pytest.importorskip("torch.distributed.run")
    torchrun = pytest.importorskip("alphazero.launch.node.torchrun")
    built = build(two(CPU, 1), "--steps", "3").argv[4:]
    read = torchrun.read_arguments(built)
    assert read.job == ["/repo/train_distributed.py", "--steps", "3"]
    static = run.parse_args(torchrun.for_torchrun(read))
    assert (static.nnodes, static.node_rank, static.rdzv_backend) == ("2", 1, "static")


def test_deepspeed_on_several_nodes_runs_its_part_of_a_node_with_that_node_s_devices():
    plan = replace(two(GPU, 1, devices=("3", "GPU-aa")), launcher="deepspeed")
    command = build(plan, "--epochs", "1")
    assert command.argv[1:4] == words_of(DEEPSPEED)
    world, *rest = (word.partition("=")[2] for word in command.argv[4:8])
    assert json.loads(base64.urlsafe_b64decode(world)) == {"node0": ["0", "1"], "node1": ["3", "GPU-aa"]}
    assert rest == ["1", "10.0.0.5", "12355"]
    assert command.argv[8:] == ("--no_local_rank", "/repo/train_distributed.py", "--epochs", "1")


def test_what_the_user_has_set_stays():
    plan = two(GPU, interface="eth0")
    own = {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "OMP_NUM_THREADS": "7",
        "NCCL_SOCKET_IFNAME": "ib0",
        "GLOO_SOCKET_IFNAME": "ib0",
        "NCCL_IB_DISABLE": "0",
    }
    command = build(plan, **own)
    assert variables(command) == {"ALPHAZERO_THREADS": "7"}
    assert command.environment(own) == own | variables(command)


def test_ranks_of_an_outer_launcher_do_not_reach_ours():
    outer = {"RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "elsewhere", "HOME": "/home/me"}
    outer |= {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "1:4"}
    command = build(CPU, **outer)
    environment = command.environment(outer)
    assert environment["HOME"] == "/home/me"
    assert not {"RANK", "LOCAL_RANK", "MASTER_ADDR", "PET_RDZV_BACKEND", "PET_NNODES"} & set(environment)
    assert {"RANK", "LOCAL_RANK", "MASTER_ADDR"} <= set(shlex.split(command.shown()))


def test_the_printed_line_is_the_command_for_a_shell_whatever_is_in_it():
    hostile = ["--run-name", "a b; rm -rf $HOME", "--data", "it's *.pgn", ""]
    command = build(CPU, *hostile)
    words = shlex.split(command.shown())
    assert words[0] == "env"
    assert words[1:4] == ["OMP_NUM_THREADS=4", "DS_ACCELERATOR=cpu", "GLOO_SOCKET_IFNAME=lo"]
    assert tuple(words[4:]) == command.argv
    assert "\n" not in command.shown()


def test_actors_share_the_cores_of_a_machine_without_gpus_with_its_ranks():
    plan = one(CPU, players=("", ""))
    assert variables(build(plan))["OMP_NUM_THREADS"] == "2"
    words = ("selfplay", "--for", "/runs/x")
    commands = actor_commands(plan.own, {"RANK": "3"}, "/venv/bin/python", words)
    for command in commands:
        assert command.argv[0] == "/venv/bin/python" and command.argv[2:] == (*words, "--device", "cpu")
        assert variables(command) == {"OMP_NUM_THREADS": "2"} and command.removed == ("RANK",)
    assert len(commands) == 2
    for command in actor_commands(plan.own, {"OMP_NUM_THREADS": "3"}, "python", words):
        assert variables(command) == {}


def test_an_actor_has_its_gpu_alone_as_nvml_counts_it_and_a_share_of_the_cores():
    shared = replace(HOST, devices=("0", "1"), players=("2",))
    (command,) = actor_commands(shared, {}, "python", ("selfplay", "--for", "s3://bucket/x"))
    assert variables(command) == {
        "CUDA_VISIBLE_DEVICES": "2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "2",
    }
    assert command.argv[-3:] == ("s3://bucket/x", "--device", "cuda")


def test_a_host_that_only_plays_is_no_node_of_torchrun_or_deepspeed():
    plan = two(CPU)
    player = replace(HOST, num_ranks=0, num_actors=2)
    with_player = replace(plan, hosts=(*plan.hosts, player))
    assert build(with_player) == build(plan)
    deepspeed = replace(with_player, launcher="deepspeed")
    assert build(deepspeed) == build(replace(plan, launcher="deepspeed"))
    alone = replace(CPU, hosts=(*CPU.hosts, player))
    assert build(alone) == build(CPU) and variables(build(alone))["GLOO_SOCKET_IFNAME"] == "lo"
