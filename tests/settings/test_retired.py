"""Constants that older runs name as settings."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.base.section import flag_fields
from alphazero.cli.command_table import build_parser, run_command
from alphazero.settings.cluster import ClusterConfig
from alphazero.settings.flags import RETIRED, other_values
from alphazero.settings.load import SECTIONS, Config, load_config, to_table
from alphazero.settings.sections import NetworkConfig


def test_a_flag_of_a_constant_is_answered_with_its_value_and_reason():
    for typed in (["--c-base", "10"], ["--c_base=10"]):
        with pytest.raises(ConfigError, match=r"^--c-base: not a setting; fixed at 19652: .*pseudocode"):
            build_parser("train").parse_args(typed)
    with pytest.raises(ConfigError, match=r"--no-symmetries: not a setting; fixed at true"):
        build_parser("train").parse_args(["--no-symmetries"])
    with pytest.raises(ConfigError, match=r"--history-fill: not a setting; fixed at fen_only"):
        build_parser("train").parse_args(["--history-fill", "no"])
    with pytest.raises(ConfigError, match=r"--value-hidden: not a setting; fixed at 128: as lc0 has it"):
        build_parser("train").parse_args(["--value-hidden", "8"])


def test_a_key_of_a_toml_file_is_answered_so_too(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[search]\nsimulations = 3\nc_visit = 20\n")
    with pytest.raises(ConfigError, match=r"mine\.toml:3: c_visit: not a setting; fixed at 50: "):
        load_config(str(path), {})


def test_what_ds_config_json_alone_sets_is_answered_with_its_key():
    with pytest.raises(
        ConfigError, match=r"--warmup-type: .* expected scheduler\.params\.warmup_type in a ds_config\.json"
    ):
        build_parser("train").parse_args(["--warmup-type", "linear"])
    keys = {"--clip-gradients": "gradient_clipping", "--gradient-accumulation-steps": "gradient_accumulation"}
    for flag, key in keys.items():
        with pytest.raises(ConfigError, match=rf"expected {key}.* in a ds_config\.json"):
            build_parser("train").parse_args([flag, "2"])


def test_smolgens_layers_follow_its_channels():
    flags = {"body": "attention", "smolgen_channels": "4"}
    network = load_config("", flags).network
    assert (network.smolgen_hidden, network.smolgen_size) == (32, 32)
    assert load_config("", {"body": "attention"}).network == NetworkConfig(body="attention")
    assert load_config("", {"smolgen_channels": "4"}).network.smolgen_hidden == 256
    with pytest.raises(ConfigError, match=r"--smolgen-size: not a separate setting; 8 times --smolgen-"):
        build_parser("train").parse_args(["--smolgen-size", "8"])
    with pytest.raises(ConfigError, match=r"--embedding-width: not a setting; fixed at 64: as lc0 has it"):
        build_parser("train").parse_args(["--embedding-width", "8"])


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["--resume-from", "x"], "--resume-from: no flag of this program; expected --resume latest|"),
        (["--resume_from_checkpoint=x"], "expected --resume latest|best-METRIC|STEP|PATH"),
        (["--episodes", "5"], "--episodes: no flag of this program; expected --generations N, or --steps N"),
        (["--checkpoint-dir", "x"], "expected --runs-dir: a run is --runs-dir DIR with --run-name NAME"),
        (["--distributed"], r"remove it: this program starts the ranks itself \(--gpus N\)"),
        (["--standalone"], r"--standalone: no flag of this program; remove it: .* torchrun"),
        (["--fp16"], "--fp16: no flag of this program; expected --precision fp16"),
    ],
)
def test_a_flag_of_other_trainers_is_answered_with_the_one_that_means_it(typed, expected):
    for command in (["train"], ["launch", "--dry-run"]):
        with pytest.raises(ConfigError, match=expected):
            run_command([*command, *typed])
    with pytest.raises(ConfigError, match="unknown flag"):
        build_parser("perft").parse_args(typed)


def test_habits_of_other_trainers_are_understood():
    for flag in ("--num-gpus", "--num_gpus", "--gpus"):
        assert build_parser("train").parse_args([flag, "2"]).world_size == 2
        assert build_parser("launch").parse_args([flag, "2"]).gpus == "2"
    assert load_config("", {"precision": "amp"}).training.precision == "auto"


def test_a_checkpoint_with_another_value_is_found():
    saved = to_table(Config())
    assert other_values(saved) == {}
    saved["search"] |= {"c_base": 19652.0, "c_scale": 0.5}
    saved["loss"]["mask_illegal"] = True
    assert other_values(saved) == {"c_scale": 0.5}


def test_no_section_has_a_retired_setting():
    sections = {**SECTIONS, "cluster": ClusterConfig}
    for name, retired in RETIRED.items():
        assert name not in sections[retired.section].__dataclass_fields__


def test_there_are_few_settings():
    sections = (*SECTIONS.values(), ClusterConfig)
    assert sum(len(flag_fields(section)) for section in sections) <= 115


def test_help_lists_the_common_flags_and_help_all_lists_every_flag(capsys):
    shown = {}
    for arguments in (["--help"], ["--help", "all"]):
        with pytest.raises(SystemExit):
            build_parser("train").parse_args(arguments)
        shown[len(arguments)] = capsys.readouterr().out
    assert "--batch-size" in shown[1] and "--fpu-reduction" not in shown[1] and "--help all" in shown[1]
    assert "--batch-size" in shown[2] and "--fpu-reduction" in shown[2]
