"""torchrun's agent with our last word: which rank failed first, and its exit status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from alphazero.host.machine import find_free_port
from alphazero.ranks.torchrun import report
from tests.support.paths import REPOSITORY


def failure(rank: int, exit_code: int, time: int) -> ProcessFailure:
    """A rank's end as torchrun records it."""
    made = ProcessFailure(local_rank=rank, pid=1000 + rank, exitcode=exit_code, error_file="<N/A>")
    made.timestamp = time
    return made


def test_the_first_failure_gives_the_exit_status_and_is_named(capsys: pytest.CaptureFixture[str]):
    assert report({0: failure(0, 1, time=105), 1: failure(1, 2, time=100)}) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("alphazero: error: rank 1 on ")
    assert lines[0].endswith("(pid 1001) ended with exit status 2")
    assert lines[1] == "alphazero: then rank 0 (pid 1000) ended with exit status 1"


def test_a_killed_rank_comes_before_those_that_missed_it_within_the_same_second(
    capsys: pytest.CaptureFixture[str],
):
    found = {0: failure(0, 1, time=100), 1: failure(1, -9, time=100), 2: failure(2, -15, time=100)}
    assert report(found) == 137
    assert "rank 1 on" in capsys.readouterr().err.splitlines()[0]


def test_a_rank_that_knew_why_comes_before_those_that_missed_it_within_the_same_second(
    capsys: pytest.CaptureFixture[str],
):
    assert report({0: failure(0, 1, time=100), 1: failure(1, 2, time=100)}) == 2
    assert "rank 1 on" in capsys.readouterr().err.splitlines()[0]


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
            *(sys.executable, "-m", "alphazero.ranks.torchrun", "--nproc_per_node=2", "--nnodes=1"),
            *("--node_rank=0", "--master_addr=127.0.0.1", f"--master_port={find_free_port()}", str(script)),
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
