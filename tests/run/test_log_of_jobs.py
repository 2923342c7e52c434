"""The lines of real jobs: each with its time, or a JSON object; and what --quiet leaves."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.jobs.jobs import TINY, environment

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
ARGUMENTS = ("--steps", "4", "--log-interval", "2", "--validation-interval", "2")


def raw_output(job):
    """With the times, which the support of other tests takes away."""
    return "".join(path.read_text() for path in job.outputs)


def test_every_line_of_a_rank_has_its_time_and_its_log_too(zygote, tmp_path, random_store):
    job = zygote.start(tmp_path, 1, [*TINY, "--data", str(random_store), *ARGUMENTS])
    assert job.wait() == [0], job.output()
    lines = raw_output(job).splitlines()
    assert [line for line in lines if not re.match(TIME, line)] == []
    assert "loading PyTorch" in lines[0]
    log = (tmp_path / "runs" / "job" / "log.txt").read_text().splitlines()
    assert all(re.match(TIME, line) for line in log)
    second = next(line for line in lines if "validation at step 4" in line)
    assert re.search(r"policy loss \d\.\d{4} \([+-]\d\.\d{4}\)", second)
    assert any("it never saw" in line for line in lines)
    again = zygote.start(tmp_path, 1, [*TINY, "--data", str(random_store), *ARGUMENTS])
    assert again.wait() == [0]
    said = again.output()
    for told in (
        "train on to step 8:",
        "--steps 8",
        "start a new run",
        "--fresh-start",
        "alphazero play ",
    ):
        assert told in said


def test_quiet_leaves_validations_and_the_end(zygote, tmp_path, random_store):
    job = zygote.start(tmp_path, 1, [*TINY, "--data", str(random_store), *ARGUMENTS, "--quiet"])
    assert job.wait() == [0], job.output()
    lines = job.output().splitlines()
    assert [line.split(" |")[0] for line in lines[:2]] == ["validation at step 2", "validation at step 4"]
    assert set(lines[2]) == {"="} and lines[3].startswith("finished")
    assert "step 2/4" in (tmp_path / "runs" / "job" / "log.txt").read_text()


@pytest.mark.slow
def test_every_line_of_a_launched_job_is_a_json_object(tmp_path, random_store):
    command = [sys.executable, "-m", "alphazero", "launch", "--gpus", "2", "--device", "cpu"]
    done = subprocess.run(
        [*command, *TINY, "--data", str(random_store), *ARGUMENTS, "--log-format", "json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(line["time"] and "text" in line for line in told)
    (last,) = [line for line in told if line.get("topic") == "step" and line["step"] == 4]
    assert last["num_steps"] == 4 and last["loss"] > 0 and last["eta_s"] == 0
    assert [line["step"] for line in told if line.get("topic") == "validation"] == [2, 4]
    run = tmp_path / "runs" / "job"
    assert len(list(map(json.loads, (run / "log.jsonl").read_text().splitlines()))) > 5
    for log in (run / "logs").glob("*-rank*.log"):
        for line in log.read_text().splitlines():
            assert line.startswith('{"time": ') or re.match(TIME, line), line


@pytest.mark.slow
def test_an_error_of_a_job_with_json_is_a_json_object(tmp_path, random_store):
    command = [sys.executable, "-m", "alphazero", "launch", "--gpus", "1", "--device", "cpu"]
    done = subprocess.run(
        [*command, *TINY, "--data", str(tmp_path / "none"), "--log-format", "json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["text"].endswith("expected a game store, PGN file or directory")
