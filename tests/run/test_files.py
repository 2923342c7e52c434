"""What a save that was killed left undone is done at the next start."""

import dataclasses

import pytest

from alphazero.base.errors import CheckpointError
from alphazero.network.weights.checkpoint import Checkpoint, save
from alphazero.run import checkpoint_files
from tests.support.jobs.saving import checkpoint_of


def with_loss(step: int, loss: float) -> Checkpoint:
    """A checkpoint whose validation said so."""
    made = checkpoint_of(step)
    return dataclasses.replace(made, state=dataclasses.replace(made.state, figures={"policy_loss": loss}))


@pytest.mark.parametrize(("loss", "best"), [(2.4, 3), (2.6, 1)])
def test_a_checkpoint_that_was_killed_before_the_removals_counts(tmp_path, loss, best):
    for step, figure in ((1, 2.5), (2, 2.7), (3, loss)):
        save(tmp_path, with_loss(step, figure))
    checkpoint_files.settle(tmp_path, keep=1)
    assert checkpoint_files.find_best(tmp_path, "policy_loss").name == f"step-{best:08d}"
    assert {path.name for path in tmp_path.glob("step-*")} == {f"step-{best:08d}", "step-00000003"}


def foreign_things(directory, elsewhere):
    """What looks like ours by its name alone, and what it leads to; every path that must stay."""
    elsewhere.mkdir()
    linked = save(elsewhere, checkpoint_of(2))
    (directory / "step-00000002").symlink_to(linked)
    (directory / ".step-00000007.tmp").symlink_to(elsewhere)
    for name in ("step-notes", "step-00000001", ".step-00000009.tmp", ".step-00000008.removed.tmp"):
        (directory / name).mkdir()
        (directory / name / "thesis.tex").write_text("years of work")
    return [*directory.iterdir(), *directory.glob("*/thesis.tex"), linked / "manifest.json"]


def test_only_what_carries_our_marker_is_ever_removed_and_no_link_is_followed(tmp_path):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    foreign = foreign_things(directory, tmp_path / "elsewhere")
    saved = [save(directory, checkpoint_of(step)) for step in (3, 4, 5)]
    half = directory / ".step-00000006.tmp"
    half.mkdir()
    (half / "weights.safetensors").write_text("half")
    checkpoint_files.settle(directory, keep=1)
    assert [path.exists() for path in saved] == [False, False, True]
    assert not half.exists()
    assert all(path.exists() for path in foreign)


def test_what_others_named_like_checkpoints_does_not_count_among_those_that_are_kept(tmp_path):
    saved = [save(tmp_path, checkpoint_of(step)) for step in (3, 4)]
    (tmp_path / "step-99999999").mkdir()
    assert checkpoint_files.prune(tmp_path, keep=2) == []
    assert all(path.exists() for path in saved)


def test_nothing_is_pruned_through_a_link(tmp_path):
    directory = tmp_path / "elsewhere"
    saved = [save(directory, checkpoint_of(step)) for step in (3, 4)]
    (tmp_path / "checkpoints").symlink_to(directory)
    with pytest.raises(CheckpointError, match="is a link"):
        checkpoint_files.prune(tmp_path / "checkpoints", keep=1)
    assert all(path.exists() for path in saved)


def test_a_foreign_directory_in_the_way_of_a_checkpoint_is_named_and_stays(tmp_path):
    (tmp_path / "step-00000003").mkdir()
    (tmp_path / "step-00000003" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"step-00000003/manifest\.json"):
        save(tmp_path, checkpoint_of(3))
    assert (tmp_path / "step-00000003" / "thesis.tex").exists()
