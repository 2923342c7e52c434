"""Settings: files, flags, ranges, messages."""

import argparse

import pytest

from alphazero.config import add_flags, load_config, preset_names
from alphazero.errors import ConfigError


def parse(*arguments):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def test_every_shipped_preset_loads():
    assert {"chess_20x256", "chess_cpu"} <= set(preset_names())
    for name in preset_names():
        assert load_config(name, {}).preset == name


def test_the_default_network_is_20x256():
    network = load_config("chess_20x256", {}).network
    assert (network.game, network.blocks, network.filters) == ("chess", 20, 256)


def test_a_flag_beats_the_file_which_beats_the_default(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[network]\nblocks = 7\nfilters = 48\n[optimizer]\nlr_milestones = [3, 5]\n")
    config = load_config(str(path), parse("--blocks", "9", "--data", "a", "b", "--no-tensorboard"))
    assert (config.network.blocks, config.network.filters, config.network.value_hidden) == (9, 48, 128)
    assert config.data.data == ("a", "b")
    assert config.optimizer.lr_milestones == (3, 5)
    assert config.run.tensorboard is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[network]\nblocks = 0\n", r"mine\.toml:2: blocks: 0: expected 1 to 256"),
        ("[network]\n\nblokcs = 3\n", r"mine\.toml:3: 'blokcs' = 3: no such setting"),
        ("[netwrok]\nblocks = 3\n", r"mine\.toml:1: 'netwrok'"),
        ("[training]\nsteps = 1.5\n", r"mine\.toml:2: steps: 1.5: expected a whole number"),
        ("[training]\nsteps = true\n", r"mine\.toml:2: steps: True: expected a whole number"),
        ("[run]\ntensorboard = 1\n", r"expected true or false"),
        ("[data]\ndata = 'x'\n", r"expected a list"),
        ("[network\n", r"mine\.toml: "),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(str(path), {})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--batch-size", "0"), "--batch-size: '0': expected at least 1"),
        (("--learning-rate", "fast"), "--learning-rate: 'fast': expected a number"),
        (("--learning-rate", "inf"), "expected a number"),
        (("--precision", "fp8"), "--precision: 'fp8': expected one of fp32, bf16"),
    ],
)
def test_a_mistake_in_a_flag_is_named(flags, message):
    with pytest.raises(ConfigError, match=message):
        load_config("", parse(*flags))
