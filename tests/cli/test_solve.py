"""`alphazero solve` as a user types it."""

import json

import pytest

import alphazero._core as _core
from alphazero.base.text import counted
from alphazero.cli.main import main
from alphazero.cli.playing.solve import words_of

OPENING = "32164625"  # its score, 11, is the first line of a given set


def test_the_score_is_printed_with_its_meaning(capsys: pytest.CaptureFixture[str]):
    assert main(["solve", OPENING, "--table-mib", "16"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("11: x, to move, wins")


@pytest.mark.parametrize("columns", [OPENING, OPENING + "1", "44455554221", "4444443115637", "321646251"])
def test_the_words_count_the_moves_of_the_best_play(columns: str):
    """Played to the end by the solver's best moves, counting the moves of the side that moved first."""
    solver, line = _core.Connect4Solver(16), _core.Connect4Line()
    for column in columns:
        line.push(int(column) - 1)
    score = solver.score(line)
    words, plies = words_of(score, len(columns)), 0
    while not line.outcome().over:
        scores = solver.move_scores(line)
        line.push(max(line.legal(), key=lambda move: scores[move]))
        plies += 1
    outcome = {1: "wins", -1: "loses", 0: "draws"}[(score > 0) - (score < 0)]
    moves = -(-plies // 2) if score > 0 else plies // 2
    assert words == (outcome if score == 0 else f"{outcome} in {counted(moves, 'move')}")


def test_the_score_of_every_column_that_is_not_full(capsys: pytest.CaptureFixture[str]):
    columns = "444444" + "31156"
    assert main(["solve", columns, "--moves", "--table-mib", "16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == [f"column {column}" for column in (1, 2, 3, 5, 6, 7)]
    values = [int(line.replace(",", ":").split(":")[1]) for line in lines[1:]]
    assert int(lines[0].split(":")[0]) == max(values)


def test_json_holds_what_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["solve", OPENING, "--moves", "--json", "--table-mib", "16"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["moves"] == OPENING and answer["score"] == 11
    assert max(answer["move_scores"].values()) == 11 and list(answer["move_scores"]) == list("1234567")
    assert main(["solve", OPENING, "--json", "--table-mib", "16"]) == 0
    assert json.loads(capsys.readouterr().out) == {"moves": OPENING, "score": 11}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["48"], ["move 2", "'8'"]),
        (["40"], ["move 2", "'0'"]),
        (["44a4"], ["move 3", "'a'"]),
        (["4 4"], ["move 2", "' '"]),
        (["4444444"], ["move 7", "'4'"]),
        (["12121212"], ["move 8", "the game is over"]),
        (["1212121"], ["the game is over"]),
        (["44", "--table-mib", "0"], ["--table-mib", "'0'", "from 1 to"]),
        (["44", "--table-mib", "999999999"], ["--table-mib 999999999", "free"]),
        (["44", "--table-mib", "much"], ["--table-mib", "'much'"]),
        (["44", "55"], ["55"]),
    ],
)
def test_a_mistake_is_one_line(argv: list[str], words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["solve", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("alphazero: error: ")
    for word in words:
        assert word in captured.err


def test_what_takes_long_is_announced_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("alphazero.cli.playing.solve.PROGRESS_INTERVAL_S", 0.01)
    monkeypatch.setattr("alphazero.show.console.FIRST_SILENCE_S", 0.0)
    monkeypatch.setattr("alphazero.show.console.TICK_S", 0.01)
    assert main(["solve", "4444445", "--table-mib", "16"]) == 0
    captured = capsys.readouterr()
    assert "solving" in captured.err and int(captured.out.split(":")[0]) == _core.Connect4Solver(16).score(
        line_of("4444445")
    )


def line_of(columns: str) -> _core.Connect4Line:
    line = _core.Connect4Line()
    for column in columns:
        line.push(int(column) - 1)
    return line
