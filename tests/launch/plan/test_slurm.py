"""SLURM's environment, as sbatch(1) and srun(1) write it; node lists as scontrol expands them."""

import random

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.plan.outer import expand_counts, expand_hosts, read_slurm, read_task

# A batch script's environment on a cluster (4 nodes, --ntasks-per-node=4), as a user published it.
BATCH = {
    "SLURM_NODELIST": "gnode[10,20,25,37]",
    "SLURM_JOB_NODELIST": "gnode[10,20,25,37]",
    "SLURMD_NODENAME": "gnode10",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURM_NNODES": "4",
    "SLURM_JOBID": "200505",
    "SLURM_JOB_ID": "200505",
    "SLURM_NTASKS": "4",
    "SLURM_TASKS_PER_NODE": "1(x4)",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_NUM_NODES": "4",
}
STEP = {
    **BATCH,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gnode[20,37]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_GPUS_ON_NODE": "8",
}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[01-04,7],login1", ("gpu01", "gpu02", "gpu03", "gpu04", "gpu7", "login1")),
        ("gpu1", ("gpu1",)),
        ("node[8-11]", ("node8", "node9", "node10", "node11")),
        ("node[098-101]", ("node098", "node099", "node100", "node101")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("rack[1-2]-gpu[01,03].cluster", tuple(f"rack{r}-gpu0{n}.cluster" for r in (1, 2) for n in (1, 3))),
        ("a-b_c.d", ("a-b_c.d",)),
    ],
)
def test_node_lists_expand_as_scontrol_shows_them(text: str, hosts: tuple[str, ...]):
    assert expand_hosts(text, "SLURM_NODELIST") == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "a,", "gpu[", "gpu]", "gpu[]", "gpu[1", "gpu[1-]", "gpu[3-1]", "gpu[1,,2]", "a b", "-x"),
        *("$(id)", "gpu[1-2]]", "gpu[[1]]", "gpu[a-b]"),
    ],
)
def test_what_is_no_node_list_is_an_error_that_names_the_variable(text: str):
    with pytest.raises(LaunchError, match=r"SLURM_NODELIST=.*gpu\[01-04"):
        expand_hosts(text, "SLURM_NODELIST")


@pytest.mark.parametrize(
    ("text", "counts"), [("8(x2),4", (8, 8, 4)), ("1,2,1(x3),3,2", (1, 2, 1, 1, 1, 3, 2)), ("2", (2,))]
)
def test_counts_are_written_out(text: str, counts: tuple[int, ...]):
    assert expand_counts(text, "SLURM_TASKS_PER_NODE") == counts


@pytest.mark.parametrize("text", ["", "x", "8(2)", "8(x2", "8,,4", "-1", "1(x999999999)"])
def test_what_is_no_count_is_an_error(text: str):
    with pytest.raises(LaunchError, match=r"SLURM_TASKS_PER_NODE=.*: expected counts as"):
        expand_counts(text, "SLURM_TASKS_PER_NODE")


def test_outside_slurm_there_is_no_job():
    assert read_slurm({"SLURM_CONF": "/etc/slurm/slurm.conf", "HOME": "/root"}) is None


def test_a_batch_script_stands_for_the_whole_allocation():
    job = read_slurm(BATCH)
    assert job is not None
    assert job.hosts == ("gnode10", "gnode20", "gnode25", "gnode37")
    assert (job.in_step, job.node_rank, job.node_name) == (False, None, "gnode10")
    assert job.tasks_per_node == (4, 4, 4, 4)
    assert job.port == 15000 + 200505 % 15000


def test_a_task_of_srun_knows_its_node_within_the_step():
    job = read_slurm(STEP)
    assert job is not None
    assert (job.hosts, job.node_rank) == (("gnode20", "gnode37"), 1)


@pytest.mark.parametrize(
    "shell",
    [
        {"SLURM_STEP_ID": "4294967291"},  # the batch step's own number, where SLURM writes it
        {"SLURM_STEP_ID": "4294967290"},  # an interactive step (salloc with use_interactive_step)
        {"SLURM_STEP_ID": "0", "SLURM_PTY_PORT": "40123"},  # srun --pty bash
    ],
)
def test_a_shell_inside_stands_for_the_allocation_as_well(shell: dict[str, str]):
    environment = {**STEP, **shell, "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_NODELIST": "gnode[10,20,25,37]"}
    job = read_slurm(environment)
    assert job is not None
    assert (job.in_step, len(job.hosts)) == (False, 4)


def test_tasks_count_only_where_somebody_asked_for_them():
    # sbatch -N2 on nodes of 64 cores writes SLURM_TASKS_PER_NODE=64(x2) and no SLURM_NTASKS.
    two = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a[1-2]", "SLURM_NNODES": "2"}
    job = read_slurm({**two, "SLURM_TASKS_PER_NODE": "64(x2)"})
    assert job is not None and job.tasks_per_node == ()
    job = read_slurm({**two, "SLURM_TASKS_PER_NODE": "8,4", "SLURM_NTASKS": "12"})
    assert job is not None and job.tasks_per_node == (8, 4)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SLURM_JOB_ID": "7"}, "SLURM_JOB_ID=7, but no SLURM_JOB_NODELIST: expected both, or neither"),
        ({**BATCH, "SLURM_JOB_ID": "x"}, "SLURM_JOB_ID='x': expected a whole number"),
        ({**STEP, "SLURM_NODEID": "2"}, "SLURM_NODEID=2: expected less than 2"),
        (
            {**STEP, "SLURM_STEP_TASKS_PER_NODE": "8(x2)", "SLURM_STEP_NUM_TASKS": "16"},
            "SLURM_STEP_TASKS_PER_NODE=8(x2): the launcher starts the processes of a node itself; "
            "expected one task per node (srun --ntasks-per-node=1)",
        ),
        (
            {**STEP, "SLURM_STEP_TASKS_PER_NODE": "1"},
            "SLURM_STEP_TASKS_PER_NODE=1: is for 1 nodes; expected 2",
        ),
    ],
)
def test_what_slurm_would_not_write_is_an_error(environment: dict[str, str], message: str):
    with pytest.raises(LaunchError) as caught:
        read_slurm(environment)
    assert str(caught.value).startswith(message)


NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
TASKS = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}


def test_tasks_of_srun_are_ranks():
    task = read_task({**TASKS, "SLURM_LOCALID": "1"})
    assert [task[name] for name in NAMES] == ["3", "4", "1", "2"]
    assert (task["MASTER_ADDR"], task["MASTER_PORT"]) == ("gnode20", str(15000 + 200505 % 15000))
    another = read_task({**TASKS, "SLURM_STEP_ID": "1"})
    assert another["MASTER_PORT"] != task["MASTER_PORT"]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        BATCH,
        {**TASKS, "SLURM_PTY_PORT": "40123"},  # srun --pty bash
        {**TASKS, "SLURM_STEP_ID": "4294967290"},  # an interactive step
        {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
    ],
)
def test_a_shell_and_a_single_task_are_no_ranks(environment: dict[str, str]):
    assert read_task(environment) == {}


@pytest.mark.parametrize(
    ("size", "rank", "local_size", "local_rank"),
    [
        (*(f"OMPI_COMM_WORLD_{end}" for end in ("SIZE", "RANK", "LOCAL_SIZE", "LOCAL_RANK")),),
        ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ],
)
def test_processes_of_mpirun_are_ranks(size: str, rank: str, local_size: str, local_rank: str):
    here = {size: "2", rank: "1", local_size: "2", local_rank: "1"}
    # mpirun inside an allocation is itself a step of one task per node.
    for environment in (here, {**STEP, **here}):
        task = read_task(environment)
        assert [task[name] for name in NAMES] == ["1", "2", "1", "2"]
        assert task["MASTER_ADDR"] == "127.0.0.1"
    apart = read_task({**here, local_size: "1", local_rank: "0"})
    assert "MASTER_ADDR" not in apart
    with pytest.raises(LaunchError, match=f"{size}=2, .*{local_rank}"):
        read_task({size: "2", rank: "1"})
    with pytest.raises(LaunchError, match=f"{rank}='x': .*whole"):
        read_task({**here, rank: "x"})


def test_srun_with_pmi2_counts_as_srun():
    task = read_task({**TASKS, "SLURM_LOCALID": "1", "PMI_SIZE": "4", "PMI_RANK": "3"})
    assert (task["RANK"], task["LOCAL_RANK"], task["MASTER_ADDR"]) == ("3", "1", "gnode20")


def test_no_value_of_these_variables_makes_a_traceback():
    rng = random.Random(3)
    letters = "gpu0123[]-,()x \x00\n$;"
    for _ in range(3000):
        environment = dict(rng.choice([BATCH, STEP, TASKS]))
        name = rng.choice(sorted(environment))
        environment[name] = "".join(rng.choice(letters) for _ in range(rng.randint(0, 12)))
        for read in (read_slurm, read_task):
            try:
                read(environment)
            except LaunchError as error:
                assert "\n" not in str(error)
