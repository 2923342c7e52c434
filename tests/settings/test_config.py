"""Settings: files, flags, ranges, messages."""

import argparse
import time
from dataclasses import fields

import pytest

from alphazero.base.errors import ConfigError
from alphazero.base.section import add_flags, kinds_of
from alphazero.settings.cluster import ClusterConfig
from alphazero.settings.load import SECTIONS, load_config, preset_names


def parse(*arguments):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, SECTIONS)
    return vars(parser.parse_args(arguments))


def test_a_presets_policy_head_is_for_games_that_have_it(tmp_path):
    assert load_config("chess_cpu", {}).network.policy_head == "attention"
    assert load_config("chess_cpu", {"game": "othello"}).network.policy_head == "convolution"
    # What somebody asks for stays, and is refused where the network is made.
    asked = {"game": "othello", "policy_head": "attention"}
    assert load_config("chess_cpu", asked).network.policy_head == "attention"
    own = tmp_path / "own.toml"
    own.write_text('[network]\ngame = "othello"\npolicy_head = "attention"\n')
    assert load_config(str(own), {}).network.policy_head == "attention"


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
        ("[network]\nblocks = 0\n", r"mine\.toml:2: blocks: 0: expected a whole number from 1 to 256"),
        ("[network]\n\nblokcs = 3\n", r"mine\.toml:3: 'blokcs' = 3: no such setting"),
        ("[netwrok]\nblocks = 3\n", r"mine\.toml:1: 'netwrok'"),
        ("[training]\nsteps = 1.5\n", r"mine\.toml:2: steps: 1.5: expected a whole number"),
        ("[training]\nsteps = true\n", r"mine\.toml:2: steps: True: expected a whole number"),
        ("[run]\ntensorboard = 1\n", r"expected true or false"),
        ("[data]\ndata = 'x'\n", r"data: 'x': expected a list of texts"),
        ("[data]\ndata = [1.5]\n", r"mine\.toml:2: data: 1.5: expected a text"),
        ("[training]\n[optimizer]\nsteps = 3\n", r"mine\.toml:3: 'steps' = 3: no such setting"),
        ("training.seed = 3\ntraining.steps = 1.5\n", r"mine\.toml:2: steps: 1.5"),
        ("network = 3\n", r"mine\.toml:1: 3: expected a table \[network\]"),
        ("[netwrok]\n", r"no such section; did you mean \[network\]\? Expected \[network\], \[data\]"),
        ("[network]\nblokcs = 3\n", r"no such setting; did you mean blocks\? Expected one of game, body"),
        ("[network]\nxyz = 3\n", r"no such setting; expected one of game, body"),
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
        (("--batch-size", "0"), "--batch-size: '0': expected a whole number from 1 to 16,777,216"),
        (("--learning-rate", "fast"), "--learning-rate: 'fast': expected a number"),
        (("--learning-rate", "inf"), "expected a number"),
        (("--precision", "fp8"), "--precision: 'fp8': expected one of fp32, bf16"),
    ],
)
def test_a_mistake_in_a_flag_is_named(flags, message):
    with pytest.raises(ConfigError, match=message):
        load_config("", parse(*flags))


NUMBERS = [
    pytest.param(section, entry, id=f"{section.__name__}.{entry.name}")
    for section in (*SECTIONS.values(), ClusterConfig)
    for entry in fields(section)
    if kinds_of(section)[entry.name] in (int, tuple[int, ...])
]


@pytest.mark.parametrize(("section", "entry"), NUMBERS)
def test_every_whole_number_has_an_upper_bound(section, entry):
    assert entry.metadata["minimum"] is not None
    assert entry.metadata["maximum"] <= 2**63 - 1


@pytest.mark.parametrize("digits", ["1" + "0" * 18, "9" * 400, "9" * 5000], ids=len)
@pytest.mark.parametrize("flag", ["--batch-size", "--seed", "--learning-rate", "--lr-milestones", "--epochs"])
def test_an_absurd_number_is_one_short_line_at_once(flag, digits):
    digits = digits if flag != "--seed" else digits + "0"
    with pytest.raises(ConfigError, match=f"^{flag}: '.*: expected a ") as caught:
        load_config("", parse(flag, digits))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        "[training]\nsteps = " + "9" * 400,
        "[training]\nsteps = " + "9" * 5000,
        "[training]\nsteps = 0x" + "f" * 20000,
        "[training]\nepochs = 0x" + "f" * 20000,
        "[training]\nepochs = " + "9" * 400,
        "[run]\nrun_name = 0x" + "f" * 20000,
        "[run]\nrun_name = " + "[" * 5000 + "]" * 5000,
        "x = " + "{a = " * 5000,
        "[training]\n" + "a." * 900 + "a = 1",
        "[training]\nsteps" + ".a" * 900 + " = 1",
        "[training]\n" + "a." * 200_000 + "a = 1",
        "[training]\n" + "a." * 100_000 + "a = 1",
        ("a." * 900 + "a = 1\n") * 140,
        '"b"."c".' * 5000 + "a = 1",
        "a" * 200_000 + " = 1",
        "#" * 300_000,
        "[training]\nsteps = inf",
        "[" * 100_000,
    ],
    ids=range(18),
)
def test_an_absurd_file_is_one_short_line(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"mine\.toml") as caught:
        load_config(str(path), {})
    assert time.process_time() - began < 10
    assert len(str(caught.value)) < 700
    assert "\n" not in str(caught.value)


def test_many_dots_in_texts_and_over_many_lines_are_fine(tmp_path):
    files = [f"/data.d/part.{number}.pgn" for number in range(2000)]
    path = tmp_path / "mine.toml"
    path.write_text(f"[data]\ndata = {files}\nvalidation_data = {files[:10]}\r\n")
    assert load_config(str(path), {}).data.data == tuple(files)


def test_a_flag_known_from_elsewhere_is_understood():
    assert load_config("", parse("--lr", "0.5")).optimizer.learning_rate == 0.5
