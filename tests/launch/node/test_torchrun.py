"""torchrun's agent with our last word: which rank failed first, and its exit status."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from alphazero.base.errors import PortInUseError
from alphazero.launch.blame import FAILURE_VARIABLE
from alphazero.launch.node.torchrun import AGENT_LOGGER, is_news, refuse, report
from alphazero.run.rank import OUTPUT_VARIABLE, Failure, read_record
from tests.support.jobs.jobs import free_port
from tests.support.paths import REPOSITORY


def failure(rank: int, exit_code: int) -> ProcessFailure:
    """A rank's end as torchrun records it."""
    return ProcessFailure(local_rank=rank, pid=1000 + rank, exitcode=exit_code, error_file="<N/A>")


@pytest.fixture
def accounts(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment in which ranks have left accounts: (kind, moment) by rank."""

    def write(**kinds: tuple[str, float]) -> dict[str, str]:
        for name, (kind, at_s) in kinds.items():
            fields = {"kind": kind, "ranks": [], "cause": "why", "status": 1, "at": at_s}
            (tmp_path / f"{name.removeprefix('rank')}.account.json").write_text(json.dumps(fields))
        return {OUTPUT_VARIABLE: str(tmp_path)}

    return write


def test_the_first_failure_gives_the_exit_status_and_is_named(capsys, accounts):
    environment = accounts(rank0=("crash", 105.0), rank1=("config", 100.0))
    assert report({0: failure(0, 1), 1: failure(1, 2)}, environment).status == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("alphazero: error: rank 1 ")
    assert "(pid 1001)" in lines[0] and lines[0].endswith("status 2")
    assert "rank 0 (pid 1000)" in lines[1] and lines[1].endswith("status 1")


def test_the_moment_is_not_that_of_the_wall_clock(accounts, monkeypatch: pytest.MonkeyPatch, capsys):
    """torchrun's own time stamps are; a clock that is set back between two failures turns them round."""
    environment = accounts(rank0=("crash", 100.0), rank1=("config", 103.0))
    found = {0: failure(0, 1), 1: failure(1, 2)}
    found[1].timestamp = found[0].timestamp - 20
    assert report(found, environment).status == 1


def test_a_killed_rank_comes_before_those_that_missed_it(capsys, accounts):
    found = {0: failure(0, 1), 1: failure(1, -9), 2: failure(2, -15)}
    assert report(found, accounts(rank0=("lost connection", 100.0))).status == 137
    assert "rank 1 on" in capsys.readouterr().err.splitlines()[0]


def test_a_rank_that_knew_why_comes_before_those_that_missed_it(capsys, accounts):
    environment = accounts(rank0=("lost connection", 100.0), rank1=("data", 100.5))
    assert report({0: failure(0, 1), 1: failure(1, 2)}, environment).status == 2
    assert "rank 1 on" in capsys.readouterr().err.splitlines()[0]
    assert report({0: failure(0, 1), 1: failure(1, 2)}, {}).status == 2  # by exit status, without accounts


def test_the_agent_is_told_instead_of_people(tmp_path: Path, capsys, accounts):
    environment = {**accounts(rank1=("data", 100.0)), FAILURE_VARIABLE: str(tmp_path / "first.json")}
    assert report({1: failure(1, 2)}, environment).status == 2
    assert capsys.readouterr().err == ""
    found = read_record(Failure, tmp_path / "first.json")
    assert found == Failure("", 1, "(pid 1001) ended with exit status 2", "why", "", 2, "data", at=100.0)


# Ranks that talk, then rank 0 prints which sockets the whole job listens on, and its address.
LISTENERS = """
import json, os, psutil, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
job = psutil.Process(os.getppid())
found = []
for process in [job, *job.children(recursive=True)]:
    found += [one.laddr.ip for one in process.net_connections("inet") if one.status == "LISTEN"]
dist.barrier()
if dist.get_rank() == 0:
    print(json.dumps([found, os.environ["MASTER_ADDR"]]), flush=True)
dist.destroy_process_group()
"""


def run_torchrun(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Two ranks under our torchrun."""
    (tmp_path / "train.py").write_text(script)
    return subprocess.run(
        [
            *(sys.executable, "-m", "alphazero.launch.node.torchrun", "--nproc_per_node=2", "--nnodes=1"),
            *("--node_rank=0", "--master_addr=127.0.0.1", *options, str(tmp_path / "train.py")),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_job_on_one_machine_listens_on_the_loopback_alone(tmp_path: Path):
    """torch's own store listens on all interfaces, where it takes pickles and commands from anybody."""
    done = run_torchrun(tmp_path, LISTENERS, f"--master_port={free_port()}")
    assert done.returncode == 0, done.stderr
    found, address = json.loads(done.stdout)
    assert found != []
    assert set(found) == {"127.0.0.1"}
    assert address == "127.0.0.1"


def test_a_port_that_the_user_chose_and_another_has_is_one_line(tmp_path: Path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        done = run_torchrun(tmp_path, LISTENERS, f"--master_port={port}")
    assert done.returncode == 2
    expected = f"alphazero: error: port {port} of 127.0.0.1 is in use; expected a free one\n"
    assert done.stderr == expected


def test_the_agent_hears_that_the_port_was_in_use_and_that_no_rank_began(tmp_path: Path):
    environment = {FAILURE_VARIABLE: str(tmp_path / "first.json")}
    assert refuse(PortInUseError("port 5 is in use"), environment) == 2
    found = read_record(Failure, tmp_path / "first.json")
    assert (found.rank, found.kind, found.cause) == (None, "port in use", "port 5 is in use")


class BrokenAgent(SimpleElasticAgent):
    """torchrun's agent whose work is done and whose store, on another host, is not there any more."""

    def __init__(self) -> None:
        self._worker_group = SimpleNamespace(state="SUCCEEDED", group_world_size=2)
        self._exit_barrier_timeout = 1
        self._store = None

    _start_workers = _stop_workers = _monitor_workers = _shutdown = None


def test_a_broken_exit_barrier_shows_no_traceback_and_other_errors_stay(caplog: pytest.LogCaptureFixture):
    BrokenAgent()._exit_barrier()
    assert "Traceback" in caplog.text  # what torchrun does by itself
    caplog.clear()
    logger = logging.getLogger(AGENT_LOGGER)
    logger.addFilter(is_news)
    try:
        BrokenAgent()._exit_barrier()
        assert caplog.text == ""
        logger.error("something else")
        assert "something else" in caplog.text
    finally:
        logger.removeFilter(is_news)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        pytest.param("sys.exit(0)", 0, "", marks=pytest.mark.slow),
        pytest.param(
            "sys.exit(2 if rank == 1 else 0)",
            2,
            "(pid %) ended with exit status 2",
            marks=pytest.mark.slow,
        ),
        ("os.kill(os.getpid(), 9) if rank == 1 else time.sleep(30)", 137, "(pid %) was killed by SIGKILL"),
    ],
)
def test_two_ranks_that_talk_end_with_the_status_of_the_one_that_failed(
    tmp_path: Path, ending: str, status: int, said: str
):
    script = tmp_path / "train.py"
    script.write_text(f"""
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size() == 2
dist.destroy_process_group()
{ending}
""")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "alphazero.launch.node.torchrun", "--nproc_per_node=2", "--nnodes=1"),
            *("--node_rank=0", "--master_addr=127.0.0.1", f"--master_port={free_port()}", str(script)),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == status, run.stderr
    before, _, after = said.partition("%")
    assert before in run.stderr
    assert after in run.stderr
    assert "Traceback" not in run.stderr
    # Nothing but our own words: torchrun's log tells the same without the reason.
    assert all(line.startswith("alphazero: ") for line in run.stderr.splitlines()), run.stderr


@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_a_job_leaves_no_files_among_the_temporary_ones(tmp_path: Path, status: int):
    """torchrun makes a directory for logs of ranks, which it never removes."""
    job = tmp_path / "job.py"
    job.write_text(f"raise SystemExit({status})")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    module = ("-m", "alphazero.launch.node.torchrun", f"--master_port={free_port()}")
    done = subprocess.run(
        [sys.executable, *module, str(job)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert not [path for path in temporary.iterdir() if path.name.startswith("torchelastic")]
