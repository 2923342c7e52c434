"""Flags that are not this program's, and the settings that have none."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.base.section import flag_fields
from alphazero.cli.command_table import build_parser, run_command
from alphazero.settings.cluster import ClusterConfig
from alphazero.settings.load import SECTIONS, load_config
from alphazero.settings.sections import NetworkConfig


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--warmup-type", "scheduler.params.warmup_type"),
        ("--clip_gradients", "gradient_clipping"),
        ("--gradient-accumulation-steps", "gradient_accumulation_steps"),
        ("--no-nesterov", "optimizer.params.nesterov"),
    ],
)
def test_what_ds_config_json_alone_sets_is_answered_with_its_key(flag, key):
    with pytest.raises(
        ConfigError, match=rf"{flag}: .*--deepspeed-set {key}=VALUE, or {key} in a ds_config\.json"
    ):
        build_parser("train").parse_args([flag, "2"])


def test_a_key_of_a_toml_file_is_answered_so_too(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[optimizer]\nweight_decay = 3\nmomentum = 0.5\n")
    with pytest.raises(ConfigError, match=r"mine\.toml:3: momentum: .*optimizer\.params\.momentum"):
        load_config(str(path), {})


def test_smolgens_layers_follow_its_channels():
    flags = {"body": "attention", "smolgen_channels": "4"}
    network = load_config("", flags).network
    assert (network.smolgen_hidden, network.smolgen_size) == (32, 32)
    assert load_config("", {"body": "attention"}).network == NetworkConfig(body="attention")
    assert load_config("", {"smolgen_channels": "4"}).network.smolgen_hidden == 256


@pytest.mark.parametrize(
    ("typed", "flag"),
    [
        (["--resume-from", "x"], "--resume"),
        (["--resume_from_checkpoint=x"], "--resume"),
        (["--episodes", "5"], "--generations"),
        (["--checkpoint-dir", "x"], "--runs-dir"),
        (["--distributed"], "--gpus"),
        (["--standalone"], "--gpus"),
        (["--fp16"], "--precision fp16"),
    ],
)
def test_a_flag_of_other_trainers_is_answered_with_the_one_that_means_it(typed, flag):
    for command in (["train"], ["launch", "--dry-run"]):
        with pytest.raises(ConfigError, match=f"{typed[0].partition('=')[0]}: .*expected {flag}"):
            run_command([*command, *typed])
    with pytest.raises(ConfigError, match="unknown flag"):
        build_parser("perft").parse_args(typed)


def test_habits_of_other_trainers_are_understood():
    for flag in ("--num-gpus", "--num_gpus", "--gpus"):
        assert build_parser("train").parse_args([flag, "2"]).world_size == 2
        assert build_parser("launch").parse_args([flag, "2"]).gpus == "2"
    assert load_config("", {"precision": "amp"}).training.precision == "auto"


def test_there_are_few_settings():
    sections = (*SECTIONS.values(), ClusterConfig)
    assert sum(len(flag_fields(section)) for section in sections) <= 119


def test_help_lists_the_common_flags_and_help_all_lists_every_flag(capsys):
    shown = {}
    for arguments in (["--help"], ["--help", "all"]):
        with pytest.raises(SystemExit):
            build_parser("train").parse_args(arguments)
        shown[len(arguments)] = capsys.readouterr().out
    assert "--batch-size" in shown[1] and "--fpu-reduction" not in shown[1] and "--help all" in shown[1]
    assert "--batch-size" in shown[2] and "--fpu-reduction" in shown[2]


@pytest.mark.parametrize(
    ("command", "typed", "flag"),
    [
        ("uci", "-w", "--weights W"),
        ("uci", "--threads=4", "--option Threads=N"),
        ("uci", "--backend=cuda", "--device"),
        ("uci", "--syzygy-paths=x", "--option SyzygyPath=DIR"),
        ("match", "-engine", "--player cmd=PROGRAM"),
        ("match", "-each", "--nodes N"),
        ("match", "-rounds", "--games N"),
    ],
)
def test_a_flag_of_chess_programs_is_answered_with_the_one_that_means_it(command, typed, flag):
    with pytest.raises(ConfigError, match=f"{typed.partition('=')[0]}: no flag .*expected {flag}"):
        build_parser(command).parse_args([typed])
