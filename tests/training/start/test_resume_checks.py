"""What a resume does with a run whose network has heads of another size."""

import dataclasses
from typing import Any

from alphazero.network.weights.checkpoint import TrainingState, load
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import Config
from alphazero.settings.scope import kept_settings
from alphazero.training.start.resume_checks import check_same_run
from tests.support.paths import FIXTURES

RUN = FIXTURES / "v0/selfplay"


def resumed(section: str, **values: object) -> tuple[TrainingState, Config]:
    """A run with these values, and the settings that it continues with."""
    saved = load(RUN / "checkpoints/step-00000008").state
    config: dict[str, Any] = {**saved.config, section: {**saved.config[section], **values}}
    saved = dataclasses.replace(saved, config=config)
    return saved, kept_settings(config, saved.micro_batch_size, Config())


def test_a_run_with_heads_of_another_size_keeps_them():
    saved, config = resumed("network", value_hidden=24)
    assert config.network.value_hidden == 24
    assert check_same_run(RunDirectory(RUN), saved, config) == []
