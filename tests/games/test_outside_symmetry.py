"""Symmetries of games whose rules lie outside the core: which are found, and samples shown in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import RulesError
from alphazero.data.sampling.loader import Loader, WindowEncoder
from alphazero.games.outside import symmetry
from alphazero.games.registry import get_spec, read_game
from alphazero.training.sources.given_games import find_symmetries
from tests.data.sampling.test_symmetries import random_games, window_of
from tests.support.paths import REPOSITORY

# Players take squares of a row in turn, the first one to hold two neighbours wins.
HEAD = """
ACTIONS = [0, 1, 2, 3, 4]

class Row:
    num_distinct_actions = 5
    max_game_length = 5
    observation_tensor_shape = (2, 1, 5)
    def __init__(self):
        self.owner = [0] * 5
        self.moved = []
    def current_player(self): return len(self.moved) % 2
    def legal_actions(self): return [a for a in range(5) if self.owner[ACTIONS[a]] == 0]
    def apply_action(self, action):
        self.owner[ACTIONS[action]] = 1 if self.current_player() == 0 else -1
        self.moved.append(ACTIONS[action])
    def winner(self):
        return next((a for a, b in zip(self.owner, self.owner[1:]) if a == b != 0), 0)
    def is_terminal(self): return self.winner() != 0 or len(self.moved) == 5
    def returns(self): return [self.winner(), -self.winner()]
    def observation_tensor(self, player):
        return [float(one == side) for side in (1, -1) for one in self.owner]
    def action_to_string(self, player, action): return "abcde"[ACTIONS[action]]
    def clone(self):
        other = type(self)()
        other.owner, other.moved = list(self.owner), list(self.moved)
        return other
    def __str__(self): return str(self.owner)
"""


def row_game(tmp_path: Path, *changes: str) -> str:
    """The row, but for these methods, in a file of its own."""
    path = tmp_path / "row.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in changes), encoding="utf-8")
    return read_game("--game", f"{path}:Row")


def found(game: str) -> tuple[symmetry.Symmetry, ...]:
    return symmetry.symmetries_of(game)


@pytest.fixture
def spiel() -> object:
    return pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The edges of the first player are at the top and the bottom: other turns and reflections swap the
        # players, or are none of the hexagons.
        ("hex(board_size=5)", 1),
        ("tic_tac_toe", 7),
        ("go(board_size=9)", 7),
        ("connect_four", 1),
        # The four discs at the start are of two colours.
        ("othello", 3),
        ("clobber", 0),  # a move is a square and a direction
        # White has its king on the right.
        ("chess", 0),
        ("nim", 0),
    ],
)
def test_symmetries_of_openspiel_s_games_are_those_of_their_boards(
    spiel: object, name: str, expected: int
) -> None:
    assert len(found(read_game("--game", f"openspiel:{name}"))) == expected


def check_turned_batches(game: str, count: int) -> None:
    """That samples shown in a symmetry are those of the game in turned moves."""
    spec, num_symmetries = get_spec(game), symmetry.use_symmetries(game)
    symmetries = symmetry.symmetries_of(game)
    assert num_symmetries == 1 + len(symmetries) > 1
    games = list(random_games(game, count))
    encoder = WindowEncoder(window_of(game, games), spec, num_threads=2)
    ids = np.arange(sum(map(len, games)))
    plain = encoder.encode(ids)
    for number, one in enumerate(symmetries, 1):
        shown = encoder.encode(ids, np.full(len(ids), number, np.uint8))
        played = [one.actions[moves].tolist() for moves in games]
        turned = WindowEncoder(window_of(game, played), spec, num_threads=1).encode(ids)
        assert np.array_equal(shown.wdl, plain.wdl) and np.array_equal(shown.legal_offset, plain.legal_offset)
        for row in ids:
            places = slice(plain.legal_offset[row], plain.legal_offset[row + 1])
            assert np.array_equal(shown.packed[row], turned.packed[row]), (number, row)
            assert np.array_equal(shown.legal_index[places], turned.legal_index[places])
            assert np.array_equal(shown.policy[places], turned.policy[places])


@pytest.mark.parametrize(
    "name",
    [
        "hex(board_size=5)",  # whose planes of its two edges swap places
        "go(board_size=5)",
        "connect_four",
        "othello",
    ],
)
def test_a_turned_sample_is_the_sample_of_the_turned_game(spiel: object, name: str) -> None:
    check_turned_batches(read_game("--game", f"openspiel:{name}"), 6)


def test_a_row_is_mirrored(tmp_path: Path) -> None:
    game = row_game(tmp_path)
    (mirror,) = found(game)
    assert mirror.actions.tolist() == [4, 3, 2, 1, 0]
    check_turned_batches(game, 10)


@pytest.mark.parametrize(
    "change",
    [
        # The first square is worth more, which only the end shows.
        "def winner(self): return self.owner[0] if len(self.moved) == 5 else 0",
        # So does what may be played.
        "def legal_actions(self): return [a for a in range(5) if not self.owner[ACTIONS[a]] "
        "and (ACTIONS[a] or len(self.moved) > 1)]",
        # The same, late in the game: the last square must wait.
        "def legal_actions(self): return [a for a in range(5) if not self.owner[ACTIONS[a]] "
        "and (ACTIONS[a] < 4 or len(self.moved) == 4)]",
        # Or who moves: square 0 gives another move.
        "def current_player(self): return (len(self.moved) - (0 in self.moved)) % 2",
        # Or what is seen.
        "def observation_tensor(self, player): return [1.0] + [float(one) for one in self.owner * 2][1:]",
    ],
)
def test_a_game_that_is_not_its_mirror_image_has_no_symmetry(tmp_path: Path, change: str) -> None:
    assert found(row_game(tmp_path, change)) == ()


def test_a_game_names_symmetries_of_its_own_instead(tmp_path: Path) -> None:
    mirror = "([4, 3, 2, 1, 0], [4, 3, 2, 1, 0])"
    identity = "(range(5), range(5))"
    of_numbers = "([4, 3, 2, 1, 0, 9, 8, 7, 6, 5], [4, 3, 2, 1, 0])"
    for pair in (mirror, of_numbers):
        (one,) = found(row_game(tmp_path, f"symmetries = [{identity}, {pair}]"))
        assert one.actions.tolist() == [4, 3, 2, 1, 0] and one.numbers[5] == 9
    assert found(row_game(tmp_path, "def symmetries(self): return []")) == ()


def test_a_game_that_is_no_board_names_permutations_of_what_is_seen(tmp_path: Path) -> None:
    """Nim whose piles are alike: any order of the piles is the same game."""
    path = tmp_path / "nim.py"
    text = (REPOSITORY / "examples" / "nim.py").read_text()
    path.write_text(text.replace("list(range(1, piles + 1))", "[2] * piles"))
    assert found(read_game("--game", f"{path}:Nim")) == ()
    swap = "def symmetries(self): return [([1, 0, 2], [3, 4, 5, 0, 1, 2, 6, 7, 8])]"
    path.write_text(path.read_text() + f"\n    {swap}\n")
    game = read_game("--game", f"{path}:Nim")
    assert len(found(game)) == 1
    check_turned_batches(game, 10)
    path.write_text(text + f"\n    {swap}\n")
    with pytest.raises(RulesError, match=r"symmetries\[0\]: .*so far: none"):
        found(read_game("--game", f"{path}:Nim"))


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        (
            "([4, 3, 2, 1, 0], [0, 1, 2, 3, 4])",
            r"so far: [0-4,]+\)",
        ),
        (
            "(range(5), [0, 1, 2, 4, 3])",
            r"so far: [0-4,]+\)",
        ),
        ("([4, 3, 2, 1, 1], range(5))", "a permutation of the 5 squares or of all 10 numbers"),
        ("([4, 3, 2, 1, 0], [0, 1, 2])", "one of the 5 actions"),
        ("([4, 3, 2, 1, 0], [0.0, 1, 2, 3, 4])", "one of the 5 actions"),
        ("[[range(5)]]", "expected a pair"),
        ("0", "TypeError"),
    ],
)
def test_a_symmetry_that_is_none_is_refused_with_the_first_position(
    tmp_path: Path, named: str, fault: str
) -> None:
    with pytest.raises(RulesError, match=fault) as caught:
        found(row_game(tmp_path, f"symmetries = [{named}]"))
    assert "row.py" in str(caught.value) and "\n" not in str(caught.value)


def test_faults_of_the_rules_are_lines_here_too(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"row\.py:\d+: ZeroDivisionError"):
        found(row_game(tmp_path, "def returns(self): return 1 / 0"))


def test_the_loader_looks_for_symmetries_only_where_samples_are_turned(tmp_path: Path) -> None:
    game = row_game(tmp_path, "# looked for later")
    window, spec = window_of(game, random_games(game, 20)), get_spec(game)
    sizes = {"seed": 1, "batch_size": 32, "micro_batch_size": 32}
    plain = Loader(window, spec, **sizes).step(3)[0].batch.packed
    assert _core.ForeignLine.NUM_SYMMETRIES == 1 and spec.num_symmetries == 1
    turned = Loader(window, spec, symmetries=True, **sizes).step(3)[0].batch.packed
    assert _core.ForeignLine.NUM_SYMMETRIES == 2
    assert 4 < sum(not np.array_equal(*rows) for rows in zip(plain, turned, strict=True)) < 28


@dataclass
class TwoRanks:
    """This one, and one whose numbers are others by so much."""

    difference: int

    def on_each(self, action: Callable[[], object]) -> object:
        return action()

    def numbers(self, value: int) -> list[int]:
        return [value, value + self.difference]


def test_a_run_lists_the_symmetries_and_stops_where_ranks_found_others(tmp_path: Path) -> None:
    game = row_game(tmp_path, "# of a run")
    assert find_symmetries(game, TwoRanks(0)) == [f"symmetries of {game}: 1 beside the identity"]
    assert find_symmetries("chess", TwoRanks(0)) == []
    with pytest.raises(RulesError, match="different symmetries") as caught:
        find_symmetries(game, TwoRanks(1))
    assert caught.value.found_by_all_ranks
