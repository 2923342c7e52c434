"""`alphazero eval --epd` and `--puzzles` as typed: tables, JSON, and mistakes on one line."""

import json
from pathlib import Path

import pytest

from alphazero.cli.main import main
from tests.support.evaluation.small_nets import write_small_net

MATE = "6k1/5ppp/8/8/8/8/8/R5K1 w - -"
SUITE = f'{MATE} bm Ra8#; id "mate";\n{MATE} am Ra8#; id "other";\n'
# 1... Kg8 2. Ra8# or Rb8#; and a mate in one that is no solution: the puzzle is solved by no one who mates.
PUZZLES = """PuzzleId,FEN,Moves,Rating
easy,7k/5ppp/8/8/8/8/8/RR4K1 b - - 0 1,h8g8 a1a8,600
hard,7k/5ppp/8/8/8/8/8/RR4K1 b - - 0 1,h8g8 b1b8,1900
none,rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1,f2f3 h7h5 e2e3 h5h4,2000
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Networks, a suite, puzzles, by name."""
    made = {f"net{seed}": write_small_net(tmp_path / f"net{seed}.pt", "chess", seed) for seed in (0, 1)}
    made["other"] = write_small_net(tmp_path / "other.pt", "tictactoe")
    for name, text in (("suite.epd", SUITE), ("broken.epd", f"{MATE} bm Qh5;\n"), ("puzzles.csv", PUZZLES)):
        made[name] = str(tmp_path / name)
        Path(made[name]).write_text(text)
    return made


def evaluate(files: dict[str, str], *words: str) -> int:
    return main(["eval", *(files.get(word, word) for word in words), "--device", "cpu", "--batch-size", "16"])


def test_a_suite_is_tried_by_each_network_alone_and_searching(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
):
    words = ["--weights", "net0", "net1", "--epd", "suite.epd", "--simulations", "50"]
    assert evaluate(files, *words, "--json") == 0
    networks = json.loads(capsys.readouterr().out)["networks"]
    assert [network["weights"] for network in networks] == [files["net0"], files["net1"]]
    for network in networks:
        (suite,) = network["sets"]
        assert suite["positions"] == 2 and suite["players"].keys() == {"network alone", "50 simulations"}
        # Whatever the network thinks, its search finds the mate, in the second position as well.
        searched = suite["players"]["50 simulations"]
        assert searched["solved"] == 1
        assert searched["unsolved"] == [{"id": "other", "move": "Ra8#"}]
    assert evaluate(files, *words) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "suite" and lines[0].endswith("network alone  50 simulations")
    assert lines[1].split()[0] == "suite.epd" and lines[1].split()[-1] == "1"
    assert f"not solved by {files['net0']}, 50 simulations: other Ra8#" in " ".join(text.split())


def test_puzzles_are_the_same_for_all_and_rated(files: dict[str, str], capsys: pytest.CaptureFixture[str]):
    words = ["--weights", "net0", "net1", "--puzzles", "puzzles.csv", "--simulations", "50"]
    assert evaluate(files, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    for network in found["networks"]:
        (puzzles,) = network["sets"]
        assert (puzzles["positions"], found["in_file"]) == (3, 3)
        searched = puzzles["players"]["50 simulations"]
        # Any mate solves a puzzle. In the third, of 20 legal moves an untrained network must find two.
        assert [each["id"] for each in searched["unsolved"]] == ["none"] and searched["solved"] == 2
        assert [(band["low"], band["puzzles"], band["solved"]) for band in searched["bands"]] == [
            (600, 1, 1),
            (1800, 1, 1),
            (2000, 1, 0),
        ]
        rating = searched["rating"]
        assert rating["low"] < 1900 < rating["elo"] < 2200 < rating["high"]
    assert evaluate(files, *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"3 of 3 puzzles of {files['puzzles.csv']} (evenly spread)"
    assert lines[1] == f"{files['net0']}: puzzles solved"
    assert lines[3].split() == ["rating", "puzzles", "network", "alone", "50", "simulations"]
    assert lines[7].split()[:2] == ["all", "3"] and lines[7].endswith("2  66.7%")


def test_some_puzzles_are_drawn_evenly_or_by_a_seed(
    files: dict[str, str], capsys: pytest.CaptureFixture[str]
):
    def tried(*words: str) -> list[int]:
        assert evaluate(files, "--weights", "net0", "--puzzles", "puzzles.csv", "--json", *words) == 0
        found = json.loads(capsys.readouterr().out)
        (puzzles,) = found["networks"][0]["sets"]
        assert (puzzles["positions"], found["in_file"]) == (2, 3)
        return [band["low"] for band in puzzles["players"]["network alone"]["bands"]]

    assert tried("--count", "2") == [600, 1800]
    drawn = {tuple(tried("--count", "2", "--seed", str(seed))) for seed in range(8)}
    assert len(drawn) > 1 and drawn <= {(600, 1800), (600, 2000), (1800, 2000)}


def test_all_solved_is_a_bound(files: dict[str, str], capsys: pytest.CaptureFixture[str]):
    Path(files["puzzles.csv"]).write_text("\n".join(PUZZLES.splitlines()[:2]) + "\n")
    words = ["--weights", "net0", "--puzzles", "puzzles.csv", "--simulations", "50"]
    assert evaluate(files, *words, "--json") == 0
    (puzzles,) = json.loads(capsys.readouterr().out)["networks"][0]["sets"]
    rating = puzzles["players"]["50 simulations"]["rating"]
    assert rating["low"] < rating["elo"] < rating["high"] <= 600 + 800


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epd", "broken.epd"], "broken.epd:1: illegal san: 'Qh5'"),
        (["--epd", "none.epd"], "none.epd: cannot read: No such file or directory"),
        (["--puzzles", "none.csv"], "none.csv: cannot read: No such file or directory"),
        (["--puzzles", "suite.epd"], "suite.epd:1: "),
        (["--epd", "suite.epd", "--puzzles", "puzzles.csv"], "--epd: not with --puzzles"),
        (["--epd", "suite.epd", "--data", "x.pgn"], "--data: not with --epd"),
        (["--epd", "suite.epd", "--seed", "1"], "--seed: not with --epd"),
        (["--puzzles", "puzzles.csv", "--solved"], "--solved: not with --puzzles"),
        (["--puzzles", "puzzles.csv", "--gpus", "2"], "--gpus 2: --puzzles runs in one process; expected 1"),
        (["--data", "x.pgn", "--count", "2"], "--count: only with --puzzles"),
        (["--data", "x.pgn", "--simulations", "2"], "--simulations: only with --solved, --epd or --puzzles"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    files: dict[str, str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert evaluate(files, "--weights", "net0", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("alphazero: error: ") and message in line


def test_a_network_of_another_game_is_refused(files: dict[str, str], capsys: pytest.CaptureFixture[str]):
    assert evaluate(files, "--weights", "other", "--epd", "suite.epd") == 2
    assert "other.pt: plays tictactoe" in capsys.readouterr().err
