"""From flags, hostfile, environment and machine to a plan: every role, source and contradiction."""

from dataclasses import replace

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.plan.launch_plan import HostPlan, LaunchPlan, Remote
from alphazero.launch.plan.sources import LaunchRequest
from alphazero.machine.machine import Machine
from tests.support.launch.resolving import CPU, GPUS, TWO, cluster, plan


def test_no_flags_on_a_machine_without_gpus_is_one_cpu_rank_said_loudly():
    found = plan(LaunchRequest())
    notice = (
        "NO NVIDIA DEVICE ON THIS MACHINE: training on the CPU with 1 rank (more with --gpus N; 4 cores here)"
    )
    own = HostPlan(Remote("box"), "127.0.0.1", 1, machine=CPU)
    assert found == LaunchPlan((own,), "cpu", "127.0.0.1", 12355, notices=(notice,))


def test_no_flags_on_a_machine_with_gpus_is_a_rank_for_each():
    found = plan(LaunchRequest(), GPUS)
    own = HostPlan(Remote("box"), "127.0.0.1", 4, machine=GPUS, devices=("0", "1", "2", "3"))
    assert found == LaunchPlan((own,), "cuda", "127.0.0.1", 12355)
    assert plan(LaunchRequest(gpus=-1), GPUS) == found


def test_gpus_n_takes_the_first_n_visible_devices():
    found = plan(LaunchRequest(gpus=2), GPUS, CUDA_VISIBLE_DEVICES="3,1,0")
    assert (found.own.num_ranks, found.own.devices) == (2, ("3", "1"))


@pytest.mark.parametrize(("gpus", "processes"), [(None, 1), (-1, 1), (1, 1), (8, 8)])
def test_without_gpus_the_number_means_cpu_ranks(gpus: int | None, processes: int):
    assert plan(LaunchRequest(gpus=gpus)).own.num_ranks == processes


def test_the_cpu_can_be_asked_for_and_hidden_devices_are_respected():
    asked = plan(LaunchRequest(device="cpu", gpus=2), GPUS)
    assert (asked.device, asked.own.num_ranks, asked.own.devices) == ("cpu", 2, ())
    assert asked.notices[0].startswith("--device cpu: training on the CPU with 2 ranks (--gpus 2;")
    hidden = plan(LaunchRequest(), GPUS, CUDA_VISIBLE_DEVICES="")
    assert hidden.device == "cpu"
    assert hidden.notices[0] == "CUDA_VISIBLE_DEVICES= hides all NVIDIA devices"


def test_by_hand_each_node_has_its_rank_and_the_same_master():
    request = LaunchRequest(gpus=8, nodes=2, node_rank=1, master_addr="192.168.1.100")
    found = plan(request)
    assert (found.num_nodes, found.node_rank, found.own.num_ranks) == (2, 1, 8)
    assert (found.master_addr, found.master_port) == ("192.168.1.100", 12355)


@pytest.mark.parametrize(
    ("request_", "machine", "message"),
    [
        (
            LaunchRequest(gpus=8),
            GPUS,
            "--gpus 8: this machine has 4 NVIDIA devices; expected at most as many",
        ),
        (LaunchRequest(gpus=0), CPU, "--gpus 0: expected a number of processes from 1, or -1"),
        (LaunchRequest(device="cuda"), CPU, "--device cuda: expected an NVIDIA device, there is none on box"),
        (LaunchRequest(nodes=2), CPU, "--nodes 2: expected --node-rank beside it, 0 to 1"),
        (LaunchRequest(nodes=2, node_rank=1), CPU, "--nodes 2: expected --master-addr beside it"),
        (LaunchRequest(node_rank=1), CPU, "--node-rank 1: expected 0 to 0 (--nodes 1)"),
        (LaunchRequest(nodes=2, node_rank=2, master_addr="a"), CPU, "--node-rank 2: expected 0 to 1"),
        (LaunchRequest(nodes=2, node_rank=-1, master_addr="a"), CPU, "--node-rank -1: expected 0 to 1"),
        (LaunchRequest(nodes=2, node_rank=0, master_addr=""), CPU, "--master-addr '': expected the address"),
        (LaunchRequest(include="a:0"), CPU, "--include a:0: expected --hostfile beside it"),
        (LaunchRequest(launcher="slurm"), CPU, "--launcher slurm: expected a SLURM allocation"),
        (LaunchRequest(min_nodes=2), CPU, "--min-nodes 2: expected at most 1, as many as hosts"),
        (
            LaunchRequest(nodes=2, node_rank=0, master_addr="a", max_restarts=3),
            CPU,
            "--max-restarts 3: all machines start again together; expected --hostfile",
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


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "BOX", "10.0.0.5", "me@localhost"])
def test_a_hostfile_that_names_this_machine_alone_runs_here_with_its_slots(hostfile, name: str):
    found = plan(LaunchRequest(hostfile=hostfile(f"{name} slots=2\n")))
    assert (found.num_nodes, found.own.num_ranks) == (1, 2)


def test_a_hostfile_with_other_hosts_is_started_from_here(hostfile):
    path = hostfile("box slots=2\nme@other slots=4 weight=0.5\n")
    found = cluster(LaunchRequest(hostfile=path, max_restarts=2, min_nodes=1, interface="ib0"))
    assert (found.role, found.node_rank, found.device) == ("head", 0, "auto")
    assert [
        (part.remote.target or part.remote.name, part.num_ranks, part.weight, not part.remote.target)
        for part in found.hosts
    ] == [
        ("box", 2, 1.0, True),
        ("me@other", 4, 0.5, False),
    ]
    assert (found.master_addr, found.master_port, found.port_is_chosen) == ("box", 12355, False)
    assert (found.max_restarts, found.min_nodes, found.interface) == (2, 1, "ib0")
    chosen = cluster(LaunchRequest(hostfile=path, master_port=5000, master_addr="10.9.9.9"))
    assert (chosen.master_addr, chosen.master_port, chosen.port_is_chosen) == ("10.9.9.9", 5000, True)


def test_the_head_need_not_be_one_of_the_hosts(hostfile):
    one = cluster(LaunchRequest(hostfile=hostfile("other slots=4\n")))
    assert (one.role, one.node_rank, one.num_nodes) == ("head", None, 1)
    two = cluster(LaunchRequest(hostfile=hostfile("a slots=4\nb slots=4\n")))
    assert all(part.remote.target for part in two.hosts)


def test_all_gpus_of_every_host_are_counted_there(hostfile):
    found = cluster(LaunchRequest(hostfile=hostfile("a slots=4\nb slots=4\n"), gpus=-1))
    assert [part.num_ranks for part in found.hosts] == [None, None]


def test_include_and_exclude_choose_hosts_and_devices(hostfile):
    path = hostfile("a slots=4\nbox slots=4\nc slots=1\n")
    found = cluster(LaunchRequest(hostfile=path, include="a@box:1,3"))
    assert [(part.address, part.num_ranks, part.slots) for part in found.hosts] == [
        ("a", 4, ()),
        ("box", 2, (1, 3)),
    ]
    here = plan(LaunchRequest(hostfile=path, include="box:1,3"), GPUS, CUDA_VISIBLE_DEVICES="3,2,1,0")
    assert (here.own.num_ranks, here.own.devices) == (2, ("2", "0"))
    with pytest.raises(LaunchError, match=r"--gpus -1 .*--include"):
        cluster(LaunchRequest(hostfile=path, include="box:1,3", gpus=-1))


def test_by_hand_with_a_hostfile_each_machine_takes_its_line(hostfile):
    path = hostfile("a slots=4 weight=2\n10.0.0.5 slots=3\n")
    found = cluster(LaunchRequest(hostfile=path, node_rank=1))
    assert (found.role, found.node_rank, found.num_nodes) == ("node", 1, 2)
    assert (found.own.num_ranks, found.master_addr, found.own.weight) == (3, "a", 1.0)
    assert found.ranks == (4, 3)


@pytest.mark.parametrize(
    ("text", "extra", "message"),
    [
        ("box slots=2", {"gpus": 4}, "--gpus 4 contradicts --hostfile"),
        ("box slots=2", {"nodes": 2}, "--nodes 2 contradicts --hostfile"),
        ("a slots=2\nb slots=2", {"nodes": 3}, "--nodes 3 contradicts --hostfile"),
        ("a slots=2\nb slots=3", {"gpus": 2}, "--gpus 2 contradicts --hostfile"),
        ("a slots=2\nb slots=2", {"node_rank": 2}, "--node-rank 2: expected 0 to 1 (--hostfile"),
        ("a slots=2\nb slots=2", {"min_nodes": 3}, "--min-nodes 3: expected at most 2"),
        ("a slots=2\nb slots=2", {"launcher": "slurm"}, "--launcher slurm: expected a SLURM allocation"),
    ],
)
def test_flags_that_contradict_the_hostfile_are_errors_that_name_both(
    hostfile, text: str, extra: dict, message: str
):
    with pytest.raises(LaunchError) as caught:
        cluster(LaunchRequest(hostfile=hostfile(text + "\n"), **extra))
    assert str(caught.value).startswith(message)


def test_flags_that_say_the_same_as_the_hostfile_do_no_harm(hostfile):
    path = hostfile("a slots=2\nb slots=2\n")
    same = cluster(LaunchRequest(hostfile=path, gpus=2, nodes=2))
    assert same == cluster(LaunchRequest(hostfile=path))


def test_fewer_nodes_than_hosts_are_the_first_ones_as_in_deepspeeds_launcher(hostfile):
    path = hostfile("a slots=2\nb slots=2\nc slots=1\n")
    assert [host.address for host in cluster(LaunchRequest(hostfile=path, nodes=2)).hosts] == ["a", "b"]
    alone = cluster(LaunchRequest(hostfile=path, nodes=1))
    assert ([host.address for host in alone.hosts], alone.ranks) == (["a"], (2,))
    with pytest.raises(LaunchError, match=r"--nodes 1 .*\(2 hosts\)"):
        cluster(LaunchRequest(hostfile=path, nodes=1, exclude="a"))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_localhost_among_several_hosts_is_an_error_with_advice(hostfile, name: str):
    with pytest.raises(LaunchError, match=r"line 2: .*another machine"):
        cluster(LaunchRequest(hostfile=hostfile(f"a slots=1\n{name} slots=1\n")))


def test_one_machine_under_two_names_is_an_error(hostfile):
    with pytest.raises(LaunchError, match=r"box and 10\.0\.0\.5 are"):
        cluster(LaunchRequest(hostfile=hostfile("box slots=1\n10.0.0.5 slots=1\n")))


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.0.1.1", "::1"])
def test_a_loopback_master_of_a_hostfile_or_controller_is_an_error_with_advice(hostfile, address: str):
    by_file = LaunchRequest(hostfile=hostfile("box slots=1\nb slots=1\n"), master_addr=address)
    for request, environment in (
        (by_file, {}),
        (LaunchRequest(), {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": address}),
    ):
        with pytest.raises(LaunchError) as caught:
            cluster(request, **environment)
        assert f"{address}: is the loopback" in str(caught.value)
        assert str(caught.value).endswith("this machine has 10.0.0.5")


def test_an_address_of_one_link_is_neither_taken_nor_offered_as_the_master():
    machine = replace(CPU, addresses=(*CPU.addresses, ("eth0", "fe80::5")))
    with pytest.raises(LaunchError, match=r"fe80::5: .*one link") as caught:
        cluster(LaunchRequest(nodes=2, node_rank=0, master_addr="fe80::5"), machine)
    assert str(caught.value).endswith("has 10.0.0.5")


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.0.1.1", "::1"])
def test_a_loopback_master_that_a_person_names_means_that_all_nodes_are_here(address: str):
    by_hand = LaunchRequest(nodes=2, node_rank=0, master_addr=address)
    for rank in (0, 1):
        found = plan(replace(by_hand, node_rank=rank))
        assert (found.num_nodes, found.node_rank, found.master_addr) == (2, rank, address)
        assert any(f"{address} is the loopback" in line for line in found.notices)
    assert cluster(replace(by_hand, nodes=1)).master_addr == address


def test_one_machine_alone_meets_on_the_loopback_whatever_address_was_given():
    assert plan(LaunchRequest(master_addr="10.0.0.5")).master_addr == "127.0.0.1"


def test_node_0_without_a_master_s_address_offers_its_own():
    request = LaunchRequest(gpus=8, nodes=2, node_rank=0)
    found = cluster(request)
    assert (found.master_addr, found.master_port) == ("10.0.0.5", 12355)
    assert any("--master-addr 10.0.0.5" in notice for notice in found.notices)
    machine = replace(CPU, addresses=(*CPU.addresses, ("ib0", "10.1.0.5")))
    assert cluster(replace(request, interface="ib0"), machine).master_addr == "10.1.0.5"
    exported = cluster(request, MASTER_ADDR="10.9.9.9", MASTER_PORT="7000")
    assert (exported.master_addr, exported.master_port) == ("10.9.9.9", 7000)
    with pytest.raises(LaunchError, match="no address in"):
        cluster(request, replace(CPU, addresses=(("lo", "127.0.0.1"),)))


def test_a_master_s_name_that_means_the_loopback_here_is_an_error_with_advice(hostfile):
    debian = {"box": ("127.0.1.1",)}  # its installer writes `127.0.1.1 box` into /etc/hosts
    by_hand = LaunchRequest(nodes=2, node_rank=0, master_addr="box")
    for request in (by_hand, LaunchRequest(hostfile=hostfile("box slots=1\nb slots=1\n"))):
        with pytest.raises(LaunchError, match=r"box: resolves to 127\.0\.1\.1"):
            cluster(request, names=debian)
        assert cluster(request, names={"box": ("10.0.0.5",)}).master_addr == "box"


def test_more_slots_than_gpus_is_an_error(hostfile):
    with pytest.raises(LaunchError, match=r"slots=8: .* 4 NVIDIA"):
        plan(LaunchRequest(hostfile=hostfile("localhost slots=8\n")), GPUS)


TASK = {
    **TWO,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_GPUS_ON_NODE": "4",
}


def test_in_an_allocation_srun_starts_the_nodes():
    found = cluster(LaunchRequest(), **TWO)
    assert (found.role, found.node_rank, found.device) == ("slurm", 0, "auto")
    assert [(part.address, part.num_ranks) for part in found.hosts] == [
        ("gpu1", None),
        ("gpu2", None),
    ]
    assert (found.master_addr, found.master_port) == ("gpu1", 15077)
    tasks = cluster(LaunchRequest(), **TWO, SLURM_NTASKS="12", SLURM_TASKS_PER_NODE="8,4")
    assert [part.num_ranks for part in tasks.hosts] == [8, 4]
    # One task per node is one launcher per node, not one process.
    launchers = cluster(LaunchRequest(), **TWO, SLURM_NTASKS_PER_NODE="1")
    assert [part.num_ranks for part in launchers.hosts] == [None, None]


def test_a_task_of_srun_starts_its_node_s_part():
    found = cluster(LaunchRequest(), GPUS, **TASK)
    assert (found.role, found.node_rank, found.own.num_ranks) == ("node", 1, 4)
    assert (found.master_addr, found.master_port) == ("gpu1", 15077)
    assert cluster(LaunchRequest(gpus=2), GPUS, **TASK).own.num_ranks == 2


def test_an_allocation_of_this_one_node_needs_no_srun():
    one = {**TWO, "SLURM_JOB_NODELIST": "gpu1", "SLURM_NNODES": "1"}
    assert cluster(LaunchRequest(), **one).role == "local"
    # salloc leaves the shell on the login node, which is none of the allocation's.
    login = {name: value for name, value in one.items() if name != "SLURMD_NODENAME"}
    assert cluster(LaunchRequest(), **login).role == "slurm"


@pytest.mark.parametrize(
    ("request_", "environment", "message"),
    [
        (LaunchRequest(nodes=3), TWO, "--nodes 3 contradicts SLURM_NNODES=2"),
        (
            LaunchRequest(gpus=4),
            {**TWO, "SLURM_NTASKS_PER_NODE": "8"},
            "--gpus 4 contradicts 8 tasks per node from SLURM",
        ),
        (LaunchRequest(node_rank=0), TASK, "--node-rank 0 contradicts SLURM_NODEID=1"),
        (
            LaunchRequest(master_addr="a"),
            {**TWO, "MASTER_ADDR": "b"},
            "--master-addr a contradicts MASTER_ADDR=b",
        ),
        (LaunchRequest(nodes=1), {"WORLD_SIZE": "2", "RANK": "0"}, "--nodes 1 contradicts WORLD_SIZE=2"),
        (
            LaunchRequest(node_rank=0, master_addr="a"),
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"},
            "--node-rank 0 contradicts OMPI_COMM_WORLD_RANK=1",
        ),
        (LaunchRequest(), {**TWO, "WORLD_SIZE": "3", "RANK": "0"}, "SLURM_NNODES=2"),
    ],
)
def test_a_flag_that_contradicts_the_environment_is_an_error_that_names_both(
    request_: LaunchRequest, environment: dict[str, str], message: str
):
    with pytest.raises(LaunchError) as caught:
        cluster(request_, GPUS, **environment)
    assert str(caught.value).startswith(message)
    assert "contradicts" in str(caught.value)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    "environment",
    [
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        {"PMI_SIZE": "2", "PMI_RANK": "1"},
        {"WORLD_SIZE": "2", "RANK": "1"},
        {"PET_NNODES": "2", "PET_NODE_RANK": "1"},
    ],
)
def test_mpi_and_job_controllers_that_start_one_launcher_a_machine_number_the_nodes(
    environment: dict[str, str],
):
    found = cluster(LaunchRequest(gpus=2), **environment, MASTER_ADDR="10.0.0.1", MASTER_PORT="6000")
    assert (found.role, found.node_rank, found.num_nodes) == ("node", 1, 2)
    assert (found.master_addr, found.master_port) == ("10.0.0.1", 6000)


def test_mpirun_inside_an_allocation_numbers_the_nodes_itself():
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    found = cluster(LaunchRequest(master_addr="gpu1"), **TWO, **mpi)
    assert (found.role, found.node_rank) == ("node", 0)


def test_another_launcher_that_starts_us_once_a_device_is_an_error():
    with pytest.raises(LaunchError, match="WORLD_SIZE=8: another"):
        cluster(LaunchRequest(), WORLD_SIZE="8", RANK="3", LOCAL_WORLD_SIZE="8")
    with pytest.raises(LaunchError, match=r"RANK=2: .*0 to 1"):
        cluster(LaunchRequest(), WORLD_SIZE="2", RANK="2")
    with pytest.raises(LaunchError, match=r"RANK='x': .*whole"):
        cluster(LaunchRequest(), WORLD_SIZE="2", RANK="x")


def test_leftovers_of_a_lone_process_change_nothing():
    lone = {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "elsewhere", "MASTER_PORT": "1"}
    assert cluster(LaunchRequest(), **lone) == cluster(LaunchRequest())


def test_actors_of_one_machine_get_the_devices_after_those_of_the_ranks():
    found = plan(LaunchRequest(actors=1), GPUS)
    assert (found.own.num_ranks, found.own.devices, found.own.players) == (3, ("0", "1", "2"), ("3",))
    given = plan(LaunchRequest(gpus=1, actors=2), GPUS, CUDA_VISIBLE_DEVICES="3,1,0")
    assert (given.own.devices, given.own.players) == (("3",), ("1", "0"))
    cores = plan(LaunchRequest(actors=1), cpu_ranks=lambda num_cores: num_cores)
    assert (cores.own.num_ranks, cores.own.players) == (3, ("",))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"actors": 4}, "1 rank, 4 actors: this machine has 4 NVIDIA devices; expected"),
        ({"actors": 2, "gpus": 3}, "--gpus 3: 3 ranks, 2 actors: this machine has 4 NVIDIA devices; exp"),
        (
            {"actors": 1, "nodes": 2, "node_rank": 0},
            "--nodes 2: machines that are started one by one have no",
        ),
    ],
)
def test_actors_that_cannot_be_are_errors(given: dict, message: str):
    with pytest.raises(LaunchError) as caught:
        plan(LaunchRequest(**given), GPUS)
    assert str(caught.value).startswith(message)


def parts(found: LaunchPlan) -> list[tuple[str, int | None, int]]:
    """Address, ranks and actors of every host."""
    return [(host.address, host.num_ranks, host.num_actors) for host in found.hosts]


def test_hosts_of_a_hostfile_that_only_play_come_last_and_are_no_nodes(hostfile):
    path = hostfile("p slots=4 actors=4\na slots=8 actors=2\nb slots=8\n")
    found = cluster(LaunchRequest(hostfile=path))
    assert parts(found) == [("a", 6, 2), ("b", 8, 0), ("p", 0, 4)]
    assert (found.num_nodes, found.ranks, found.master_addr) == (2, (6, 8, 0), "a")
    assert [host.only_plays for host in found.hosts] == [False, False, True]
    assert parts(cluster(LaunchRequest(hostfile=path, gpus=-1))) == [
        ("a", None, 2),
        ("b", None, 0),
        ("p", 0, 4),
    ]
    chosen = cluster(LaunchRequest(hostfile=path, include="a:0,6,7@p:1,2,3,0"))
    assert parts(chosen) == [("a", 1, 2), ("p", 0, 4)] and chosen.hosts[0].slots == (0, 6, 7)


def test_one_host_that_trains_beside_hosts_that_play_needs_no_address(hostfile):
    path = hostfile("box slots=4\np slots=4 actors=4\n")
    found = cluster(LaunchRequest(hostfile=path), names={"box": ("127.0.1.1",)})
    assert (found.role, found.node_rank, found.num_nodes, found.master_addr) == ("head", 0, 1, "127.0.0.1")


def test_the_head_may_be_a_host_that_only_plays(hostfile):
    found = cluster(LaunchRequest(hostfile=hostfile("box slots=1 actors=1\na slots=4\n")))
    assert (found.node_rank, found.master_addr) == (1, "127.0.0.1")
    assert [host.remote.target for host in found.hosts] == ["a", ""]


def test_a_number_of_actors_is_one_for_every_host(hostfile):
    path = hostfile("a slots=4\nb slots=2\n")
    assert parts(cluster(LaunchRequest(hostfile=path, actors=1))) == [("a", 3, 1), ("b", 1, 1)]
    own = hostfile("a slots=4\nb slots=4 actors=2\nc slots=2 actors=2\n")
    assert parts(cluster(LaunchRequest(hostfile=own, actors=1))) == [("a", 3, 1), ("b", 2, 2), ("c", 0, 2)]
    assert parts(cluster(LaunchRequest(actors=2), **TWO)) == [("gpu1", None, 2), ("gpu2", None, 2)]
    tasks = {**TWO, "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_NTASKS_PER_NODE": "4"}
    assert parts(cluster(LaunchRequest(actors=1), **tasks)) == [("gpu1", 3, 1), ("gpu2", 3, 1)]


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (
            "a slots=1 actors=1\nb slots=2 actors=2",
            {},
            "--hostfile {}: all hosts only play; expected one whose",
        ),
        (
            "a slots=2\nb slots=1",
            {"actors": 1},
            "--hostfile {}, line 2: slots=1 less 1 actor: no rank is left; expected fewer actors",
        ),
        (
            "a slots=4 actors=1\nb slots=4",
            {"gpus": 4},
            "--gpus 4 contradicts --hostfile {}, line 1: slots=4 less 1 actor: expected one of them",
        ),
        (
            "a slots=4\nb slots=4 actors=4",
            {"node_rank": 0},
            "--hostfile {} (2 hosts): machines that are started one by one have no actors",
        ),
        ("a slots=4\nb slots=4 actors=4", {"min_nodes": 2}, "--min-nodes 2: expected at most 1"),
    ],
)
def test_hosts_that_cannot_play_so_are_errors_that_name_their_lines(
    hostfile, text: str, given: dict, message: str
):
    path = hostfile(text + "\n")
    with pytest.raises(LaunchError) as caught:
        cluster(LaunchRequest(hostfile=path, **given))
    assert str(caught.value).startswith(message.format(path))
