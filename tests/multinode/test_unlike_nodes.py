"""Nodes with unlike settings, data or rules of a game are refused within seconds, with what differs."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.data.stores import write_random_store
from tests.support.hosts.real_job import Job
from tests.support.paths import REPOSITORY

pytestmark = pytest.mark.timeout(300)
LIMIT_S = 30.0  # on an idle machine half of it


def start_unlike(
    hosts: Sequence, directory: Path, stores: Sequence[Path], unlike: Sequence[str], both: Sequence[str] = ()
) -> list[Job]:
    """One rank a node; `unlike` is told to the second one alone."""
    jobs = []
    for rank, host in enumerate(hosts):
        place = ("--gpus", "1", "--nodes", "2", "--node-rank", str(rank), "--master-addr", "10.213.57.1")
        jobs.append(Job(host, directory, stores[rank], *place, *both, *(unlike if rank else ())))
    return jobs


@pytest.mark.parametrize(
    ("unlike", "told"),
    [
        pytest.param(("--batch-size", "256"), "batch_size: 128 on host1 (rank 0), 256 on host2 (rank 1)"),
        pytest.param(("--seed", "7"), "seed: 0 on host1 (rank 0), 7 on host2", marks=pytest.mark.slow),
        pytest.param(
            ("--precision", "bf16"), "precision: fp32 on host1 (rank 0), bf16", marks=pytest.mark.slow
        ),
        pytest.param(
            ("--learning-rate", "0.5"), "learning_rate: 0.002 on host1 (rank 0), 0.5", marks=pytest.mark.slow
        ),
    ],
)
def test_nodes_that_were_told_unlike_things_are_refused_on_both(
    network, tmp_path, random_store, unlike: tuple[str, ...], told: str
):
    begun = time.monotonic()
    for job in start_unlike(network(2).hosts, tmp_path, [random_store] * 2, unlike):
        status, said = job.end()
        assert status == 2, said
        assert f"nodes differ: {told}" in said, said
    assert time.monotonic() - begun < LIMIT_S
    assert not (tmp_path / "runs" / "job" / "checkpoints").exists()


@pytest.mark.slow
def test_nodes_with_other_games_are_refused_on_both(network, tmp_path, random_store):
    write_random_store(tmp_path / "others", num_games=32, first_seed=99)
    for job in start_unlike(network(2).hosts, tmp_path, [random_store, tmp_path / "others"], ()):
        status, said = job.end()
        assert status == 2, said
        assert "nodes differ: data: " in said


@pytest.mark.slow
def test_without_the_check_a_difference_is_a_warning(network, tmp_path, random_store):
    unlike, both = ("--keep-checkpoints", "7"), ("--no-preflight", "--keep-checkpoints", "4")
    jobs = start_unlike(network(2).hosts, tmp_path, [random_store] * 2, unlike, both)
    ended = [job.end() for job in jobs]
    assert [status for status, _ in ended] == [0, 0], ended
    assert "keep_checkpoints: 4 on host1 (rank 0), 7 on host2" in ended[0][1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(
            "(cat {rules}; echo '# changed') > {games}/nim.py", "nodes differ: game: ", marks=pytest.mark.slow
        ),
        pytest.param("true", "games/nim.py: ", marks=pytest.mark.slow),
    ],
)
def test_a_host_with_another_file_of_a_game_or_none_ends_the_job(
    network, tmp_path, random_store, change: str, told: str
):
    hosts = network(2).hosts
    games = tmp_path / "games"
    hosts[1].make_private(games)
    shutil.copy(REPOSITORY / "examples" / "nim.py", games)
    hosts[1].run("sh", "-c", change.format(rules=REPOSITORY / "examples" / "nim.py", games=games))
    (tmp_path / "hostfile").write_text("".join(f"{host.name} slots=1\n" for host in hosts))
    named = ("--game", "games/nim.py:Nim(piles=3)", "--mode", "selfplay")
    status, said = Job(hosts[0], tmp_path, random_store, "--hostfile", "hostfile", *named).end()
    assert status == 2, said
    assert told in said
