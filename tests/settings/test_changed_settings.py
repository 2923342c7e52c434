"""Settings that a resume finds changed."""

import dataclasses

from alphazero.settings.load import Config, to_table
from alphazero.settings.scope import Change, changed_settings, listed


def config_with(section: str, **changes: object) -> Config:
    return dataclasses.replace(
        Config(), **{section: dataclasses.replace(getattr(Config(), section), **changes)}
    )


def test_the_same_settings_are_no_change():
    assert changed_settings(to_table(Config()), Config()) == []


def test_a_change_is_one_line_with_both_values():
    changes = changed_settings(to_table(Config()), config_with("optimizer", learning_rate=0.05))
    assert changes == [Change("optimizer", "learning_rate", 0.001, 0.05)]
    assert list(map(str, listed(changes))) == ["learning_rate 0.001 -> 0.05"]


def test_lists_and_words_are_shown_as_people_write_them():
    config = config_with("optimizer", lr_milestones=(100, 200), lr_schedule="step")
    assert list(map(str, listed(changed_settings(to_table(Config()), config)))) == [
        "lr_schedule cosine -> step",
        "lr_milestones [] -> [100, 200]",
    ]


def test_a_setting_that_the_checkpoint_does_not_know_had_its_default():
    saved = to_table(Config())
    del saved["optimizer"]["weight_decay"]
    assert changed_settings(saved, Config()) == []
    changes = changed_settings(saved, config_with("optimizer", weight_decay=0.5))
    assert list(map(str, listed(changes))) == ["weight_decay 0.0001 -> 0.5"]


def test_paths_workers_and_logging_change_from_start_to_start_without_a_word():
    config = config_with("run", run_name="other", tensorboard=False)
    changes = changed_settings(to_table(Config()), config)
    assert [change.name for change in changes] == ["run_name", "tensorboard"]
    assert listed(changes) == []
