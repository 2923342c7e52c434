"""A run that continues has the settings of its checkpoint, whatever presets and defaults have become."""

import dataclasses
import json
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError
from alphazero.cli.command_table import build_parser
from alphazero.cli.training.train import read_settings
from alphazero.settings.load import SECTIONS, Config, load_config, preset_directory, to_table
from alphazero.settings.scope import changed_settings, kept_line, kept_settings, listed
from alphazero.settings.sections import AUTO

OLD_RUN = to_table(load_config("chess_20x256", {"batch_size": "1024", "lr_scaling": "none"}))


def kept(config: Config, saved: dict[str, object] = OLD_RUN, micro_batch_size: int = 256) -> Config:
    """As JSON has the settings of a checkpoint."""
    return kept_settings(json.loads(json.dumps(saved)), micro_batch_size, config)


def typed(*arguments: str) -> Config:
    """The settings of a command line, with a GPU."""
    return read_settings(build_parser("train").parse_args(arguments), "chess_20x256")


@pytest.mark.parametrize("arguments", [(), ("--config", "chess_20x256"), ("--steps", "70000")])
def test_a_run_of_batch_1024_goes_on_with_it_though_the_preset_says_4096(arguments):
    now = typed(*arguments)
    assert now.training.batch_size == 4096
    result = kept(now)
    assert result.training.batch_size == 1024
    assert result.optimizer.lr_scaling == "none"
    assert not [change for change in changed_settings(OLD_RUN, result) if change.name != "steps"]
    assert kept_line(now, result) == [
        "as in the checkpoint: lr_scaling none (not sqrt), batch_size 1024 (not 4096)"
    ]


def test_whatever_a_preset_or_a_default_becomes_the_run_stays_as_it_was():
    """Every setting of every section but those of a start; where a run is kept and what it reads."""
    changed = {}
    for name, kind in SECTIONS.items():
        section = kind()
        values = {
            entry.name: LISTS.get(entry.name) or other_than(getattr(section, entry.name), entry.metadata)
            for entry in dataclasses.fields(kind)
        }
        changed[name] = dataclasses.replace(section, **values)
    saved = to_table(Config(**changed))
    saved["self_play"]["mode"] = "mixed"
    result = kept(Config(), saved, micro_batch_size=saved["training"]["micro_batch_size"])
    assert listed(changed_settings(saved, result)) == []
    left = {change.name for change in changed_settings(saved, result)}
    of_a_start = {"run_name", "runs_dir", "tensorboard", "wandb", "health_interval", "log_format", "quiet"}
    of_a_start |= {
        "git_diff",
        "tensorboard_dir",
        "wandb_project",
        "wandb_team",
        "wandb_group",
        "gradient_accumulation_steps",
        "profile",
    }
    of_a_start |= {"place", "replay", "data", "validation_data", "num_workers", "cache_dir", "verify_data"}
    assert left == of_a_start


LISTS = {
    "lr_milestones": (3,),
    "host_weights": ("a=2",),
    "mute": ("disk",),
    "time_classes": ("blitz",),
}


def other_than(value, metadata):
    """Another one of its kind that is allowed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        words = {"1000": "2000"}
        return next((other for other in metadata["choices"] if other != value), words.get(value, value + "x"))
    if isinstance(value, tuple):
        return ("x",)
    if isinstance(value, int):
        return value + 1
    other, low = value / 2 + 0.125, metadata["minimum"]
    return other if low is None or other >= low else value + 1.0


@pytest.mark.parametrize(
    ("arguments", "section", "name", "value"),
    [
        (("--batch-size", "2048"), "training", "batch_size", 2048),
        (("--learning-rate", "0.5"), "optimizer", "learning_rate", 0.5),
        (("--mixed-precision",), "training", "precision", "auto"),
        (("--config", "connect4"), "network", "game", "connect4"),
    ],
)
def test_what_somebody_asks_for_stays(arguments, section, name, value):
    assert getattr(getattr(kept(typed(*arguments)), section), name) == value


def test_a_file_of_the_users_own_counts_and_a_shipped_one_does_not(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("[training]\nbatch_size = 512\n")
    result = kept(typed("--config", str(mine)))
    assert result.training.batch_size == 512
    assert result.network.blocks == 20
    shipped = preset_directory() / "chess_20x256.toml"
    assert kept(typed("--config", str(shipped))).training.batch_size == 1024


def test_a_preset_asks_for_its_shape_and_an_older_run_keeps_the_kind_of_its_blocks():
    saved = json.loads(json.dumps(OLD_RUN))
    saved["network"] |= {"se_ratio": 0, "policy_head": "convolution"}
    now = typed("--config", "chess_20x256")
    result = kept(now, saved)
    assert (result.network.se_ratio, result.network.policy_head) == (0, "convolution")
    assert "se_ratio 0 (not 8), policy_head convolution (not attention)" in kept_line(now, result)[0]
    assert kept(typed("--config", "chess_cpu"), saved).network.blocks == 6


def test_what_ds_config_json_says_counts(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text('{"gradient_clipping": 2.5}')
    assert kept(typed("--deepspeed-config", str(file))).optimizer.clip_gradients == 2.5


def test_another_length_counts_where_the_run_was_given_steps():
    saved = json.loads(json.dumps(OLD_RUN))
    saved["training"]["steps"] = 100
    assert kept(typed(), saved).training.steps == 100
    assert kept(typed("--epochs", "2"), saved).training.steps == 0
    assert kept(typed("--generations", "2"), saved).training.steps == 0
    assert kept(typed("--epochs", "2", "--steps", "7"), saved).training.steps == 7


def test_the_micro_batch_is_the_one_that_fitted_and_one_that_was_chosen_is_chosen_again():
    saved = json.loads(json.dumps(OLD_RUN))
    assert kept(typed(), saved, 128).training.micro_batch_size == 0
    saved["training"]["micro_batch_size"] = 256
    assert kept(typed(), saved, 128).training.micro_batch_size == 128
    saved["training"]["micro_batch_size"] = AUTO
    assert kept(typed(), saved, 128).training.micro_batch_size == AUTO


def test_a_setting_that_the_checkpoint_does_not_know_has_its_default():
    saved = json.loads(json.dumps(OLD_RUN))
    del saved["optimizer"]["lr_scaling"], saved["search"]
    assert kept(typed(), saved).optimizer.lr_scaling == "none"
    assert kept(typed(), saved).search == Config().search


@pytest.mark.parametrize("value", ["many", 0, None, [3], {}])
def test_a_checkpoint_with_an_impossible_setting_is_an_error_of_one_line(value):
    saved = json.loads(json.dumps(OLD_RUN))
    saved["training"]["batch_size"] = value
    with pytest.raises(ConfigError, match=r"checkpoint: batch_size: "):
        kept(typed(), saved)


def test_what_differs_is_shown_as_people_write_it_and_logging_is_not_worth_a_word():
    saved = json.loads(json.dumps(OLD_RUN))
    saved["optimizer"]["lr_milestones"] = [10, 20]
    saved["optimizer"]["learning_rate"] = 0.0005
    saved["training"]["log_interval"] = 3
    now = typed("--batch-size", "1024", "--lr-scaling", "none")
    assert kept_line(now, kept(now, saved)) == [
        "as in the checkpoint: learning_rate 0.0005 (not 0.002), lr_milestones [10, 20] (not [])"
    ]


def test_a_learning_rate_that_somebody_names_is_not_scaled_by_a_preset(tmp_path: Path):
    assert typed().optimizer.lr_scaling == "sqrt"
    assert typed("--batch-size", "1024").optimizer.lr_scaling == "sqrt"
    assert typed("--lr", "0.001").optimizer.lr_scaling == "none"
    assert typed("--lr", "0.001", "--lr-scaling", "linear").optimizer.lr_scaling == "linear"
    saved = json.loads(json.dumps(OLD_RUN))
    saved["optimizer"]["lr_scaling"] = "sqrt"
    assert kept(typed("--lr", "0.01"), saved).optimizer.lr_scaling == "none"
    assert kept(typed(), saved).optimizer.lr_scaling == "sqrt"
