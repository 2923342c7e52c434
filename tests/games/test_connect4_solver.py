"""The exact Connect Four solver against given scores, against plain minimax, and against itself."""

import random
import threading
from pathlib import Path

import pytest

import alphazero._core as _core

SETS = ("Test_L3_R1", "Test_L2_R1", "Test_L2_R2", "Test_L1_R1", "Test_L1_R2", "Test_L1_R3")


def line_of(columns: str) -> _core.Connect4Line:
    line = _core.Connect4Line()
    for column in columns:
        line.push(int(column) - 1)
    return line


def given(shared_data: Path, name: str, count: int) -> list[tuple[str, int]]:
    """`count` of the 500 positions, evenly spread."""
    lines = (shared_data / "connect4" / name).read_text().splitlines()
    chosen = [lines[place * len(lines) // count] for place in range(count)]
    return [(columns, int(score)) for columns, score in (line.split() for line in chosen)]


def wrong(solver: _core.Connect4Solver, positions: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Positions with another score than the given one."""
    found = [(columns, score, solver.score(line_of(columns))) for columns, score in positions]
    return [entry for entry in found if entry[1] != entry[2]]


def sign(score: int) -> int:
    return (score > 0) - (score < 0)


def random_line(generator: random.Random, num_stones: int) -> _core.Connect4Line:
    """A game of random moves cut off after so many stones, not over."""
    while True:
        line = _core.Connect4Line()
        while line.num_plies < num_stones and not line.outcome().over:
            line.push(generator.choice(line.legal()))
        if line.num_plies == num_stones and not line.outcome().over:
            return line


def minimax(line: _core.Connect4Line) -> int:
    """The definition of the score, word for word."""
    outcome = line.outcome()
    if outcome.over:
        # The winner has just put this stone down; 21 each in all.
        stones_of_winner = (line.num_plies + 1) // 2
        return outcome.value * (22 - stones_of_winner)
    best = -99
    for move in line.legal():
        line.push(move)
        best = max(best, -minimax(line))
        line.pop()
    return best


@pytest.mark.parametrize(
    ("name", "count"),
    [("Test_L3_R1", 500), ("Test_L2_R1", 500), ("Test_L2_R2", 200), ("Test_L1_R1", 100), ("Test_L1_R2", 10)],
)
def test_scores_equal_the_given_ones(shared_data: Path, name: str, count: int):
    assert wrong(_core.Connect4Solver(64), given(shared_data, name, count)) == []


def test_outcomes_equal_the_signs_of_the_given_scores(shared_data: Path):
    solver = _core.Connect4Solver(64)
    counts = dict(zip(SETS, (500, 500, 500, 200, 20, 4), strict=True))
    for name, count in counts.items():
        for columns, score in given(shared_data, name, count):
            assert solver.outcome(line_of(columns)) == sign(score), (name, columns)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS[:5])
def test_all_scores_of_a_set_equal_the_given_ones(shared_data: Path, name: str):
    assert wrong(_core.Connect4Solver(256), given(shared_data, name, 500)) == []


@pytest.mark.slow
def test_scores_of_hard_openings_equal_the_given_ones(shared_data: Path):
    assert wrong(_core.Connect4Solver(256), given(shared_data, "Test_L1_R3", 25)) == []


def test_scores_of_late_positions_are_those_of_minimax():
    generator = random.Random(1)
    solver = _core.Connect4Solver(1)
    scores = []
    for round in range(150):
        line = random_line(generator, 34 + round % 8)
        expected = minimax(line)
        assert solver.score(line) == expected, str(line)
        assert solver.outcome(line) == sign(expected), str(line)
        scores.append(expected)
    assert min(scores) < 0 < max(scores) and 0 in scores  # else this shows little


def test_the_best_move_has_the_score_of_the_position():
    generator = random.Random(2)
    solver = _core.Connect4Solver(16)
    num_full = 0
    for round in range(60):
        line = random_line(generator, 18 + round % 20)
        scores, outcomes = solver.move_scores(line), solver.move_outcomes(line)
        legal = line.legal()
        for column in range(7):
            if column not in legal:
                assert scores[column] == outcomes[column] == solver.ILLEGAL
                num_full += 1
                continue
            assert outcomes[column] == sign(scores[column])
            after = line.copy()
            after.push(column)
            if not after.outcome().over:
                assert scores[column] == -_core.Connect4Solver(1).score(after)
        assert max(scores[column] for column in legal) == solver.score(line)
    assert num_full > 20


def test_a_mirrored_position_has_the_same_score():
    generator = random.Random(3)
    for round in range(40):
        line = random_line(generator, 16 + round % 24)
        rows = str(line).split("/")
        mirrored = _core.Connect4Line("/".join(row[::-1] for row in rows))
        scores = _core.Connect4Solver(1).move_scores(line)
        assert _core.Connect4Solver(1).move_scores(mirrored) == scores[::-1], str(line)


def test_scores_do_not_depend_on_what_was_solved_before_or_on_the_table():
    generator = random.Random(4)
    lines = [random_line(generator, 16 + round % 10) for round in range(30)]
    kept, small = _core.Connect4Solver(64), _core.Connect4Solver(1)
    fresh = [_core.Connect4Solver(2).score(line) for line in lines]
    assert [kept.score(line) for line in lines] == fresh
    assert [small.score(line) for line in reversed(lines)] == fresh[::-1]
    # Outcomes leave looser bounds in the table than scores need.
    mixed = _core.Connect4Solver(64)
    assert [mixed.outcome(line) for line in lines] == list(map(sign, fresh))
    assert [mixed.score(line) for line in lines] == fresh


def test_a_score_is_at_least_itself_and_no_more():
    generator = random.Random(8)
    for round in range(40):
        line = random_line(generator, 18 + round % 20)
        score = _core.Connect4Solver(1).score(line)
        kept = _core.Connect4Solver(1)
        for value in (-21, score - 1, score, score + 1, 21):
            assert kept.at_least(line, value) == (score >= value), str(line)


@pytest.mark.parametrize(
    ("columns", "score"),
    [
        # Three of the mover in column 1: he wins by his 4th stone of 21, the 18th last.
        ("121212", 18),
        ("1212127", 18),
        # Columns 3, 4 and 5 on the ground: 2 or 6 makes four, and the mover can block only one.
        ("31415", -18),
        # One square is left, and it makes no four.
        ("54712566226127126621574377157631535333444", 0),
    ],
)
def test_scores_that_are_seen_with_the_naked_eye(columns: str, score: int):
    assert _core.Connect4Solver(1).score(line_of(columns)) == score


def test_a_game_that_is_over_is_refused():
    solver = _core.Connect4Solver(1)
    for ask in (
        solver.score,
        solver.outcome,
        lambda line: solver.at_least(line, 0),
        solver.move_scores,
        solver.move_outcomes,
    ):
        with pytest.raises(_core.GameError, match="is over"):
            ask(line_of("1212121"))


def test_other_threads_run_while_a_position_is_solved():
    solver = _core.Connect4Solver(4)
    thread = threading.Thread(target=solver.outcome, args=(line_of("4444442"),), daemon=True)
    thread.start()
    seen = set()
    while thread.is_alive() and len(seen) < 3:
        seen.add(solver.num_nodes)
    assert len(seen) == 3  # with the lock held we would have seen the end only
    thread.join()


def test_solvers_of_two_threads_do_not_disturb_each_other():
    generator = random.Random(5)
    lines = [random_line(generator, 18) for _ in range(12)]
    expected = [_core.Connect4Solver(4).score(line) for line in lines]
    found: dict[int, list[int]] = {}

    def solve(which: int) -> None:
        solver = _core.Connect4Solver(4)
        found[which] = [solver.score(line) for line in lines]

    threads = [threading.Thread(target=solve, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: expected, 1: expected}
