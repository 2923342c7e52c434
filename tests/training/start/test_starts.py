"""A start on a run that exists: what it refuses, what it says, what it leaves alone."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from alphazero.network.weights.open_network import read_weights
from tests.support.data.stores import write_random_store
from tests.support.jobs.jobs import TINY, step_lines

ARGUMENTS = ("--steps", "4", "--checkpoint-interval", "2")
RUN = Path("runs") / "job"


@pytest.fixture(scope="module")
def finished(zygote, tmp_path_factory, random_store):
    """A run of 4 steps that has ended."""
    directory = tmp_path_factory.mktemp("finished")
    zygote.run_job(directory, random_store, 1, *ARGUMENTS)
    return directory


@pytest.fixture
def copied(finished, tmp_path):
    """The same run, to do harm to."""
    shutil.copytree(finished / "runs", tmp_path / "runs")
    return tmp_path


def files_in(directory: Path) -> dict[str, bytes]:
    """All of a run but what tells of starts."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".alphazero.lock"
    }


def damage_all(run: Path) -> None:
    for path in (run / "checkpoints").glob("step-*"):
        (path / "weights.safetensors").write_bytes(b"")


def newer_format(run: Path) -> None:
    for path in (run / "checkpoints").glob("step-*/manifest.json"):
        path.write_text(path.read_text().replace('"version": 1', '"version": 9'))


def unmount(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (damage_all, "no checkpoint can be read, of step-00000002, step-00000004"),
        (newer_format, "manifest.json: version 9: expected 1"),
        (unmount, r"checkpoints: is gone, and metrics\.jsonl knows of steps"),
    ],
)
def test_a_run_whose_checkpoints_cannot_be_read_is_refused_and_left_as_it_is(
    zygote, copied, random_store, harm, told
):
    harm(copied / RUN)
    before = files_in(copied / RUN)
    said = zygote.run_job(copied, random_store, 1, *ARGUMENTS, status=2)
    assert re.search(told, said) and "or --fresh-start" in said, said
    assert said.count("error:") == 1
    assert files_in(copied / RUN) == before
    zygote.run_job(copied, random_store, 1, *ARGUMENTS, "--fresh-start")
    assert len(step_lines(copied, "job-2")) == 4


def test_a_run_killed_before_its_first_checkpoint_starts_over(zygote, tmp_path, random_store):
    arguments = [*TINY, "--data", str(random_store), "--steps", "5000", "--checkpoint-interval", "5000"]
    job = zygote.start(tmp_path, 1, arguments)
    metrics = tmp_path / RUN / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size) and job.is_running():
        time.sleep(0.01)
    job.kill()
    assert job.wait() == [-signal.SIGKILL]
    zygote.run_job(tmp_path, random_store, 1, *ARGUMENTS)
    assert [line["step"] for line in step_lines(tmp_path)][:4] == [1, 2, 3, 4]


def test_changed_settings_are_said_one_by_one(zygote, copied, random_store):
    more = ("--steps", "5", "--learning-rate", "0.05", "--weight-decay", "0.5", "--keep-checkpoints", "2")
    said = zygote.run_job(copied, random_store, 1, *more, "--checkpoint-interval", "2")
    lines = re.findall(r"^changed: .*$", said, re.MULTILINE)
    assert lines == [
        "changed: learning_rate 0.002 -> 0.05",
        "changed: weight_decay 0.0001 -> 0.5",
        "changed: steps 4 -> 5",
    ]


def test_a_run_is_continued_by_its_name_alone_with_all_its_settings(zygote, copied, random_store):
    """The preset of this machine has another network, optimizer, batch and rate; nothing of it counts."""
    weights = copied / RUN / "checkpoints" / "step-00000004" / "weights.safetensors"
    expected = weights.read_bytes()
    job = zygote.start(copied, 1, ["--run-name", "job", "--data", str(random_store), "--resume", "2"])
    assert job.wait(120.0) == [0], job.output()
    assert weights.read_bytes() == expected
    said = job.output()
    assert "changed" not in said
    assert re.search(r"^as in the checkpoint: blocks 2 \(not 6\), .*batch_size 128 \(not 256\)", said, re.M)


def test_a_changed_network_is_told_by_its_field(zygote, copied, random_store):
    before = files_in(copied / RUN)
    said = zygote.run_job(copied, random_store, 1, "--steps", "5", "--blocks", "1", status=2)
    assert "blocks was 2 at" in said and "{" not in said
    assert files_in(copied / RUN) == before


def test_other_games_are_refused_unless_they_are_taken_on_purpose(zygote, copied, random_store, tmp_path):
    write_random_store(tmp_path / "others", num_games=32, first_seed=99)
    said = zygote.run_job(copied, tmp_path / "others", 1, "--steps", "5", status=2)
    assert "data was" in said and "--accept-new-data" in said
    said = zygote.run_job(copied, tmp_path / "others", 1, "--steps", "5", "--accept-new-data")
    assert re.search(r"^changed: data \w{12} -> \w{12}$", said, re.MULTILINE)
    assert step_lines(copied)[-1]["step"] == 5
    # From here on these are the run's games.
    zygote.run_job(copied, tmp_path / "others", 1, "--steps", "6")


def test_other_filters_are_named_and_refused_unless_they_are_taken_on_purpose(zygote, copied, random_store):
    said = zygote.run_job(copied, random_store, 1, "--steps", "5", "--skip-plies", "4", status=2)
    assert "skip_plies 0 -> 4" in said and "--accept-new-data" in said
    flags = ("--skip-plies", "4", "--accept-new-data")
    said = zygote.run_job(copied, random_store, 1, "--steps", "5", *flags)
    assert re.search(
        r"^filter            skip_plies 4: removed [\d,]+ of [\d,]+ positions$", said, re.MULTILINE
    )
    assert "changed: skip_plies 0 -> 4" in said and re.search(r"^changed: data \w{12} -> \w{12}$", said, re.M)
    # From here on it is the run's filter, without a word.
    assert "skip_plies 4: removed" in zygote.run_job(copied, random_store, 1, "--steps", "6")


def test_a_finished_command_typed_again_says_so_and_makes_its_weights_again(zygote, copied, random_store):
    (weights,) = (copied / RUN).glob("*.pt")
    content = read_weights(weights)
    weights.unlink()
    said = zygote.run_job(copied, random_store, 1, *ARGUMENTS)
    assert "complete at 4 steps" in said and "--steps 8" in said
    again = read_weights(weights)
    assert (again.config, again.metadata) == (content.config, content.metadata)
    assert again.state_dict.keys() == content.state_dict.keys()
    assert all(torch.equal(tensor, content.state_dict[name]) for name, tensor in again.state_dict.items())


def test_a_start_of_a_finished_run_changes_none_of_its_files(zygote, copied, random_store):
    def files():
        paths = sorted(path for path in (copied / RUN).rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths if path.name[0] != "."}

    before = files()
    said = zygote.run_job(
        copied, random_store, 1, *ARGUMENTS, "--keep-checkpoints", "1", "--log-interval", "3"
    )
    assert "complete at 4 steps" in said
    assert files() == before
    (copied / RUN).rename(copied / RUN.parent / "a b")
    said = zygote.run_job(copied, random_store, 1, *ARGUMENTS, "--run-name", "a b")
    assert re.search(r"play 'runs/a b/\S+\.pt'$", said, re.MULTILINE)


def test_a_precision_that_was_chosen_for_the_run_is_no_change(zygote, tmp_path, random_store):
    zygote.run_job(tmp_path, random_store, 1, *ARGUMENTS, "--precision", "auto")
    said = zygote.run_job(tmp_path, random_store, 1, *ARGUMENTS, "--precision", "auto")
    assert "complete at 4 steps" in said
    said = zygote.run_job(tmp_path, random_store, 1, "--steps", "5", "--precision", "auto")
    assert "changed: precision" not in said


@pytest.mark.parametrize(
    ("asked", "ranks", "told"),
    [
        (("--precision", "bf16"), 1, "precision fp32 -> bf16"),
        (("--learning-rate", "0.05"), 1, "learning_rate 0.002 -> 0.05"),
        ((), 2, "ranks 1 -> 2"),
        (("--batch-size", "256"), 1, "batch size was 128 at step 4, is 256"),
    ],
)
def test_a_finished_run_asked_for_something_else_is_an_error_that_names_it(
    zygote, copied, random_store, asked, ranks, told
):
    before = files_in(copied / RUN)
    said = zygote.run_job(copied, random_store, ranks, *ARGUMENTS, "--precision", "fp32", *asked, status=2)
    assert told in said and "--fresh-start" in said, said
    assert files_in(copied / RUN) == before


@pytest.mark.parametrize("resume", ["2", "step-00000002", "runs/job/checkpoints/step-00000002"])
def test_a_checkpoint_is_named_by_its_step(zygote, copied, random_store, resume):
    said = zygote.run_job(copied, random_store, 1, *ARGUMENTS, "--resume", resume)
    assert "resumed from step 2" in said


def test_a_stopped_run_says_how_to_go_on(zygote, tmp_path, random_store):
    arguments = [*TINY, "--data", str(random_store), "--steps", "5000"]
    job = zygote.start(tmp_path, 1, arguments)
    metrics = tmp_path / RUN / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size) and job.is_running():
        time.sleep(0.01)
    job.send(signal.SIGINT)
    assert job.wait() == [130]
    line = next(line for line in job.output().splitlines() if line.startswith("continue with: "))
    assert line.endswith("--steps 5000 --run-name job") and "train_distributed.py" in line


def test_a_finished_run_says_how_to_train_on(finished):
    said = (finished / RUN / "log.txt").read_text()
    (line,) = re.findall(r"continue with: (.*)", said)
    assert line.endswith("--checkpoint-interval 2 --run-name job --steps 8")


def test_a_refused_resume_moves_no_games(zygote, tmp_path):
    from tests.training.start.test_self_play_runs import ARGUMENTS as SELF_PLAY

    def play(*more: str, status: int = 0) -> str:
        job = zygote.start(tmp_path, 1, [*SELF_PLAY, *more])
        assert job.wait() == [status], job.output()[-4000:]
        return job.output()

    play("--generations", "2")
    run = tmp_path / RUN
    before = files_in(run)
    assert "--lanes 12:" in play("--lanes", "12", "--resume", "6", status=2)
    assert files_in(run) == before
    manifest = run / "games" / "manifest.json"
    content = manifest.read_bytes()
    manifest.unlink()
    assert "runs/job/games: not" in play("--resume", "6", status=2)
    manifest.write_bytes(content)
    assert files_in(run) == before
    assert json.loads(manifest.read_text())["shards"]
