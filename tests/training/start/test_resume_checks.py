"""What a resume does with a run whose network has heads of another size, or whose game has other rules."""

import dataclasses
from typing import Any

import pytest

from alphazero.base.errors import CheckpointError
from alphazero.network.model.sizes import on_meta_device
from alphazero.network.weights.checkpoint import Checkpoint, load
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import Config
from alphazero.settings.scope import kept_settings
from alphazero.training.start.resume_checks import check_same_run
from tests.support.paths import FIXTURES

RUN = FIXTURES / "v0/selfplay"


def resumed(section: str, **values: object) -> tuple[Checkpoint, Config]:
    """A run with these values, and the settings that it continues with."""
    saved = load(RUN / "checkpoints/step-00000008")
    table: dict[str, Any] = {**saved.state.config, section: {**saved.state.config[section], **values}}
    config = kept_settings(table, saved.state.micro_batch_size, Config())
    weights = dict(on_meta_device(config.network).state_dict())
    state = dataclasses.replace(saved.state, config=table)
    return dataclasses.replace(saved, state=state, weights=weights), config


def test_a_run_with_heads_of_another_size_keeps_them():
    saved, config = resumed("network", value_hidden=24)
    assert config.network.value_hidden == 24
    assert check_same_run(RunDirectory(RUN), saved, config) == []


def test_rules_that_give_the_network_another_size_are_refused():
    saved, config = resumed("network")
    name = next(name for name in saved.weights if name.startswith("policy") and name.endswith("weight"))
    saved.weights[name] = saved.weights[name][:1]
    with pytest.raises(CheckpointError, match=rf"{name} was \[1, .* at step 8") as caught:
        check_same_run(RunDirectory(RUN), saved, config)
    assert caught.value.found_by_all_ranks


@pytest.mark.parametrize("name", ["place", "replay"])
def test_a_checkpoint_chooses_no_directory_where_this_program_writes_or_reads(name: str) -> None:
    saved, config = resumed("self_play", **{name: "/home/you/project"})
    assert not getattr(config.self_play, name)
    with pytest.raises(CheckpointError, match=f"--{name} was '/home/you/project' at step 8") as caught:
        check_same_run(RunDirectory(RUN), saved, config)
    assert caught.value.found_by_all_ranks
    named = dataclasses.replace(config, self_play=dataclasses.replace(config.self_play, **{name: "other"}))
    assert check_same_run(RunDirectory(RUN), saved, named) == []
