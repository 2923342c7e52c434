"""Ranks with different settings: every setting that changes the arithmetic is compared and named."""

import dataclasses

import pytest

from alphazero.base.errors import ConfigError
from alphazero.base.section import Scope, scope_of
from alphazero.settings.deepspeed_file import DeepSpeedSettings, FileValue
from alphazero.settings.load import SECTIONS, Config
from alphazero.training.start.agreement import check_agreement, differences, facts_of

VERSIONS = {"torch": "2.13.0", "deepspeed": "0.19.8", "alphazero": "0.1.0", "commit": "abc"}
HOSTS = ["gpu1", "gpu1", "gpu2", "gpu2"]
SETTINGS = [(section, entry.name) for section, kind in SECTIONS.items() for entry in dataclasses.fields(kind)]


DEFAULTS, SILENT = Config(), DeepSpeedSettings()


def facts(config: Config = DEFAULTS, settings: DeepSpeedSettings = SILENT, **versions: str):
    start = {"resume": "", "fresh_start": False}
    return facts_of(dataclasses.replace(config, deepspeed=settings), start, {**VERSIONS, **versions})


def other_than(value: object) -> object:
    """Another value of the same type; None and unknown types are the test's own mistake."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    assert isinstance(value, tuple)
    return (*value, "x")


@pytest.mark.parametrize(("section", "name"), SETTINGS, ids=lambda word: word)
def test_every_setting_but_paths_workers_and_logging_is_compared(section: str, name: str):
    old = getattr(Config(), section)
    changed = dataclasses.replace(old, **{name: other_than(getattr(old, name))})
    theirs = facts(dataclasses.replace(Config(), **{section: changed}))
    found = differences([facts(), facts(), theirs, theirs], HOSTS)
    if scope_of(SECTIONS[section], name) is Scope.NODE:
        assert found == []
    else:
        assert [key for key, _ in found] == [name]


def test_what_differs_is_named_with_both_values_and_the_hosts_that_have_them():
    training = dataclasses.replace(Config().training, batch_size=512)
    theirs = facts(dataclasses.replace(Config(), training=training))
    with pytest.raises(ConfigError) as caught:
        check_agreement([facts(), facts(), theirs, theirs], HOSTS, check=True)
    assert "batch_size: 1024 on gpu1 (ranks 0, 1), 512 on gpu2 (ranks 2, 3)" in str(caught.value)
    assert caught.value.exit_code == 2 and caught.value.found_by_all_ranks


def test_a_ds_config_that_says_something_else_is_a_difference_and_its_path_is_not():
    stage = FileValue("zero_stage", 1, "zero_optimization.stage", "/a/ds_config.json:3")
    here = DeepSpeedSettings(source="/a/ds_config.json", values=(stage,))
    elsewhere = dataclasses.replace(stage, location="/b/ds_config.json:7")
    there = DeepSpeedSettings(source="/b/ds_config.json", values=(elsewhere,))
    assert differences([facts(settings=here), facts(settings=there)], HOSTS[1:3]) == []
    there = dataclasses.replace(there, zero_options={"reduce_bucket_size": 1000})
    ((key, line),) = differences([facts(settings=here), facts(settings=there)], HOSTS[1:3])
    assert key == "ds_config.json zero_options" and "1000" in line
    there = dataclasses.replace(here, values=(dataclasses.replace(stage, value=2),))
    ((key, line),) = differences([facts(settings=here), facts(settings=there)], HOSTS[1:3])
    assert key == "ds_config.json zero_stage" and "1 on" in line and "2 on" in line


def test_versions_must_be_the_same_and_another_commit_is_only_a_warning():
    with pytest.raises(ConfigError, match=r"torch: 2\.13\.0 on gpu1 .*, 2\.12\.0 on gpu2 "):
        check_agreement([facts(), facts(torch="2.12.0")], ["gpu1", "gpu2"], check=True)
    warnings = check_agreement([facts(), facts(commit="def")], ["gpu1", "gpu2"], check=True)
    assert len(warnings) == 1 and "commit: abc on gpu1 (rank 0), def on gpu2" in warnings[0]


def test_without_the_check_differences_are_warnings():
    warnings = check_agreement([facts(), facts(torch="2.12.0")], ["gpu1", "gpu2"], check=False)
    assert len(warnings) == 1 and "torch: 2.13.0" in warnings[0]


def test_many_differences_are_counted_not_listed_without_end():
    mine = {f"key{number}": 1 for number in range(10)}
    theirs = {f"key{number}": 2 for number in range(10)}
    with pytest.raises(ConfigError, match=r"key7: 1 .*; and 2 other"):
        check_agreement([mine, theirs], ["a", "b"], check=True)
