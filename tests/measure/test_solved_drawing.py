"""The project's own early positions: drawn by a seed, hard, solved, and none of the given ones."""

import random
from itertools import islice
from pathlib import Path

import pytest

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.cli.main import main
from alphazero.measure import exact_truth as solved
from alphazero.measure import solved_drawing
from alphazero.measure.exact_truth import SolvedPosition, read_outcomes
from alphazero.measure.solved_drawing import Drawing, extend_table, is_hard, name_of, names_of, solved_line

EARLY = read_outcomes()
LATE = range(12, 14)  # such positions are solved quickly


def line_of(moves: str) -> _core.Connect4Line:
    return SolvedPosition(moves, 0).line()


def make(path: Path, drawing: Drawing, count: int, num_threads: int = 1, table_mib: int = 64) -> bytes:
    """The table with so many positions."""
    assert list(extend_table(path, drawing, count, table_mib, num_threads))[-1] == count
    return path.read_bytes()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solved_drawing, "PLIES", LATE)


def test_the_committed_table_is_of_different_early_positions():
    assert EARLY.name == "early" and len(EARLY.positions) >= 5000
    assert len(names_of([EARLY])) == len(EARLY.positions)
    assert {len(position.moves) for position in EARLY.positions} == set(solved_drawing.PLIES)
    scores = [position.score for position in EARLY.positions]
    assert min(scores) == -1 and max(scores) == 1 and 0 in scores


def test_the_committed_table_is_what_its_head_says():
    lines = solved.EARLY_TABLE.read_text(encoding="ascii").splitlines()
    assert lines[0] == solved.OUTCOMES_HEAD
    assert "--seed 1 --not-in PATH" in lines[2]
    assert solved.EARLY_TABLE.stat().st_size < 300_000


def test_outcomes_of_the_committed_table_are_the_solvers():
    solver = _core.Connect4Solver(64)
    rows = solved.EARLY_TABLE.read_text(encoding="ascii").splitlines()[3:]
    of_late = [row for row in rows if len(row.split()[0]) >= 11]
    for row in random.Random(5).sample(of_late, 12):
        assert solved_line(solver, row.split()[0]) == row


@pytest.mark.slow
def test_outcomes_of_any_committed_position_are_the_solvers():
    solver = _core.Connect4Solver(256)
    rows = solved.EARLY_TABLE.read_text(encoding="ascii").splitlines()[3:]
    for row in random.Random(6).sample(rows, 40):
        assert solved_line(solver, row.split()[0]) == row


def test_no_given_position_is_in_the_committed_table(shared_data: Path):
    given = names_of(solved.read_sets([shared_data / "connect4"]))
    assert not given & names_of([EARLY])
    head = solved.EARLY_TABLE.read_text(encoding="ascii").splitlines()[2]
    assert head == Drawing(1, given).heads()[2]


def test_given_positions_are_hard_and_as_good_as_their_best_move(shared_data: Path):
    solver = _core.Connect4Solver(64)
    easy, medium, hard = (
        [
            position
            for position in solved.read_pons(shared_data / "connect4" / name).positions
            if len(position.moves) in LATE
        ][:6]
        for name in ("Test_L1_R1", "Test_L1_R2", "Test_L1_R3")
    )
    for position in easy + medium + hard:
        # What takes 28 plies counts as hard here and as medium there.
        plies = solved.plies_to_end(len(position.moves), position.score)
        assert is_hard(solver, position.line()) == (plies >= 28), position
    for position in hard:
        row = solved_line(solver, position.moves)
        assert row is not None
        best = max(row.split()[1], key="-=+".index)
        assert best == solved.OUTCOME_SIGNS[solved.sign(position.score)]


def test_a_position_and_its_mirror_image_have_one_name():
    assert name_of(line_of("1122344")) == name_of(line_of("7766544"))
    assert name_of(line_of("1122344")) == name_of(line_of("1122443"[:3] + "2344"))
    assert name_of(line_of("1122344")) != name_of(line_of("1122345"))


def test_draws_are_of_all_plies_and_none_comes_twice_or_is_excluded():
    draws = list(islice(Drawing(3).draws(), 3000))
    assert {len(moves) for moves in draws} == set(solved_drawing.PLIES)
    names = [name_of(line_of(moves)) for moves in draws]
    assert len(set(names)) == 3000
    excluded = frozenset(names[:3000:3])
    others = list(islice(Drawing(3, excluded).draws(), 2000))
    assert others == [moves for moves, name in zip(draws, names, strict=True) if name not in excluded]
    assert draws != list(islice(Drawing(4).draws(), 3000))


def test_the_same_seed_makes_the_same_table_at_once_or_piece_by_piece(late: None, tmp_path: Path):
    whole = make(tmp_path / "whole", Drawing(5), 6)
    path = tmp_path / "pieces"
    short = make(path, Drawing(5), 2, num_threads=2, table_mib=2)
    assert whole.startswith(short)
    path.write_bytes(whole[:-5])  # killed in the middle of a line
    assert make(path, Drawing(5), 6, num_threads=2) == whole
    path.write_bytes(whole[:30])  # and in the middle of the head
    assert make(path, Drawing(5), 2) == short
    assert read_outcomes(tmp_path / "whole").positions[:2] == read_outcomes(path).positions


def test_a_table_that_is_long_enough_stays(late: None, tmp_path: Path):
    text = make(tmp_path / "table", Drawing(5), 2)
    assert list(extend_table(tmp_path / "table", Drawing(5), 1, 1, 1)) == [2]
    assert (tmp_path / "table").read_bytes() == text


def test_another_file_is_not_gone_on_with(late: None, tmp_path: Path):
    path = tmp_path / "table"
    path.write_text("nothing that may be lost")
    with pytest.raises(DataError, match=r"table: holds something else; expected none, or a table .*--seed 5"):
        make(path, Drawing(5), 2)
    assert path.read_text() == "nothing that may be lost"
    make(path.with_name("other"), Drawing(6), 1)
    with pytest.raises(DataError, match="other: holds something else"):
        make(path.with_name("other"), Drawing(5), 2)
    path.write_text("\n".join([*Drawing(5).heads(), "1212 +++++++", ""]))
    with pytest.raises(DataError, match=r"table:4: '1212': expected a position drawn by this seed"):
        make(path, Drawing(5), 2)


def test_a_want_of_positions_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(solved_drawing, "PLIES", range(13, 14))
    monkeypatch.setattr(solved_drawing, "MOST_DRAWS", 1)
    names = frozenset(name_of(line_of(moves)) for moves in islice(Drawing(1).draws(), 1))
    with pytest.raises(DataError, match="no more than 0 positions found, expected 3"):
        make(tmp_path / "table", Drawing(1, names), 3)


def test_the_command_leaves_out_given_positions(
    late: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path, given = tmp_path / "table", tmp_path / "given"
    argv = ["solve", "--make-early", str(path), "--count", "2", "--seed", "5", "--table-mib", "32"]
    assert main(argv) == 0
    assert path.read_bytes() == make(tmp_path / "same", Drawing(5), 2)
    first, second = read_outcomes(path).positions
    given.write_text(f"{''.join(str(8 - int(move)) for move in first.moves)} 0\n")
    path.unlink()
    assert main([*argv, "--not-in", str(given), "--num-threads", "2"]) == 0
    assert read_outcomes(path).positions[0] == second
    capsys.readouterr()
    assert main(argv) == 2
    assert "holds something else" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--not-in", "own"], ["--not-in", "only with --make-early"]),
        (["--num-threads", "2"], ["--num-threads", "only with --make-early"]),
        (["--make-early", "{tmp}/x", "4453"], ["--make-early", "no moves"]),
        (["--make-early", "{tmp}/x", "--json"], ["--make-early", "--json"]),
        (["--make-early", "{tmp}/x", "--make-table", "{tmp}/y"], ["--make-early", "--make-table"]),
        (["--make-early", "{tmp}/x", "--num-threads", "0"], ["--num-threads", "'0'"]),
        (["--make-early", "{tmp}/x", "--not-in", "nowhere"], ["nowhere", "cannot be read"]),
        (["--make-early", "{tmp}/x", "--table-mib", "999999999"], ["--table-mib 999999999", "free"]),
        (["--make-early", "{tmp}/no/x"], ["no/x"]),
        (["--make-early", "{tmp}"], ["{tmp}"]),
    ],
)
def test_a_mistake_is_one_line(
    argv: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["solve", *(word.replace("{tmp}", str(tmp_path)) for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    for word in words:
        assert word.replace("{tmp}", str(tmp_path)) in captured.err
    assert not list(tmp_path.iterdir())
