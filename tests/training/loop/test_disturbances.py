"""Steps that go wrong: memory that runs out, numbers that are not finite."""

import json

import pytest

from tests.support.jobs.jobs import state_of, step_lines
from tests.support.paths import SUPPORT

DISTURBED = SUPPORT / "jobs" / "disturbed.py"
STEPS = ("--steps", "20")


def losses(directory):
    return {line["step"]: line["loss"] for line in step_lines(directory)}


@pytest.mark.parametrize(
    ("ranks", "stage", "where"),
    [pytest.param(1, 0, "memory", marks=pytest.mark.slow), (2, 1, "backward"), (2, 3, "backward")],
)
def test_memory_that_runs_out_is_answered_by_smaller_micro_batches(
    zygote, tmp_path, random_store, monkeypatch, ranks, stage, where
):
    """The last rank holds 20 positions; from there on the run is that of micro-batches of 16."""
    zygote.run_job(tmp_path / "plain", random_store, ranks, *STEPS, "--micro-batch-size", "16")
    monkeypatch.setenv("DISTURBANCE", f"{where}:20")
    monkeypatch.setenv("DISTURBED_RANK", str(ranks - 1))
    arguments = (*STEPS, "--zero-stage", str(stage))
    output = zygote.run_job(tmp_path / "full", random_store, ranks, *arguments, script=DISTURBED)
    assert f"memory on rank {ranks - 1} in step 1" in output
    assert "128 = 8 micro-batches" in output
    expected, got = step_lines(tmp_path / "plain"), step_lines(tmp_path / "full")
    assert [line["sample_id_sum"] for line in got] == [line["sample_id_sum"] for line in expected]
    assert losses(tmp_path / "full") == pytest.approx(losses(tmp_path / "plain"), rel=1e-6)
    assert state_of(tmp_path, "full", 20)["micro_batch_size"] == 16


def test_memory_below_one_position_ends_the_run_with_a_line(zygote, tmp_path, random_store, monkeypatch):
    monkeypatch.setenv("DISTURBANCE", "memory:0")
    output = zygote.run_job(tmp_path, random_store, 1, *STEPS, script=DISTURBED, status=3)
    assert "in step 1 with" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("stage", "told_late"), [(0, ""), (0, "1"), pytest.param(2, "", marks=pytest.mark.slow)]
)
def test_a_step_that_is_not_finite_is_skipped_and_leaves_no_trace(
    zygote, tmp_path, random_store, monkeypatch, stage, told_late
):
    """Skipping data steps 6 to 8 is like a run whose 7th to 9th step never changed anything."""
    monkeypatch.setenv("TOLD_LATE", told_late)
    monkeypatch.setenv("DISTURBANCE", "nan:6-8")
    monkeypatch.setenv("DISTURBED_RANK", "1")
    arguments = ("--steps", "9", "--zero-stage", str(stage), "--checkpoint-interval", "6")
    output = zygote.run_job(tmp_path, random_store, 2, *arguments, script=DISTURBED)
    for number in (1, 2, 3):
        line = (
            f"step {number + 6} skipped: loss or gradients not finite on rank 1 ({number} in a row, limit 10)"
        )
        assert line in output
    assert [line["step"] for line in step_lines(tmp_path)] == [1, 2, 3, 4, 5, 6]
    before, after = ((tmp_path / f"runs/job/checkpoints/step-0000000{step}").joinpath for step in (6, 9))
    for name in ("weights.safetensors", "optimizer.safetensors"):
        assert before(name).read_bytes() == after(name).read_bytes()
    assert json.loads(after("state.json").read_text())["skipped_steps"] == 3


@pytest.mark.parametrize("told_late", ["1", pytest.param("", marks=pytest.mark.slow)])
def test_after_too_many_bad_steps_the_last_checkpoint_is_taken_up_with_other_positions(
    zygote, tmp_path, random_store, monkeypatch, told_late
):
    """Data steps 10 to 12 are bad; the run returns to step 8 and sees data steps 13, 14, ... from there."""
    monkeypatch.setenv("TOLD_LATE", told_late)
    monkeypatch.setenv("DISTURBANCE", "nan:10-12")
    arguments = ("--steps", "16", "--max-skipped-steps", "3", "--checkpoint-interval", "8")
    output = zygote.run_job(tmp_path / "bad", random_store, 1, *arguments, script=DISTURBED)
    assert "back to step 8" in output
    zygote.run_job(tmp_path / "plain", random_store, 1, "--steps", "24")
    seen = {line["step"]: line["sample_id_sum"] for line in step_lines(tmp_path / "bad")}
    plain = {line["step"]: line["sample_id_sum"] for line in step_lines(tmp_path / "plain")}
    assert seen == {
        **{step: plain[step] for step in range(1, 9)},
        **{step: plain[step + 5] for step in range(9, 17)},
    }
    assert state_of(tmp_path, "bad", 16)["data_offset"] == 5


def test_a_run_that_stays_bad_ends_with_a_line_and_its_last_checkpoint(
    zygote, tmp_path, random_store, monkeypatch
):
    monkeypatch.setenv("DISTURBANCE", "nan:4-99")
    arguments = ("--steps", "30", "--max-skipped-steps", "2", "--checkpoint-interval", "2")
    output = zygote.run_job(tmp_path, random_store, 1, *arguments, script=DISTURBED, status=3)
    assert "diverges" in output and "after 2 returns" in output
    assert "Traceback" not in output
    assert sorted(path.name for path in (tmp_path / "runs/job/checkpoints").iterdir())[-1] == "step-00000004"


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["0.2,1.8", "2,1"])
def test_unlike_hosts_share_the_batch_by_weight_and_train_the_same(
    zygote, tmp_path, random_store, monkeypatch, weights
):
    zygote.run_job(tmp_path / "one", random_store, 1, *STEPS)
    monkeypatch.setenv("WEIGHTS", weights)
    output = zygote.run_job(tmp_path / "two", random_store, 2, *STEPS, script=DISTURBED)
    passes = {"2,1": "3, 1", "0.2,1.8": "1, 4"}[weights]  # of the second, one weighs nothing
    assert f"over 2 ranks, {passes} passes" in output
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-3)
