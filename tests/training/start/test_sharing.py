"""Hosts with private and shared directories: who writes, and where all go on from."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.jobs import TINY, environment, free_port, step_lines
from tests.support.paths import REPOSITORY

ARGUMENTS = ("--checkpoint-interval", "4", "--optimizer", "adamw", "--run-name", "job")


def run_hosts(directories: list[Path], store: Path, steps: int) -> list[str]:
    """One rank a host, each started by hand in its own directory; what each printed.

    Each has a processor of its own: a rank that is alone on its host takes a thread for every one it may use.
    """
    port = free_port()
    processors = sorted(os.sched_getaffinity(0))
    ranks = []
    for rank, directory in enumerate(directories):
        directory.mkdir(parents=True, exist_ok=True)
        place = ["--rank", str(rank), "--world-size", str(len(directories)), "--master-port", str(port)]
        argv = [sys.executable, str(REPOSITORY / "train_distributed.py"), *TINY, "--data", str(store)]
        argv += [*ARGUMENTS, "--steps", str(steps), *place, "--master-addr", "127.0.0.1"]
        alone = ["taskset", "--cpu-list", str(processors[rank % len(processors)])]
        ranks.append(
            subprocess.Popen(
                [*alone, *argv], cwd=directory, env=environment(), stderr=subprocess.PIPE, text=True
            )
        )
    outputs = [rank.communicate(timeout=240)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * len(ranks), outputs
    return outputs


def saved_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "runs/job/checkpoints").glob("step-*"))


def test_every_private_directory_gets_all_and_a_lost_one_is_made_up_for(tmp_path, random_store):
    """Two hosts; then the head's directory is lost and the run continues from the other's."""
    hosts = [tmp_path / "head", tmp_path / "other"]
    run_hosts(hosts, random_store, 8)
    assert saved_in(hosts[0]) == saved_in(hosts[1]) == ["step-00000004", "step-00000008"]
    for file in ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        one, other = (host / "runs/job/checkpoints/step-00000008" / file for host in hosts)
        assert one.read_bytes() == other.read_bytes()
    shutil.rmtree(hosts[0])
    outputs = run_hosts(hosts, random_store, 12)
    assert "resumed from step 8" in outputs[0]
    undisturbed = [tmp_path / "undisturbed" / name for name in ("a", "b")]
    run_hosts(undisturbed, random_store, 12)
    assert step_lines(hosts[0])[-4:] == step_lines(undisturbed[0])[-4:]
    last = "runs/job/checkpoints/step-00000012"
    for host in hosts:
        for file in ("weights.safetensors", "optimizer.safetensors"):
            assert (host / last / file).read_bytes() == (undisturbed[0] / last / file).read_bytes()


def test_the_newest_over_all_hosts_is_taken(tmp_path, random_store):
    """A host that missed the last checkpoint, and one whose last is damaged."""
    hosts = [tmp_path / "head", tmp_path / "other"]
    run_hosts(hosts, random_store, 8)
    shutil.rmtree(hosts[0] / "runs/job/checkpoints/step-00000008")
    outputs = run_hosts(hosts, random_store, 10)
    assert "resumed from step 8" in outputs[0]
    weights = hosts[1] / "runs/job/checkpoints/step-00000010/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    outputs = run_hosts(hosts, random_store, 12)
    assert "passed over" in outputs[1] and "weights.safetensors" in outputs[1]
    assert "resumed from step 10" in outputs[0]


def test_a_shared_directory_has_one_writer_and_a_mixture_has_one_each(tmp_path, random_store):
    shared, private = tmp_path / "shared", tmp_path / "private"
    outputs = run_hosts([shared, shared, private], random_store, 4)
    assert saved_in(shared) == saved_in(private) == ["step-00000004"]
    assert not list(tmp_path.rglob(".alphazero-rank-*"))
    assert outputs[0].count("saved runs/job/checkpoints/step-00000004") == 1
    state = json.loads((private / "runs/job/checkpoints/step-00000004/state.json").read_text())
    assert state["world_size"] == 3
    assert (private / "runs/job/config.json").exists()


@pytest.mark.parametrize("resume", ["best-policy_top1", "best-elo", "nowhere"])
def test_a_resume_from_nothing_is_one_line_from_one_rank(tmp_path, random_store, resume):
    with pytest.raises(AssertionError) as caught:
        run_with(tmp_path, random_store, "--resume", resume)
    assert str(caught.value).count("alphazero: error") == 1


def run_with(directory: Path, store: Path, *extra: str) -> str:
    """A job of two ranks under torchrun."""
    from tests.support.jobs.jobs import run_job

    return run_job(directory, store, 2, "--steps", "4", *extra)
