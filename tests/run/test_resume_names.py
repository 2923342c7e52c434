"""What `--resume` understands, and what it says of what it does not."""

import pytest

from alphazero.base.errors import AlphaZeroError, CheckpointError, ConfigError
from alphazero.network.weights.checkpoint import save
from alphazero.run.find import check_spelling, find_resumed
from tests.support.jobs.saving import checkpoint_of


@pytest.fixture
def directory(tmp_path):
    """Checkpoints of steps 8, 24 and 40 of a run; that of step 24 is the best."""
    directory = tmp_path / "runs" / "job" / "checkpoints"
    for step in (8, 24, 40):
        save(directory, checkpoint_of(step, {"composite": 1.0, "policy_loss": 2.0} if step == 24 else {}))
    return directory


@pytest.mark.parametrize(
    ("resume", "step"),
    [
        ("latest", 40),
        ("best-composite", 24),
        ("composite", 24),
        ("policy_loss", 24),
        ("8", 8),
        ("step-8", 8),
        ("step-00000008", 8),
        ("{directory}/step-00000024", 24),
        ("{directory}/step-00000024/", 24),
        ("{directory}", 40),
        ("{directory}/..", 40),
    ],
)
def test_every_way_to_name_a_checkpoint_is_understood(directory, resume, step):
    named = resume.format(directory=directory)
    check_spelling(named)
    found = find_resumed(directory, named, print)
    assert found is not None and found.resolve() == (directory / f"step-{step:08d}").resolve()


@pytest.mark.parametrize(
    "resume", ["composit", "best", "newest", "best-strength", "step-", "step-x", "Latest"]
)
def test_a_word_that_names_nothing_is_an_error_that_says_the_right_spellings(resume):
    with pytest.raises(ConfigError) as caught:
        check_spelling(resume)
    told = str(caught.value)
    assert told.startswith(
        f"--resume {resume}: names no checkpoint; expected latest, best-METRIC (policy_top1,"
    )
    assert "40 or step-00000040" in told and "\n" not in told


@pytest.mark.parametrize(
    ("resume", "message"),
    [
        ("41", "has no step-00000041; there is step-00000008, step-00000024, step-00000040"),
        ("best-value_mse", "no best-value_mse; there is policy_loss, composite"),
        ("{directory}/step-00000041", "no complete checkpoint"),
        ("{directory}/step-00000040/state.json", "no complete checkpoint"),
        (
            "/nowhere",
            "--resume /nowhere: no complete checkpoint",
        ),
    ],
)
def test_a_name_of_nothing_says_what_there_is(directory, resume, message):
    with pytest.raises(AlphaZeroError, match=message):
        find_resumed(directory, resume.format(directory=directory), print)


def test_a_damaged_checkpoint_that_was_asked_for_is_an_error(directory):
    (directory / "step-00000008" / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"state\.json: missing"):
        find_resumed(directory, "8", print)
