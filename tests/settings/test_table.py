"""The table of keys is whole, and docs/deepspeed.md shows it as it is."""

from dataclasses import fields

import pytest

from alphazero.settings.deepspeed_key import Meaning, is_off
from alphazero.settings.deepspeed_keys import ALIASES, BLOCKS, BY_PATH, KEYS, OLD_NAMES, key_at
from alphazero.settings.load import SECTIONS
from tools.deepspeed_keys_page import PAGE, between, key_tables


def test_the_page_shows_the_table():
    text = PAGE.read_text()
    assert text == between(text, "keys", key_tables()), "python -m tools.deepspeed_keys_page writes it anew"


def test_every_setting_that_a_key_sets_has_a_field():
    known = {f"{section}.{entry.name}" for section, kind in SECTIONS.items() for entry in fields(kind)}
    assert {target for key in KEYS for target in key.sets} <= known


def test_a_setting_without_a_flag_names_the_key_that_sets_it():
    pairs = {(key.path, target) for key in KEYS for target in key.sets}
    for section, kind in SECTIONS.items():
        for entry in fields(kind):
            key = entry.metadata["deepspeed_key"]
            assert not key or (key, f"{section}.{entry.name}") in pairs


def test_every_block_and_every_other_name_leads_to_a_key():
    assert BY_PATH.keys() >= BLOCKS
    assert {*ALIASES.values()} <= BY_PATH.keys()
    assert not ({*ALIASES} | {*OLD_NAMES}) & BY_PATH.keys()


def test_a_path_has_one_key_for_each_variant():
    for path, keys in BY_PATH.items():
        variants = [name for key in keys for name in key.variants or ("",)]
        assert len({*variants}) == len(variants), path


def test_what_is_honoured_or_passed_on_is_checked_and_defaults_pass():
    for key in KEYS:
        if key.meaning in (Meaning.HONOURED, Meaning.PASSED_ON) and key.path not in BLOCKS:
            assert key.check is not None, key.path
            assert key.default is None or key.check.accepts(key.default), key.path
    assert key_at("optimizer.params.betas", "SGD") is None


def test_a_reason_is_one_short_phrase():
    for key in KEYS:
        if key.meaning is Meaning.PASSED_ON or key.path in BLOCKS:
            continue
        assert 4 < len(key.why) <= 110 and "\n" not in key.why and not key.why.endswith("."), key.path


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
