"""Who wins: a flag, ds_config.json, a preset; and what the banner says of it."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.load import decided, load_config
from tests.support.paths import REPOSITORY


def test_it_beats_the_defaults(write):
    settings = read_deepspeed_settings(
        write({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "gradient_clipping": 1.5})
    )
    config = load_config("", {}, settings)
    assert (config.training.zero_stage, config.training.precision) == (2, "bf16")
    assert config.optimizer.clip_gradients == 1.5


@pytest.mark.parametrize("preset", ["chess_cpu", str(REPOSITORY / "configs" / "chess_cpu.toml")])
def test_it_beats_a_preset_by_name_or_path(write, preset):
    settings = read_deepspeed_settings(write({"train_batch_size": 64, "steps_per_print": 3}))
    config = load_config(preset, {}, settings)
    assert (config.training.batch_size, config.training.log_interval) == (64, 3)
    assert config.set_by_json == {"batch_size", "log_interval", "precision"}


def test_a_file_without_a_block_for_it_means_fp32_but_for_a_flag_or_a_toml_file(write, tmp_path):
    settings = read_deepspeed_settings(write({}))
    assert load_config("chess_cpu", {}).training.precision == "auto"
    config = load_config("chess_cpu", {}, settings)
    assert config.training.precision == "fp32"
    assert decided(config) == [f"{settings.source}: precision fp32"]
    assert load_config("chess_cpu", {"precision": "bf16"}, settings).training.precision == "bf16"
    toml = tmp_path / "mine.toml"
    toml.write_text('[training]\nprecision = "bf16"\n')
    assert load_config(str(toml), {}, settings).training.precision == "bf16"
    shipped = read_deepspeed_settings(REPOSITORY / "ds_config.json")
    assert load_config("chess_cpu", {}, shipped).training.precision == "auto"


def test_what_deepspeed_gets_stands_in_the_banner(write):
    zero = {"overlap_comm": False, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "cpu"}}
    table = {"bf16": {"enabled": "auto"}, "zero_optimization": zero, "memory_breakdown": True}
    settings = read_deepspeed_settings(write(table))
    begin = f"{settings.source}: passed on to DeepSpeed: zero_optimization.reduce_bucket_size 500000000, "
    at_zero, _ = decided(load_config("", {}, settings))
    assert at_zero == begin + "memory_breakdown true"
    at_one = decided(load_config("", {"zero_stage": "1"}, settings))[0]
    assert at_one == begin + 'zero_optimization.offload_optimizer {"device": "cpu"}, memory_breakdown true'


def test_a_flag_beats_it_and_the_banner_says_so(write):
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 2}, "steps_per_print": 3}))
    config = load_config("", {"zero_stage": "1"}, settings)
    assert config.training.zero_stage == 1
    first, second = decided(config)
    assert first.endswith("ds.json: log_interval 3, precision fp32")
    assert second.endswith("ds.json: not taken: zero_optimization.stage 2 (--zero-stage 1)")


def test_a_toml_file_that_contradicts_it_is_an_error(write, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text("[training]\nzero_stage = 1\n[optimizer]\nweight_decay = 0.5\n")
    settings = read_deepspeed_settings(write({"zero_optimization": {"stage": 2}}))
    with pytest.raises(ConfigError, match=r"zero_stage = 2 .* = 1 of mine"):
        load_config(str(toml), {}, settings)
    silent = read_deepspeed_settings(write({"optimizer": {"type": "Adam"}}))
    # A default of DeepSpeed's that nobody wrote contradicts nothing.
    assert load_config(str(toml), {}, silent).optimizer.weight_decay == 0.5


def test_a_precision_switched_off_contradicts_a_toml_file_that_asks_for_it(write, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text('[training]\nprecision = "bf16"\n')
    off = read_deepspeed_settings(write({"bf16": {"enabled": False}}))
    with pytest.raises(ConfigError, match=r"enabled = false .*'bf16' of"):
        load_config(str(toml), {}, off)
    other = read_deepspeed_settings(write({"fp16": {"enabled": False}}))
    assert load_config(str(toml), {}, other).training.precision == "bf16"
    assert load_config(str(toml), {"precision": "bf16"}, off).training.precision == "bf16"


def test_a_flag_that_names_another_optimizer_leaves_the_block_behind(write):
    block = {"type": "Adam", "params": {"lr": 0.5, "weight_decay": 0.25}}
    settings = read_deepspeed_settings(write({"optimizer": block, "gradient_clipping": 2}))
    config = load_config("", {"optimizer": "sgd"}, settings)
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (0.001, 1e-4)
    assert config.optimizer.clip_gradients == 2
    assert "params.lr 0.5 (--optimizer sgd)" in decided(config)[1]


def test_a_flag_that_names_another_schedule_leaves_the_rate_of_the_optimizer(write):
    scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.2, "warmup_num_steps": 9}}
    table = {"optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": scheduler}
    settings = read_deepspeed_settings(write(table))
    assert load_config("", {}, settings).optimizer.learning_rate == 0.2
    config = load_config("", {"lr_schedule": "constant"}, settings)
    assert (config.optimizer.learning_rate, config.optimizer.warmup_steps) == (0.5, 100)
    assert load_config("", {"learning_rate": "7"}, settings).optimizer.learning_rate == 7


@pytest.mark.parametrize(
    ("key", "value", "stage", "wanted"),
    [("overlap_comm", True, "1", "2"), ("offload_param", {"device": "cpu"}, "2", "3")],
)
def test_an_option_of_another_stage_is_a_word_in_the_line_of_what_is_ignored(
    write, key, value, stage, wanted
):
    settings = read_deepspeed_settings(write({"zero_optimization": {key: value}}))
    config = load_config("", {"zero_stage": stage}, settings)
    _, line = decided(config)
    assert f"{key} (" in line and f"stage {wanted} " in line


def test_a_rate_of_the_file_is_not_scaled_by_a_preset(write, tmp_path):
    settings = read_deepspeed_settings(write({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}}))
    assert load_config("", {}, settings).optimizer.lr_scaling == "none"
    assert load_config("", {"lr_scaling": "sqrt"}, settings).optimizer.lr_scaling == "sqrt"


def test_the_place_of_each_setting_is_known(write):
    settings = read_deepspeed_settings(write('{\n"train_batch_size": 8}'))
    (place,) = (one.location for one in settings.values if one.name == "batch_size")
    assert place.endswith("ds.json:2")


GIVEN = (
    "gradient_accumulation_steps=4",
    "wandb.project=go",
    "tensorboard.output_path=events",
    "zero_optimization.offload_optimizer.device=cpu",
    "zero_optimization.stage=1",
)


def test_values_of_the_flag_beat_the_file_and_a_preset(write):
    table = {"gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5}}
    settings = read_deepspeed_settings(write(table), GIVEN)
    config = load_config("connect4", {}, settings)
    training, run = config.training, config.run
    assert (training.gradient_accumulation_steps, training.zero_stage) == (4, 1)
    assert (run.wandb_project, run.tensorboard_dir) == ("go", "events")
    offload = {"reduce_bucket_size": 5, "offload_optimizer": {"device": "cpu"}}
    assert settings.zero_options_at(1) == offload
    assert any("offload_optimizer" in line for line in decided(config))


def test_values_of_the_flag_beat_a_toml_file_that_the_file_may_not_contradict(write, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("[training]\nzero_stage = 0\n")
    table = {"zero_optimization": {"stage": 1}}
    with pytest.raises(ConfigError, match="zero_stage = 1 contradicts zero_stage = 0"):
        load_config(str(mine), {}, read_deepspeed_settings(write(table)))
    given = read_deepspeed_settings(write(table), ["zero_optimization.stage=2"])
    assert load_config(str(mine), {}, given).training.zero_stage == 2


def test_two_flags_that_contradict_each_other_are_an_error(write):
    given = read_deepspeed_settings(write({}), ["zero_optimization.stage=2"])
    assert load_config("", {"zero_stage": 2}, given).training.zero_stage == 2
    message = r"^--deepspeed-set zero_optimization.stage=2 contradicts --zero-stage 1; expected one of them$"
    with pytest.raises(ConfigError, match=message):
        load_config("", {"zero_stage": 1}, given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "gradient_accumulation_steps",
            r"^--deepspeed-set 'gradient_accumulation_steps': expected KEY=VALUE",
        ),
        ("wandb..project=a", r"^--deepspeed-set 'wandb..project=a': expected KEY=VALUE"),
        ("steps_per_print.x=3", r"^--deepspeed-set 'steps_per_print.x=3': expected KEY=VALUE"),
        ("gradient_accumulation_steps=-1", r"^--deepspeed-set: gradient_accumulation_steps = -1: expected"),
        (
            "gradient_accumulation=4",
            r"^--deepspeed-set: gradient_accumulation = 4: no such key; did you mean",
        ),
        (
            "zero_optimization.offload_optimizer.device=nvme",
            r"^--deepspeed-set: .*: expected one of cpu, none",
        ),
        ("wandb=" + "[" * 100_000, "wandb = "),
    ],
)
def test_a_value_of_the_flag_that_cannot_be_names_the_flag(write, given, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read_deepspeed_settings(write({"steps_per_print": 5}), [given])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
