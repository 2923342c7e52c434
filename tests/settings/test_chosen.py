"""Settings chosen for games whose rules lie outside the core: bounds, order, and what beats them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from alphazero.cli.command_table import build_parser
from alphazero.cli.training.train import chosen_lines, read_settings
from alphazero.settings.chosen import (
    OUTSIDE_PRESET,
    Measured,
    chosen,
    lanes_over,
    line_of,
    shape_of_network,
    with_chosen,
)
from alphazero.settings.load import Config, load_config, to_table
from tests.support.paths import REPOSITORY

HEX_5 = Measured("openspiel:hex(board_size=5)", 9, 5, 5, 25, 20.5, 25, 15.0)
NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=4)"


def settings(*words: str) -> Config:
    return read_settings(build_parser("train").parse_args([*words, "--deepspeed-config", ""]), "chess_cpu")


def of(measured: Measured) -> dict[str, int]:
    return chosen(measured, 256, 4.0)


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, (4, 64)),
        ({"height": 3, "width": 3, "mean_plies": 7.6, "mean_legal": 5.5}, (2, 32)),  # tic-tac-toe
        ({"height": 9, "width": 3, "mean_plies": 12.0, "mean_legal": 6.5}, (2, 32)),  # dots and boxes
        ({"height": 8, "width": 8}, (4, 64)),
        ({"height": 9, "width": 9}, (6, 64)),
        ({"height": 1, "width": 1, "planes": 5, "mean_plies": 4.4, "mean_legal": 3.5}, (2, 32)),  # nim
        ({"height": 1, "width": 1, "planes": 14}, (4, 128)),  # oware
        ({"height": 1, "width": 1, "planes": 365}, (4, 256)),  # chinese checkers
    ],
)
def test_larger_games_have_larger_networks(changes: dict[str, int], shape: tuple[int, int]) -> None:
    assert shape_of_network(replace(HEX_5, **changes)) == shape


def test_more_moves_take_more_simulations_and_longer_games_fewer_lanes_and_a_larger_window() -> None:
    by_moves = [of(replace(HEX_5, mean_legal=float(legal))) for legal in (2, 8, 16, 32, 64, 300)]
    simulations = [values["simulations"] for values in by_moves]
    assert simulations == sorted(simulations) and (simulations[0], simulations[-1]) == (32, 64)
    lengths = (1.0, 5.0, 8.0, 20.0, 60.0, 200.0, 1000.0)
    by_length = [of(replace(HEX_5, mean_plies=plies, height=6, width=6)) for plies in lengths]
    lanes = [values["lanes"] for values in by_length]
    assert lanes == sorted(lanes, reverse=True) and lanes[0] > lanes[-1]
    window = [values["window_minimum"] for values in by_length]
    assert window == sorted(window) and window[0] < window[-1]
    openings = [values["opening_plies"] for values in by_length]
    assert openings[:3] == [0, 0, 6]  # the third is a small game, most of which may be random
    assert openings[3:] == sorted(openings[3:]) == [4, 8, 8, 8]
    by_board = [of(replace(HEX_5, height=side, width=side)) for side in (5, 8, 9, 19)]
    steps = [values["steps_per_generation"] for values in by_board]
    assert steps == sorted(steps, reverse=True) and steps[-1] >= 1


@pytest.mark.parametrize("plies", [0.0, 1.0, 30.0, 60_000.0])
@pytest.mark.parametrize("legal", [0.0, 1.0, 4000.0])
@pytest.mark.parametrize("side", [1, 3, 100])
def test_whatever_the_game_the_settings_take_what_is_chosen(plies: float, legal: float, side: int) -> None:
    measured = Measured("nim.py:Nim", 1000, side, side, 100_000, plies, int(plies), legal)
    values = of(measured)
    config = load_config("", values)  # checks each value's range
    taken = {name: value for part in to_table(config).values() for name, value in part.items()}
    assert {name: taken[name] for name in values} == values
    assert values["max_plies"] >= 512 and 16 <= values["lanes"] <= 256


def test_a_game_ends_by_its_own_limit_unless_that_is_far() -> None:
    assert of(HEX_5)["max_plies"] == 25
    assert of(replace(HEX_5, limit=10_000))["max_plies"] == 512
    assert of(replace(HEX_5, limit=10_000, longest=300))["max_plies"] == 1200


def test_flags_and_own_files_beat_the_choice_which_beats_the_preset(tmp_path: Path) -> None:
    preset = load_config(OUTSIDE_PRESET, {})
    alone = settings("--game", NIM)
    assert (alone.network.blocks, alone.network.filters) == (2, 32) != (preset.network.blocks, 64)
    assert alone.optimizer == preset.optimizer and alone.preset == OUTSIDE_PRESET
    assert "blocks" not in alone.asked  # so that a resume takes it from its checkpoint
    flagged = settings("--game", NIM, "--blocks", "3", "--window-minimum", "777")
    assert (flagged.network.blocks, flagged.network.filters) == (3, 32)
    assert flagged.self_play.window_minimum == 777
    own = tmp_path / "own.toml"
    own.write_text('[self_play]\nmode = "selfplay"\nwindow_minimum = 888\n', encoding="utf-8")
    filed = settings("--game", NIM, "--config", str(own))
    assert filed.self_play.window_minimum == 888 and filed.network.blocks == 2
    assert filed.search.algorithm == "puct" and filed.search.simulations == 800  # as the file's rules are
    named = settings("--game", NIM, "--config", OUTSIDE_PRESET)
    assert named.network.blocks == preset.network.blocks and not named.set_by_game
    assert not settings("--game", "tictactoe").set_by_game


def test_what_is_chosen_follows_what_is_given() -> None:
    base = load_config(OUTSIDE_PRESET, {})
    usual = with_chosen(base, HEX_5).self_play.steps_per_generation
    slower = with_chosen(load_config(OUTSIDE_PRESET, {"simulations": "200"}), HEX_5)
    assert slower.self_play.steps_per_generation < usual and slower.search.simulations == 200
    larger = load_config(OUTSIDE_PRESET, {"batch_size": "512"})
    assert with_chosen(larger, HEX_5).self_play.steps_per_generation == pytest.approx(usual / 2, abs=1)
    given = replace(base, training=replace(base.training, init_weights="some.pt"))
    assert with_chosen(given, HEX_5).network == base.network


def test_more_ranks_have_more_lanes_unless_they_were_named() -> None:
    config = with_chosen(load_config(OUTSIDE_PRESET, {}), HEX_5)
    lanes = [lanes_over(config, ranks) for ranks in (1, 2, 3, 64)]
    assert lanes == [config.self_play.lanes * factor for factor in (1, 1, 2, 32)]
    named = with_chosen(load_config(OUTSIDE_PRESET, {"lanes": "16"}), HEX_5)
    assert lanes_over(named, 64) == 16


def test_the_start_says_in_one_line_what_was_chosen_and_from_what() -> None:
    config = with_chosen(load_config(OUTSIDE_PRESET, {"lanes": "64"}, is_named=False), HEX_5)
    assert line_of(config, HEX_5).startswith("chosen for openspiel:hex(board_size=5): 4x64, 48 simulations, ")
    (line,) = chosen_lines(settings("--game", NIM))
    assert line.startswith("chosen for nim.py:Nim(piles=4)@") and "(games of " in line
    assert chosen_lines(settings("--game", NIM, "--config", OUTSIDE_PRESET)) == ()
