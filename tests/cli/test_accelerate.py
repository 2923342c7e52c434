"""What `accelerate launch` asks for by environment variables."""

import json

import pytest

from alphazero.base.errors import ConfigError
from alphazero.cli.command_table import build_parser
from alphazero.cli.training.accelerate import accelerate_settings
from alphazero.cli.training.train import read_settings

# As accelerate 1.x sets them with its defaults, for a job of several GPUs.
DEFAULTS = {
    "ACCELERATE_MIXED_PRECISION": "no",
    "ACCELERATE_DYNAMO_BACKEND": "NO",
    "ACCELERATE_DYNAMO_MODE": "default",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
    "ACCELERATE_USE_CPU": "False",
}


def settings(monkeypatch, environment, *words):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return read_settings(build_parser("train").parse_args(words), "chess_cpu").training


def test_its_defaults_say_nothing():
    assert accelerate_settings(DEFAULTS, {}) == {}


def test_precision_and_zero_stage_are_taken_and_flags_beat_them(monkeypatch):
    deepspeed = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
    environment = {**DEFAULTS, **deepspeed, "ACCELERATE_MIXED_PRECISION": "bf16"}
    found = settings(monkeypatch, environment)
    assert (found.precision, found.zero_stage) == ("bf16", 2)
    found = settings(monkeypatch, environment, "--precision", "fp32", "--zero-stage", "1")
    assert (found.precision, found.zero_stage) == ("fp32", 1)
    assert settings(monkeypatch, environment, "--mixed-precision").precision == "auto"


def test_the_file_of_its_deepspeed_plugin_is_read(monkeypatch, tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"gradient_clipping": 0.5, "zero_optimization": {"stage": 1}}))
    environment = {"ACCELERATE_DEEPSPEED_CONFIG_FILE": str(file), "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
    found = settings(monkeypatch, environment)
    assert found.zero_stage == 1
    file.write_text('{"no_such_key": 1}')
    with pytest.raises(ConfigError, match=rf"{file}:1: "):
        settings(monkeypatch, environment)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ACCELERATE_MIXED_PRECISION", "fp8", "fp16, bf16"),
        ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "4", "0, 1, 2, 3"),
        ("ACCELERATE_USE_FSDP", "true", "--zero-stage"),
        ("ACCELERATE_USE_MEGATRON_LM", "true", "--zero-stage"),
        ("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR", "--compile"),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4", "gradient_accumulation_steps"),
        ("ACCELERATE_GRADIENT_CLIPPING", "1.0", "gradient_clipping"),
        ("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu", "offload_optimizer"),
        ("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "nvme", "offload_param"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name(monkeypatch, name, value, expected):
    with pytest.raises(ConfigError, match=f"^{name}=.*{expected}"):
        settings(monkeypatch, {**DEFAULTS, name: value})


def test_the_cpu_is_taken_unless_a_flag_says_otherwise():
    wants_cpu = {**DEFAULTS, "ACCELERATE_USE_CPU": "True"}
    assert accelerate_settings(wants_cpu, {"device": "auto"}) == {"device": "cpu"}
    assert accelerate_settings(wants_cpu, {"device": "cuda"}) == {}
