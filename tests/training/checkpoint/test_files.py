"""What a save that was killed left undone is done at the next start."""

import dataclasses

import pytest

from alphazero.training.checkpoint import files as checkpoint_files
from alphazero.training.checkpoint.checkpoint import Checkpoint, save
from tests.support.jobs.saving import checkpoint_of


def with_loss(step: int, loss: float) -> Checkpoint:
    """A checkpoint whose validation said so."""
    made = checkpoint_of(step)
    return dataclasses.replace(made, state=dataclasses.replace(made.state, figures={"policy_loss": loss}))


@pytest.mark.parametrize(("loss", "best"), [(2.4, 3), (2.6, 1)])
def test_a_checkpoint_that_was_killed_before_its_marks_gets_them(tmp_path, loss, best):
    for step, figure in ((1, 2.5), (2, 2.7)):
        path = save(tmp_path, with_loss(step, figure))
        checkpoint_files.mark_best(tmp_path, path, {"policy_loss": figure})
    save(tmp_path, with_loss(3, loss))
    # Killed after the rename: `latest`, marks and removals never came.
    (tmp_path / "latest").write_text("step-00000002\n")
    checkpoint_files.settle(tmp_path, keep=1)
    assert (tmp_path / "latest").read_text() == "step-00000003\n"
    assert checkpoint_files.find_best(tmp_path, "policy_loss").name == f"step-{best:08d}"
    assert {path.name for path in tmp_path.glob("step-*")} == {f"step-{best:08d}", "step-00000003"}
