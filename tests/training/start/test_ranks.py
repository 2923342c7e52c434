"""One rank and several compute the same thing."""

import pytest

from tests.support.jobs.jobs import SHARED_OUT, run_job, step_lines, zero_flags
from tests.support.paths import SUPPORT

STEPS = "20"
DISTURBED = SUPPORT / "jobs" / "disturbed.py"


@pytest.fixture(scope="module")
def one_rank(zygote, tmp_path_factory, random_store):
    directory = tmp_path_factory.mktemp("one")
    zygote.run_job(directory, random_store, 1, "--steps", STEPS)
    return step_lines(directory)


def assert_same_training(lines, reference):
    """Same samples in the same step; losses of step 1 within 1e-6 relative, of every step within 1e-3."""
    assert len(lines) == len(reference) == int(STEPS)
    for line, expected in zip(lines, reference, strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)
        assert line["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=5e-2)
    for name, within in (("loss", 1e-6), ("gradient_norm", 1e-4)):
        assert lines[0][name] == pytest.approx(reference[0][name], rel=within)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_train_what_one_rank_trains(zygote, tmp_path, random_store, one_rank, ranks):
    """torchrun starts 2; 3 ranks make surplus passes: 4 micro-batches do not divide."""
    run = run_job if ranks == 2 else zygote.run_job
    output = run(tmp_path, random_store, ranks, "--steps", STEPS)
    assert_same_training(step_lines(tmp_path), one_rank)
    assert f"checkpoint at step {STEPS}: parameters synchronized" in output
    assert f"on {ranks} ranks" in output


# 2: test_attention_runs.py
@pytest.mark.parametrize(
    "stage", [1, *(pytest.param(one, marks=pytest.mark.slow) for one in (3, SHARED_OUT))]
)
def test_every_zero_stage_trains_what_one_rank_trains(zygote, tmp_path, random_store, one_rank, stage):
    zygote.run_job(tmp_path, random_store, 2, "--steps", STEPS, *zero_flags(stage))
    assert_same_training(step_lines(tmp_path), one_rank)


def test_data_shifted_by_one_sample_does_not_pass_for_the_same_training(
    zygote, tmp_path, random_store, one_rank, monkeypatch
):
    monkeypatch.setenv("DISTURBANCE", "shift")
    zygote.run_job(tmp_path, random_store, 2, "--steps", STEPS, script=DISTURBED)
    with pytest.raises(AssertionError):
        assert_same_training(step_lines(tmp_path), one_rank)
    shifted = step_lines(tmp_path)
    assert shifted[0]["loss"] != pytest.approx(one_rank[0]["loss"], rel=1e-6)
