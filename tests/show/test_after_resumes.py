"""What TensorBoard shows of runs that were ended and went on: each point once."""

import collections
import json
import os
import random
import signal
import time

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from alphazero.base.files import complete_lines
from alphazero.run.directory import RunDirectory
from alphazero.show.tensorboard import points_of

STEPS, GENERATION = 60, 5
ARGUMENTS = (
    *("--config", "connect4", "--blocks", "1", "--filters", "8", "--run-name", "job"),
    *("--generations", "12", "--steps-per-generation", str(GENERATION), "--reuse", "1", "--lanes", "10"),
    *("--simulations-per-round", "40", "--simulations", "6", "--evaluation-batch", "8", "--batch-size", "32"),
    *("--micro-batch-size", "16", "--precision", "fp32", "--window-minimum", "100", "--log-interval", "2"),
    *("--checkpoint-interval", "3", "--validation-interval", "10", "--health-interval", "0"),
)


def points_of_tensorboard(directory):
    """Curve -> the points as TensorBoard's own reader has them, in its order."""
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def expected_points(directory):
    """Curve -> (step, value), of the newest word of metrics.jsonl on each step."""
    newest = {}
    for line in map(json.loads, complete_lines(RunDirectory(directory).metrics)):
        newest[line["kind"], line["step"]] = line
    found = collections.defaultdict(list)
    for (kind, step), line in sorted(newest.items()):
        figures = {name: value for name, value in line.items() if name not in ("kind", "step")}
        for name, at, value in points_of(kind, step, figures):
            if value:
                found[name].append((at, value))
    return found


def wait_for_step(job, run, step):
    """Until the run has written figures of `step`."""
    mark = f'{{"kind": "step", "step": {step},'
    while not any(line.startswith(mark) for line in complete_lines(RunDirectory(run).metrics)):
        assert job.is_running(), job.output()[-3000:]
        time.sleep(0.002)


def assert_every_point_once(directory):
    shown, expected = points_of_tensorboard(directory), expected_points(directory)
    assert [step for step, _ in shown["1_train/loss"]] == list(range(1, STEPS + 1))
    assert [step for step, _ in shown["2_validation/move_error"]] == list(range(10, STEPS + 1, 10))
    assert [step for step, _ in shown["3_selfplay/games"]] == list(range(1, STEPS, GENERATION))
    assert not any("sample_id" in tag or "moves_left" in tag for tag in shown)
    assert shown.keys() == expected.keys()
    for tag, points in shown.items():
        assert len({step for step, _ in points}) == len(points), tag
        values = [(step, value) for step, value in points if value]
        assert [step for step, _ in values] == [step for step, _ in expected[tag]], tag
        assert [value for _, value in values] == pytest.approx([value for _, value in expected[tag]]), tag


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "num_resumes"),
    [("killed", 5), ("stopped", 5)],
)
def test_after_resumes_every_point_is_there_once(zygote, tmp_path, how, num_resumes):
    """Killed at random instants, so that points after the last checkpoint are made again; or by a signal."""
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILL_SEED={seed} chooses these instants again")
    rng, run = random.Random(seed), tmp_path / "runs" / "job"
    resumes, step = 0, 0
    while resumes < num_resumes:
        job = zygote.start(tmp_path, 1, ARGUMENTS)
        step += rng.randrange(3, 9)
        wait_for_step(job, run, step)
        zygote.signal(job.pids, signal.SIGKILL if how == "killed" else signal.SIGTERM)
        job.wait()
        resumes += 1
    job = zygote.start(tmp_path, 1, ARGUMENTS)
    assert job.wait() == [0], job.output()[-3000:]
    assert len(list(run.glob("events.out.tfevents.*"))) == num_resumes + 1
    assert_every_point_once(run)
