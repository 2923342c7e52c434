"""The files of solved Connect Four positions: drawn by a seed, of the right class, without excluded ones."""

import random
from itertools import islice
from pathlib import Path

import pytest

import alphazero._core as _core
from alphazero.measure.truth.connect4 import OWN_SETS, line_of, read_file, read_sets
from alphazero.measure.truth.positions import SolvedSet
from tools import connect4_positions as tool
from tools.connect4_positions import CLASSES, early_line, early_origin, early_positions, key_of, keys_of

OPENING, EARLY = (read_file(OWN_SETS[name])[0] for name in ("opening", "early"))
LATE = range(12, 14)  # such positions are solved quickly


def early(path: Path, *arguments: str) -> bytes:
    assert tool.main(["early", str(path), "--seed", "5", "--table-mib", "64", *arguments]) == 0
    return path.read_bytes()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tool.PLIES, "early", LATE)


@pytest.mark.parametrize(("entry", "count"), [(OPENING, 1000), (EARLY, 5000)], ids=["opening", "early"])
def test_the_committed_positions_are_different_and_of_all_outcomes(entry: SolvedSet, count: int):
    assert len(entry.positions) == len(keys_of([entry])) == count
    assert {len(position.moves) for position in entry.positions} == set(tool.PLIES[entry.name])
    assert {position.score for position in entry.positions} == {-1, 0, 1}


@pytest.mark.parametrize(
    ("name", "fewest_plies", "count"),
    [
        ("early", 11, 12),
        pytest.param("early", 7, 40, marks=pytest.mark.slow),
        pytest.param("opening", 6, 6, marks=pytest.mark.slow),
    ],
)
def test_outcomes_of_committed_positions_are_the_solvers(name: str, fewest_plies: int, count: int):
    solver = _core.Connect4Solver(256)
    rows = OWN_SETS[name].read_text(encoding="ascii").splitlines()[3:]
    chosen = [row for row in rows if len(row.split()[0]) >= fewest_plies]
    for row in random.Random(5).sample(chosen, count):
        assert early_line(solver, row.split()[0]) == row


@pytest.mark.parametrize("entry", [OPENING, EARLY], ids=["opening", "early"])
def test_committed_positions_are_the_first_that_their_seed_draws(entry: SolvedSet, shared_data: Path):
    given = keys_of(read_sets([shared_data / "connect4"]))
    assert not given & keys_of([entry])
    lines = OWN_SETS[entry.name].read_text(encoding="ascii").splitlines()
    assert lines[2] == early_origin(entry.name, 1, given)
    drawn = early_positions(entry.name, 1, given)
    assert all(position.moves in drawn for position in entry.positions), "in this order"


@pytest.mark.parametrize(
    ("num_stones", "score", "plies"),
    [
        (0, 0, 42),
        (6, 18, 1),  # his 4th of 21 stones
        (5, -18, 2),
        (7, 18, 1),
        (0, 1, 41),  # the first player's last stone is the board's last but one
        (41, 1, 1),
        (1, 1, 41),  # the second player's is the last
        (0, -1, 42),
    ],
)
def test_plies_to_the_end_follow_from_stones_and_score(num_stones: int, score: int, plies: int):
    assert tool.plies_to_end(num_stones, score) == plies


def test_stones_and_plies_of_the_given_sets_are_what_their_names_say(shared_data: Path):
    stones = {"L1": range(0, 15), "L2": range(15, 29), "L3": range(29, 42)}
    plies = {"R1": range(1, 15), "R2": range(15, 29), "R3": range(29, 43)}
    for entry in read_sets([shared_data / "connect4"]):
        _, length, difficulty = entry.name.split("_")
        for position in entry.positions:
            assert len(position.moves) in stones[length]
            assert tool.plies_to_end(len(position.moves), position.score) in plies[difficulty]


def test_committed_positions_are_of_their_class():
    for entry in read_sets():
        for position in entry.positions:
            assert tool.class_of(len(position.moves), position.score) == entry.name


def test_given_positions_are_hard_where_best_play_takes_28_plies(shared_data: Path):
    solver = _core.Connect4Solver(64)
    for name in ("Test_L1_R1", "Test_L1_R2", "Test_L1_R3"):
        positions = read_file(shared_data / "connect4" / name)[0].positions
        for position in [each for each in positions if len(each.moves) in LATE][:6]:
            plies = tool.plies_to_end(len(position.moves), position.score)
            assert tool.is_hard(solver, position.line) == (plies >= 28), position


def test_a_position_and_its_mirror_image_have_one_key():
    assert key_of(line_of("1122344")) == key_of(line_of("7766544"))
    assert key_of(line_of("1122344")) != key_of(line_of("1122345"))


def test_early_positions_have_all_plies_and_none_comes_twice_or_is_excluded():
    drawn = list(islice(early_positions("early", 3), 3000))
    assert {len(moves) for moves in drawn} == set(tool.PLIES["early"])
    keys = [key_of(line_of(moves)) for moves in drawn]
    assert len(set(keys)) == 3000
    excluded = frozenset(keys[::3])
    others = list(islice(early_positions("early", 3, excluded), 2000))
    assert others == [moves for moves, key in zip(drawn, keys, strict=True) if key not in excluded]
    assert drawn != list(islice(early_positions("early", 4), 3000))


def test_the_same_seed_makes_the_same_positions_whatever_the_threads(late: None, tmp_path: Path):
    six = early(tmp_path / "six", "--count", "6")
    assert early(tmp_path / "other", "--count", "6", "--num-threads", "2") == six
    assert six.startswith(early(tmp_path / "two", "--count", "2"))


def test_given_positions_are_left_out(late: None, tmp_path: Path):
    early(tmp_path / "table", "--count", "2")
    first, second = read_file(tmp_path / "table")[0].positions
    given = tmp_path / "given"
    given.write_text(f"{''.join(str(8 - int(move)) for move in first.moves)} 0\n")
    early(tmp_path / "others", "--count", "2", "--not-in", str(given))
    assert read_file(tmp_path / "others")[0].positions[0].moves == second.moves


def test_too_few_positions_are_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(tool.PLIES, "early", range(1, 2))
    monkeypatch.setattr(tool, "MOST_DRAWS", 50)
    monkeypatch.setattr(tool, "is_hard", lambda solver, line: False)
    assert tool.main(["early", str(tmp_path / "table"), "--count", "3"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("found 0 positions; expected 3")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_table_is_made_again_byte_for_byte(tmp_path: Path):
    for name, seed, table_mib in (("one", "7", "64"), ("two", "7", "16"), ("other", "8", "64")):
        argv = ["table", str(tmp_path / name), "--count", "3", "--seed", seed, "--table-mib", table_mib]
        assert tool.main(argv) == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()
    sets = read_sets([tmp_path / "one"])
    assert [entry.name for entry in sets] == list(CLASSES)
    assert [len(entry.positions) for entry in sets] == [3] * len(CLASSES)
