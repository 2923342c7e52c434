"""What ds_config.json may say, and who wins."""

import json
from pathlib import Path

import pytest

from alphazero.config import load_config
from alphazero.errors import ConfigError
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.deepspeed_config import engine_config, merge, read_deepspeed_settings

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def write(tmp_path):
    def write_table(table):
        path = tmp_path / "ds.json"
        path.write_text(table if isinstance(table, str) else json.dumps(table))
        return path

    return write_table


def test_the_shipped_file_is_accepted_and_silent_about_what_flags_own():
    settings = read_deepspeed_settings(REPOSITORY / "ds_config.json")
    assert (settings.zero_stage, settings.precision, settings.clip_gradients) == (None, None, None)


def test_it_beats_the_defaults(write):
    settings = read_deepspeed_settings(
        write({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "gradient_clipping": 1.5})
    )
    config = merge(load_config("", {}), settings)
    assert (config.training.zero_stage, config.training.precision) == (2, "bf16")
    assert config.optimizer.clip_gradients == 1.5


def test_a_flag_beats_it(write):
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 2}}))
    assert merge(load_config("", {"zero_stage": "1"}), settings).training.zero_stage == 1


def test_a_toml_file_that_contradicts_it_is_an_error(write, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text("[training]\nzero_stage = 1\n")
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 2}}))
    with pytest.raises(
        ConfigError, match=r"ds\.json: zero_stage = 2 contradicts zero_stage = 1 of mine\.toml"
    ):
        merge(load_config(str(toml), {}), settings)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"train_batch_size": 64}, "--batch-size owns it"),
        ({"optimizer": {"type": "Adam"}}, "--optimizer owns it"),
        ({"fp16": {"enabled": True}}, "fp16 is not supported yet"),
        ({"zero_optimisation": {}}, "no such key"),
        ({"zero_optimization": {"stage": 4}}, "wanted 0, 1, 2 or 3"),
        ({"zero_optimization": 3}, "wanted an object"),
        ({"gradient_clipping": -1}, "at least 0"),
        ("[]", "wanted an object"),
        ("{,}", r"ds\.json:1: .*wanted JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(write, table, message):
    with pytest.raises(ConfigError, match=message):
        read_deepspeed_settings(write(table))


def test_auto_and_switched_off_blocks_say_nothing(write):
    settings = read_deepspeed_settings(write({"train_batch_size": "auto", "fp16": {"enabled": False}}))
    assert settings.precision is None


def test_the_engine_gets_batch_arithmetic_that_adds_up():
    config = load_config("", {})
    table = engine_config(
        config, read_deepspeed_settings(REPOSITORY / "ds_config.json"), BatchPlan(1024, 128, 3)
    )
    sizes = [table[key] for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")]
    assert sizes == [128, 3]
    assert table["train_batch_size"] == 128 * 3 * 3
