"""The table of keys is whole, and docs/deepspeed.md names what is in it."""

from dataclasses import fields

import pytest

from alphazero.settings.deepspeed_file import is_off
from alphazero.settings.deepspeed_keys import BLOCKS, IGNORED, KEYS, PASSED_ON, REFUSED, key_at
from alphazero.settings.load import SECTIONS
from alphazero.settings.sections import OptimizerConfig, RunConfig, TrainingConfig
from tests.support.paths import REPOSITORY


def test_the_page_names_every_key():
    page = (REPOSITORY / "docs" / "deepspeed.md").read_text()
    paths = {*(key.path for key in KEYS), *REFUSED, *IGNORED, *PASSED_ON}
    assert [path for path in sorted(paths) if f"`{path.rpartition('.')[2]}`" not in page] == []


def test_every_setting_that_a_key_sets_has_a_field():
    known = {entry.name for kind in SECTIONS.values() for entry in fields(kind)}
    assert {name for key in KEYS for name in key.sets.split()} <= known


def test_a_setting_of_training_without_a_flag_has_a_key_that_sets_it():
    names = {name for key in KEYS for name in key.sets.split()}
    for kind in (OptimizerConfig, TrainingConfig, RunConfig):
        for entry in fields(kind):
            assert entry.metadata["has_flag"] or entry.name in names


def test_a_path_means_one_thing_in_each_variant():
    paths = [(key.path, name) for key in KEYS for name in key.variants or ("",)]
    assert len({*paths}) == len(paths)
    assert not ({key.path for key in KEYS} | BLOCKS) & (REFUSED.keys() | IGNORED) - {
        "optimizer.params.adam_w_mode"  # Adam's alone
    }
    assert not REFUSED.keys() & IGNORED
    assert key_at("optimizer.params.betas", "SGD") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (False, True),
        (None, True),
        ({}, True),
        ({"enabled": False, "x": 1}, True),
        ({"device": "none"}, True),
        ({"a": {"shared_parameters": {"enabled": False}, "groups": {"b": {"c": 1}}}}, True),
        (True, False),
        (0, False),
        ({"x": 1}, False),
        ({"enabled": True}, False),
        ({"a": {"enabled": False}, "b": {"c": {"enabled": True}}}, False),
    ],
)
def test_what_asks_for_nothing_is_off(value, expected):
    assert is_off(value) is expected
