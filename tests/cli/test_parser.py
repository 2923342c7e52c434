"""Flags as users type them."""

import argparse

import pytest

from alphazero.base.errors import ConfigError
from alphazero.cli.command_table import COMMANDS, build_parser
from alphazero.cli.training.train import deepspeed_config_file
from alphazero.settings.flags import number, seconds, whole


@pytest.mark.parametrize("spelling", ["--learning-rate", "--learning_rate", "--lr"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_flag_is_known_by_each_of_its_spellings(spelling, joined):
    typed = [f"{spelling}=0.5"] if joined else [spelling, "0.5"]
    assert build_parser("train").parse_args(typed).learning_rate == "0.5"


@pytest.mark.parametrize("spelling", ["--gpus", "--num-gpus", "--num_gpus"])
def test_the_number_of_gpus_is_known_by_each_of_its_spellings(spelling):
    args, rest = build_parser("launch").parse_known_args(
        [spelling, "2", "--fresh_start", "--run_name", "a_b"]
    )
    assert args.gpus == "2"
    assert build_parser("train").with_dashes(rest) == ["--fresh-start", "--run-name", "a_b"]


@pytest.mark.parametrize("spelling", ["--gpus", "--num-gpus", "--num_gpus", "--world_size"])
def test_the_trainer_alone_knows_the_number_of_gpus_too(spelling):
    assert build_parser("train").parse_args([spelling, "2"]).world_size == 2


@pytest.mark.parametrize("spelling", ["--nodes", "--num_nodes", "--nnodes"])
def test_the_number_of_nodes_is_known_by_each_of_its_spellings(spelling):
    assert build_parser("launch").parse_args([spelling, "2", "--nproc_per_node", "3"]).nodes == "2"


@pytest.mark.parametrize(
    ("typed", "name", "value"),
    [
        (["--train_batch_size", "64"], "batch_size", "64"),
        (["--train_micro_batch_size_per_gpu", "8"], "micro_batch_size", "8"),
    ],
)
def test_the_numbers_of_the_batch_are_known_by_deepspeeds_names(typed, name, value):
    assert getattr(build_parser("train").parse_args(typed), name) == value


@pytest.mark.parametrize(
    ("typed", "file"),
    [
        (["--local_rank=1", "--deepspeed", "--deepspeed_config", "a.json"], "a.json"),
        (["--deepspeed", "a.json", "--local_rank", "1"], "a.json"),
        (["--deepspeed_config=a.json", "--deepspeed=a.json", "--local-rank=1"], "a.json"),
        (["--deepspeed", "--local_rank=1"], ""),
    ],
)
def test_what_launchers_and_scripts_of_deepspeed_add_is_understood(typed, file):
    args = build_parser("train").parse_args(typed)
    assert (args.local_rank, deepspeed_config_file(args)) == (1, file)


def test_two_files_for_deepspeed_contradict_each_other():
    args = build_parser("train").parse_args(["--deepspeed", "a.json", "--deepspeed_config", "b.json"])
    with pytest.raises(ConfigError, match=r"a\.json: contradicts --deepspeed-config b\.json"):
        deepspeed_config_file(args)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_flag_suggests_the_near_one_on_every_command(command):
    """Also where something is missing, which may be what was meant by it."""
    parser = build_parser(command)
    flags = [flag for flag in parser.flags() if len(flag) > 6]
    for flag in flags[:3] + flags[-3:]:
        wrong = flag[:-1] + "q"
        with pytest.raises(ConfigError, match=f"unknown flag {wrong}; did you mean "):
            parser.parse_args([f"{wrong}=1"])


def test_an_underscore_in_a_value_stays():
    args = build_parser("train").parse_args(["--run_name=my_run", "--no_tensorboard"])
    assert (args.run_name, args.tensorboard) == ("my_run", False)


def test_an_unknown_flag_without_a_near_one_points_to_help():
    with pytest.raises(ConfigError, match=r"--zzzz; .*perft --help"):
        build_parser("perft").parse_args(["startpos", "1", "--zzzz"])


@pytest.mark.parametrize(
    ("parse", "good", "value", "bad", "expected"),
    [
        (whole(1, 9), "9", 9, ["0", "10", "1.5", "", "x", "9" * 5000], "a whole number from 1 to 9"),
        (number(0, 1), "0.5", 0.5, ["-1", "2", "nan", "inf", "x"], "a number from 0 to 1"),
        (seconds(1), "3", 3.0, ["0.5", "1e300", "nan", ""], "seconds from 1 to 100,000,000"),
    ],
)
def test_a_number_is_in_its_range_or_one_short_line(parse, good, value, bad, expected):
    assert parse(good) == value
    for text in bad:
        with pytest.raises(argparse.ArgumentTypeError, match=f"expected {expected}") as caught:
            parse(text)
        assert len(str(caught.value)) < 200
