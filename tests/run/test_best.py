"""The best checkpoints by several metrics are kept, and a run continues from them."""

import json

from alphazero.run.checkpoint_files import best_of, step_of
from tests.support.jobs.jobs import step_lines

ARGUMENTS = ("--validation-interval", "2", "--checkpoint-interval", "100", "--keep-checkpoints", "1")
MORE_IS_BETTER = {"policy_top1": True, "policy_loss": False, "value_mse": False, "composite": False}


def validations(directory):
    lines = map(json.loads, (directory / "runs/job/metrics.jsonl").read_text().splitlines())
    return {line["step"]: line for line in lines if line["kind"] == "validation"}


def test_the_best_by_each_metric_are_kept_and_can_be_resumed(zygote, tmp_path, random_store):
    output = zygote.run_job(tmp_path, random_store, 2, "--steps", "16", *ARGUMENTS)
    figures = validations(tmp_path)
    assert len(figures) == 8
    directory = tmp_path / "runs/job/checkpoints"
    best = best_of(directory)
    for metric, more in MORE_IS_BETTER.items():
        # The first of equals stays the best.
        wanted = (max if more else min)(figures, key=lambda step: figures[step][metric])
        assert best[metric] == (directory / f"step-{wanted:08d}", figures[wanted][metric])
    best_steps = {path.name for path, _ in best.values()}
    assert {path.name for path in directory.glob("step-*")} == best_steps | {"step-00000016"}
    assert "(best policy_top1" in output
    step = step_of(best["composite"][0])
    named = f"best checkpoint   step {step}, composite {best['composite'][1]:.4f}; as a network: "
    assert (f"{named}runs/job@best-composite\n" in output) == (step < 16)

    number = step_of(best["policy_top1"][0])
    before = step_lines(tmp_path)
    output = zygote.run_job(
        tmp_path, random_store, 1, "--steps", "16", *ARGUMENTS, "--resume", "best-policy_top1"
    )
    if number < 16:
        assert f"resumed from step {number}, saved by 2 ranks" in output
        assert "set aside: " in output and "superseded-1-step-00000016" in output
        ids = [[line["sample_id_sum"] for line in lines] for lines in (before, step_lines(tmp_path))]
        assert ids[0] == ids[1]
