"""What a resume does with a run whose settings have become constants."""

import dataclasses
from typing import Any

import pytest

from alphazero.base.errors import CheckpointError
from alphazero.network.weights.checkpoint import TrainingState, load
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import Config
from alphazero.settings.scope import kept_settings
from alphazero.training.start.resume_checks import check_same_run
from tests.support.paths import FIXTURES

RUN = FIXTURES / "v0/supervised"


def resumed(section: str, **values: object) -> tuple[TrainingState, Config]:
    """A run with these values, which are no settings now, and the settings that it continues with."""
    saved = load(RUN / "checkpoints/step-00000008").state
    config: dict[str, Any] = {**saved.config, section: {**saved.config[section], **values}}
    saved = dataclasses.replace(saved, config=config)
    return saved, kept_settings(config, saved.micro_batch_size, Config()).config


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("data", "history_fill", "no", r"history_fill was 'no' at step 8, is 'fen_only'; .*--fresh-start"),
        ("search", "proofs", False, "proofs was False at step 8, is True"),
        ("training", "channels_last", False, "channels_last was False at step 8, is True"),
    ],
)
def test_a_run_with_another_value_of_what_changes_its_numbers_is_refused_by_name(
    section: str, name: str, value: object, message: str
):
    with pytest.raises(CheckpointError, match=message):
        check_same_run(RunDirectory(RUN), *resumed(section, **{name: value}))


def test_a_run_with_another_value_of_what_changes_no_number_continues_with_a_line():
    lines = check_same_run(RunDirectory(RUN), *resumed("training", pin_ranks=False, max_rollbacks=5))
    assert lines == [
        "changed: max_rollbacks 5 -> 2 (it is a constant)",
        "changed: pin_ranks False -> True (it is a constant)",
    ]


def test_a_run_with_heads_of_another_size_keeps_them():
    saved, config = resumed("network", value_hidden=24)
    assert config.network.value_hidden == 24
    assert check_same_run(RunDirectory(RUN), saved, config) == []
