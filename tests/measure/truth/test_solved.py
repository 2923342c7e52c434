"""Moves against exact truth: own table, given sets, count of errors, and `alphazero eval --solved`."""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.cli.main import main
from alphazero.games.core_types import Line
from alphazero.games.registry import get_spec
from alphazero.measure.truth import connect4 as solved
from alphazero.measure.truth.connect4 import SolverOutcomes, line_of, read_sets
from alphazero.measure.truth.positions import (
    ExactPosition,
    find_errors,
    sign,
)
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig
from tools.connect4_positions import CLASSES

OWN = [position for entry in read_sets() for position in entry.positions]
# Columns 3, 4, 5 of the ground against the mover, 2 and 6 open: lost whatever is played.
LOST = "31415"
# Three of the mover in column 1: to play there wins.
WON = "121212"


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    """A small untrained network."""
    config = NetworkConfig(game="connect4", blocks=1, filters=8)
    network = AlphaZeroNet(config, get_spec("connect4"), torch.Generator().manual_seed(3))
    path = tmp_path / "net.pt"
    save_weights(path, network, {})
    return path


def mirrored_key(moves: str) -> int:
    """The smaller key of the position and its mirror image."""
    return min(line_of(moves).key, line_of("".join(str(8 - int(move)) for move in moves)).key)


def position_of(moves: str, score: int, scores: Sequence[int] = ()) -> ExactPosition:
    return ExactPosition(line_of(moves), score, dict(enumerate(scores)), moves)


def test_the_own_table_has_600_different_positions_in_which_an_error_is_possible():
    sets = read_sets()
    assert [entry.name for entry in sets] == list(CLASSES)
    assert [len(entry.positions) for entry in sets] == [100] * 6
    assert len({mirrored_key(position.moves) for position in OWN}) == 600
    for entry in sets:
        for position in entry.positions:
            assert list(position.move_scores) == position.line.legal()
            assert max(position.move_scores.values()) == position.score
            assert len(set(map(sign, position.move_scores.values()))) > 1


def test_scores_of_the_own_table_are_the_solvers():
    solver = _core.Connect4Solver(32)
    for position in OWN[:300:3] + OWN[300:400:10]:
        found = enumerate(solver.move_scores(line_of(position.moves)))
        known = {column: value for column, value in found if value != solver.ILLEGAL}
        assert known == position.move_scores, position.moves


def test_an_error_is_a_move_that_makes_the_outcome_worse():
    won = position_of(WON, 18, (18, -17, 1, 3, 0, -1, 2))
    lost = position_of(LOST, -18, (-18,) * 7)

    def errors(position: ExactPosition, column: int) -> int:
        return sum(find_errors([position], lambda lines: [column] * len(lines)))

    # A slower win is no error; a draw and a loss are; in a lost position nothing is.
    assert [errors(won, column) for column in range(7)] == [0, 1, 0, 0, 1, 1, 0]
    assert [errors(lost, column) for column in range(7)] == [0] * 7


def test_a_table_of_outcomes_tells_errors_as_scores_do(tmp_path: Path):
    def signs(position: ExactPosition) -> str:
        scores = position.move_scores
        return "".join("-=+"[1 + sign(scores[column])] if column in scores else "." for column in range(7))

    path = tmp_path / "signs.txt"
    rows = [f"{position.moves} {signs(position)}\n" for position in OWN]
    path.write_text(f"# a comment\n{''.join(rows)}")
    (entry,) = read_sets([path])
    assert entry.name == "signs"
    assert [position.moves for position in entry.positions] == [position.moves for position in OWN]
    assert [position.score for position in entry.positions] == [sign(position.score) for position in OWN]

    def last_column(lines: Sequence[Line]) -> list[int]:
        return [line.legal()[-1] for line in lines]

    expected = find_errors(OWN, last_column)
    assert find_errors(entry.positions, last_column) == expected
    assert True in expected and False in expected


def test_a_player_is_asked_only_where_it_may_err():
    asked = []

    def player(lines: Sequence[Line]) -> list[int]:
        asked.extend(map(str, lines))
        return [1] * len(lines)

    won = position_of(WON, 18, (18, -17, 1, 3, 0, -1, 2))
    all_win = position_of("12", 1, (1,) * 7)
    lost = position_of(LOST, -1, (-1,) * 7)
    errs = find_errors([lost, won, all_win], player)
    assert errs == [False, True, False] and asked == [str(won.line)]
    asked.clear()
    assert find_errors([lost, all_win], player) == [False, False] and not asked


def test_a_perfect_player_never_errs_and_the_worst_always_does():
    scores = {str(position.line): position.move_scores for position in OWN}

    def player(lines: Sequence[Line], choose) -> list[int]:
        return [
            choose(line.legal(), key=lambda column, known=scores[str(line)]: known[column]) for line in lines
        ]

    assert sum(find_errors(OWN, lambda lines: player(lines, max))) == 0
    assert sum(find_errors(OWN, lambda lines: player(lines, min))) == 600


def test_outcomes_of_the_solver_are_those_of_the_table_and_remembered(monkeypatch: pytest.MonkeyPatch):
    questions = [(position, column) for position in OWN[:300:10] for column in position.line.legal()]
    expected = [sign(position.move_scores[column]) for position, column in questions]
    for num_threads in (1, 3):
        outcomes = SolverOutcomes(table_mib=16, num_threads=num_threads)
        assert outcomes(questions) == expected
        with monkeypatch.context() as patch:
            patch.setattr(solved, "solved_outcome", lambda *_: pytest.fail("solved again"))
            assert outcomes(questions[:9]) == expected[:9]


def test_nothing_is_solved_where_nothing_can_err():
    lost = position_of(LOST, -18)

    def outcomes(questions):
        assert not questions
        return []

    assert sum(find_errors([lost], lambda lines: [0] * len(lines), outcomes)) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("44 1\n45\n", ":2: '45': expected 'moves score'"),
        ("44 x\n", ":1: "),
        ("4a 1\n", ":1: '4a 1'"),
        ("48 1\n", ":1: '48 1'"),
        ("4444444 1\n", ":1: '4444444 1'"),
        ("1212121 1\n", "the game is over"),
        ("# table\nend-easy\t44\t1\t1\t1\n", ":2: .*expected"),
        ("end-easy\t44\tx\t1\t1\t1\t1\t1\t1\t1\n", ":1: .*invalid literal"),
        ("# more\n44 =-=+=-\n", ":2: .*invalid literal"),
        ("44 =-=+=-x\n", ":1: .*invalid literal"),
        ("44 .......\n", ":1: .*full columns"),
        ("1212121 =-=+=--\n", ":1: .*the game is over"),
        ("444444 =-=+=--\n", ":1: .*full columns"),
        ("44444 =-=.=--\n", ":1: .*full columns"),
    ],
)
def test_a_damaged_set_is_named_with_its_line(text: str, words: str, tmp_path: Path):
    path = tmp_path / "set.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_sets([path])


def evaluate(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict]:
    """The sets of the one network that `alphazero eval --solved --json` prints."""
    assert main(["eval", "--solved", *argv, "--device", "cpu", "--batch-size", "32", "--json"]) == 0
    (network,) = json.loads(capsys.readouterr().out)["networks"]
    return network["sets"]


def test_errors_of_a_network_are_those_of_its_largest_legal_logit(
    network_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from alphazero.network.weights.open_network import open_network

    network, _ = open_network(network_file, torch.device("cpu"))
    packed = torch.from_numpy(np.stack([position.line.packed() for position in OWN]))
    with torch.inference_mode():
        logits = network(expand_planes(packed, network.spec)).policy_BA
    expected = dict.fromkeys(CLASSES, 0)
    for number, (position, row) in enumerate(zip(OWN, logits, strict=True)):
        move = max(position.line.legal(), key=lambda column, row=row: float(row[column]))
        expected[CLASSES[number // 100]] += sign(position.move_scores[move]) < sign(position.score)
    sets = evaluate(capsys, "--weights", str(network_file))
    assert {row["name"]: row["errors"] for row in sets} == {
        name: {"network alone": count} for name, count in expected.items()
    }
    assert all(row["positions"] == 100 for row in sets)


def test_given_sets_are_solved_where_needed_and_a_search_errs_less(
    network_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "Test_L3_R1"
    ends = [position for position in OWN[:100] if len(position.moves) >= 34]
    path.write_text("".join(f"{position.moves} {position.score}\n" for position in ends) + f"{LOST} -18\n")
    argv = ["--weights", str(network_file), "--solved-sets", str(path)]
    (row,) = evaluate(capsys, *argv, "--simulations", "4000")
    assert row["name"] == "Test_L3_R1" and row["positions"] == len(ends) + 1
    # With 8 empty squares at most so many simulations see everything.
    assert row["errors"]["4,000 simulations"] == 0
    assert row["errors"]["network alone"] > len(ends) // 4
    (row,) = evaluate(capsys, *argv, "--simulations", "4", "--no-proofs")
    assert list(row["errors"]) == ["network alone", "4 simulations"]


def test_the_search_has_the_settings_asked_for_and_no_noise(
    network_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    seen = []

    def player(evaluator: object, settings: _core.SearchSettings, **how: object):
        seen.append((settings.simulations, settings.proofs, settings.c_init, settings.noise_epsilon))
        return lambda lines: [line.legal()[0] for line in lines]

    monkeypatch.setattr("alphazero.play.matches.players.search_player", player)
    config = tmp_path / "search.toml"
    config.write_text("[search]\nc_init = 3.5\nsimulations = 9\n")
    argv = ["--weights", str(network_file), "--simulations", "40"]
    evaluate(capsys, *argv)
    evaluate(capsys, *argv, "--no-proofs", "--config", str(config))
    assert list(dict.fromkeys(seen)) == [(40, True, 2.5, 0.0), (40, False, 3.5, 0.0)]


def test_people_are_told_how_far_the_searches_are(
    network_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """600 positions, 50 simulations each."""
    monkeypatch.setattr("alphazero.show.console.FIRST_SILENCE_S", 0.0)
    monkeypatch.setattr("alphazero.show.console.LONGEST_SILENCE_S", 0.0)
    monkeypatch.setattr("alphazero.show.console.TICK_S", 0.01)
    argv = ["eval", "--solved", "--weights", str(network_file), "--device", "cpu", "--simulations", "50"]
    assert main([*argv, "--no-proofs"]) == 0
    done = [
        int(shown[1].replace(",", ""))
        for line in capsys.readouterr().err.splitlines()
        if (shown := re.search(r": ([\d,]+) of 30,000 simulations in \d", line))
    ]
    assert len(done) > 5 and done == sorted(done) and done[-1] > 18_000
    assert any(count % 5_000 for count in done)  # within a set as well


def test_the_table_for_people_has_a_line_a_set_and_one_for_all(
    network_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["eval", "--solved", "--weights", str(network_file), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:]] == [*CLASSES, "all"]
    assert lines[-1].split()[1] == "600" and lines[-1].endswith("%")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["--data", "--solved"]),
        (["--no-proofs"], ["--no-proofs", "only with --solved"]),
        (["--simulations", "4"], ["--simulations", "only with --solved"]),
        (["--solved", "--no-proofs"], ["--no-proofs", "--simulations N"]),
        (["--solved", "--simulations", "0"], ["--simulations", "from 1 to"]),
        (["--solved", "--data", "games.pgn"], ["--solved", "--data"]),
        (["--solved", "--solved-sets", "nowhere"], ["nowhere", "cannot be read"]),
        (["--solved", "--solved-sets", "{tmp}"], ["Test_L*_R*"]),
        (["--solved", "--simulations", "4", "--config", "nope"], ["nope"]),
    ],
)
def test_a_mistake_is_one_line(
    argv: list[str], words: list[str], network_file: Path, capsys: pytest.CaptureFixture[str]
):
    given = [argument.replace("{tmp}", str(network_file.parent)) for argument in argv]
    assert main(["eval", "--weights", str(network_file), "--device", "cpu", *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err


def test_a_network_of_another_game_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = NetworkConfig(game="tictactoe", blocks=1, filters=8)
    path = tmp_path / "ttt.pt"
    save_weights(path, AlphaZeroNet(config, get_spec("tictactoe"), torch.Generator().manual_seed(0)), {})
    assert main(["eval", "--solved", "--weights", str(path), "--device", "cpu"]) == 2
    assert "plays tictactoe" in capsys.readouterr().err


def test_random_moves_err_as_often_as_the_table_says():
    shares = [
        sum(sign(score) < sign(position.score) for score in position.move_scores.values())
        / len(position.move_scores)
        for position in OWN
    ]
    generator = random.Random(6)
    games = 40 * OWN
    errors = sum(find_errors(games, lambda lines: [generator.choice(line.legal()) for line in lines]))
    # Five standard deviations of a sum of coin tosses.
    spread = (40 * sum(share * (1 - share) for share in shares)) ** 0.5
    assert abs(errors - 40 * sum(shares)) < 5 * spread


def test_two_networks_are_compared_in_pairs(
    network_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = NetworkConfig(game="connect4", blocks=1, filters=8)
    other = tmp_path / "other.pt"
    save_weights(other, AlphaZeroNet(config, get_spec("connect4"), torch.Generator().manual_seed(4)), {})
    argv = ["--weights", str(network_file), str(other), "--solved-sets", "own", "early", "--device", "cpu"]
    assert main(["eval", "--solved", *argv, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    first, second = answer["networks"]
    (comparison,) = answer["comparisons"]
    assert (comparison["first"], comparison["second"]) == (str(network_file), str(other))
    names = [row["name"] for row in first["sets"]]
    assert names == [*CLASSES, "early"]
    assert [row["name"] for row in comparison["sets"]] == [*names, "all"]
    for row, of_first, of_second in zip(comparison["sets"], first["sets"], second["sets"], strict=False):
        assert row["both"] + row["only_first"] == of_first["errors"]["network alone"]
        assert row["both"] + row["only_second"] == of_second["errors"]["network alone"]
        assert row["positions"] == of_first["positions"]
        low, high = row["interval"]
        assert low < row["difference"] < high
    total = comparison["sets"][-1]
    assert total["only_first"] == sum(row["only_first"] for row in comparison["sets"][:-1]) > 0
    row = comparison["sets"][-2]
    assert main(["eval", "--solved", *argv]) == 0
    text = capsys.readouterr().out
    assert f"A: {network_file}\nB: {other}\n" in text
    line = next(line for line in text.splitlines()[::-1] if line.startswith("early"))
    assert f"{100 * row['difference']:+.2f}" in line and line.split()[-2:] == [
        str(row["only_first"]),
        str(row["only_second"]),
    ]
