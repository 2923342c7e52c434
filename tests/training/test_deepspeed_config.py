"""What ds_config.json may say, and who wins."""

import json
from pathlib import Path

import pytest
from jobs import run_job, step_lines

from alphazero.config import load_config
from alphazero.errors import ConfigError
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.deepspeed_config import engine_config, merge, read_deepspeed_settings
from alphazero.training.deepspeed_lint import (
    COUNT,
    FACTOR,
    PASSED_ON,
    SIZE,
    SWITCH,
    TABLE,
    TRAFFIC,
    ZERO_ANY_STAGE,
    ZERO_STAGE_2,
    ZERO_STAGE_3,
)

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
        ({"zero_optimisation": {}}, "no such key"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage = 4: wanted 0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": True}}, "wanted 0, 1, 2 or 3"),
        ({"zero_optimization": 3}, "wanted an object"),
        ({"zero_optimization": {"overlap": True}}, "zero_optimization.overlap = True: no such key"),
        ({"zero_optimization": {"reduce_bucket_size": 0}}, "a whole number of at least 1"),
        ({"zero_optimization": {"reduce_bucket_size": True}}, "a whole number of at least 1"),
        ({"zero_optimization": {"reduce_scatter": 1}}, "true or false"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, "DeepSpeed's own CPU optimizer"),
        ({"zero_optimization": {"cpu_offload": True}}, "deprecated for offload_optimizer"),
        ({"zero_optimization": {"zero_quantized_gradients": True}}, "it rounds"),
        ({"wall_clock_breakdown": True}, "timers fail"),
        ({"elasticity": {"enabled": True}}, "has it no more"),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, "wanted it absent"),
        ({"communication_data_type": "int8"}, "'fp32', 'fp16' or 'bf16'"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "bf16 and fp16 are both enabled"),
        ({"fp16": {"enabled": True, "loss_scale": 128}}, "0, a dynamic scale"),
        ({"fp16": {"enabled": True, "hysteresis": 2}}, "halves at every overflow"),
        ({"fp16": {"initial_scale_power": 12}}, "fp16.initial_scale_power without fp16.enabled"),
        ({"torch_autocast": {"enabled": True, "dtype": "int8"}}, "'bfloat16' or 'float16'"),
        ('{"zero_optimization": {"stage": 1},\n "zero_optimization": {}}', r"ds\.json:2: .* stands twice"),
        ('{"gradient_clipping": NaN}', "NaN is no number"),
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
        config, read_deepspeed_settings(REPOSITORY / "ds_config.json"), BatchPlan(1024, 128, (1, 1, 1))
    )
    sizes = [table[key] for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")]
    assert sizes == [128, 1]
    assert table["train_batch_size"] == 128 * 3


@pytest.mark.parametrize(
    ("block", "precision"),
    [
        ({"fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": True}}, "bf16"),
        ({"torch_autocast": {"enabled": True, "dtype": "float16"}}, "fp16"),
        ({"bf16": {"enabled": False}}, "fp32"),
        ({}, None),
    ],
)
def test_precision_is_what_its_block_says(write, block, precision):
    assert read_deepspeed_settings(write(block)).precision == precision


def test_the_loss_scale_of_fp16_is_translated(write):
    block = {"enabled": True, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500}
    config = merge(load_config("", {}), read_deepspeed_settings(write({"fp16": block})))
    training = config.training
    assert (training.precision, training.loss_scale, training.loss_scale_window) == ("fp16", 4096, 500)


@pytest.mark.parametrize(
    ("key", "value", "stage", "wanted"),
    [("overlap_comm", True, "1", "2 or 3"), ("stage3_max_live_parameters", 10**6, "2", "3")],
)
def test_an_option_of_another_stage_is_a_contradiction(write, key, value, stage, wanted):
    settings = read_deepspeed_settings(write({"zero_optimization": {key: value}}))
    with pytest.raises(ConfigError, match=f"{key} = {value} contradicts ZeRO stage {stage}: .*{wanted}"):
        merge(load_config("", {"zero_stage": stage}), settings)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_takes_every_option_that_is_let_through(tmp_path, random_store, write, stage):
    """A real job with all of them set at once."""
    values = {SWITCH: True, SIZE: 100_000, COUNT: 1_000, TRAFFIC: "fp32", FACTOR: 1.0, TABLE: {}}
    kinds = {**ZERO_ANY_STAGE, **(ZERO_STAGE_2 if stage > 1 else {}), **(ZERO_STAGE_3 if stage == 3 else {})}
    zero = {key: values[kind] for key, kind in kinds.items()}
    table = {key: values[kind] for key, kind in PASSED_ON.items()} | {"prescale_gradients": stage < 2}
    path = write({**table, "zero_optimization": {**zero, "stage": stage}})
    run_job(tmp_path / "job", random_store, 2, "--steps", "3", "--deepspeed_config", str(path))
    assert len(step_lines(tmp_path / "job")) == 3
