"""Hosts with private and shared directories: who writes, and where all go on from."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.jobs.jobs import TINY, free_port, run_job, step_lines
from tests.support.jobs.zygote import Zygote

ARGUMENTS = ("--checkpoint-interval", "4", "--optimizer", "adamw", "--run-name", "job")


def run_hosts(zygote: Zygote, directories: list[Path], store: Path, steps: int) -> list[str]:
    """One rank a host, each in its own directory; what each printed."""
    port = free_port()
    ranks = []
    for rank, directory in enumerate(directories):
        place = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(directories))}
        place |= {"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        argv = [*TINY, "--data", str(store), *ARGUMENTS, "--steps", str(steps)]
        ranks.append(zygote.start(directory, 1, argv, variables=place))
    assert [rank.wait(240.0) for rank in ranks] == [[0]] * len(ranks), [rank.output() for rank in ranks]
    return [rank.output() for rank in ranks]


def saved_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "runs/job/checkpoints").glob("step-*"))


def test_every_private_directory_gets_all_and_a_lost_one_is_made_up_for(zygote, tmp_path, random_store):
    """Two hosts; then the head's directory is lost and the run continues from the other's."""
    hosts = [tmp_path / "head", tmp_path / "other"]
    run_hosts(zygote, hosts, random_store, 8)
    assert saved_in(hosts[0]) == saved_in(hosts[1]) == ["step-00000004", "step-00000008"]
    for file in ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        one, other = (host / "runs/job/checkpoints/step-00000008" / file for host in hosts)
        assert one.read_bytes() == other.read_bytes()
    shutil.rmtree(hosts[0])
    outputs = run_hosts(zygote, hosts, random_store, 12)
    assert "resumed from step 8" in outputs[0]
    undisturbed = [tmp_path / "undisturbed" / name for name in ("a", "b")]
    run_hosts(zygote, undisturbed, random_store, 12)
    assert step_lines(hosts[0])[-4:] == step_lines(undisturbed[0])[-4:]
    last = "runs/job/checkpoints/step-00000012"
    for host in hosts:
        for file in ("weights.safetensors", "optimizer.safetensors"):
            assert (host / last / file).read_bytes() == (undisturbed[0] / last / file).read_bytes()


@pytest.mark.slow
def test_the_newest_over_all_hosts_is_taken(zygote, tmp_path, random_store):
    """A host that missed the last checkpoint, and one whose last is damaged."""
    hosts = [tmp_path / "head", tmp_path / "other"]
    run_hosts(zygote, hosts, random_store, 8)
    shutil.rmtree(hosts[0] / "runs/job/checkpoints/step-00000008")
    outputs = run_hosts(zygote, hosts, random_store, 10)
    assert "resumed from step 8" in outputs[0]
    weights = hosts[1] / "runs/job/checkpoints/step-00000010/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    outputs = run_hosts(zygote, hosts, random_store, 12)
    assert "passed over" in outputs[1] and "weights.safetensors" in outputs[1]
    assert "resumed from step 10" in outputs[0]


def test_a_shared_directory_has_one_writer_and_a_mixture_has_one_each(zygote, tmp_path, random_store):
    shared, private = tmp_path / "shared", tmp_path / "private"
    outputs = run_hosts(zygote, [shared, shared, private], random_store, 4)
    assert saved_in(shared) == saved_in(private) == ["step-00000004"]
    assert not list(tmp_path.rglob(".alphazero-rank-*"))
    assert outputs[0].count("saved runs/job/checkpoints/step-00000004") == 1
    state = json.loads((private / "runs/job/checkpoints/step-00000004/state.json").read_text())
    assert state["world_size"] == 3
    assert (private / "runs/job/config.json").exists()


@pytest.mark.parametrize("resume", [pytest.param("best-elo", marks=pytest.mark.slow), "nowhere"])
def test_a_resume_from_nothing_is_one_line_from_one_rank(tmp_path, random_store, resume):
    output = run_job(tmp_path, random_store, 2, "--steps", "4", "--resume", resume, status=1)
    assert output.count("alphazero: error") == 1
