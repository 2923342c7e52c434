"""Games of Python files and of OpenSpiel: names, what is refused, positions, faults of the rules."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alphazero.base.errors import ConfigError, GameInputError, RulesError
from alphazero.games.board import Board
from alphazero.games.outside import names, openspiel, python_file
from alphazero.games.outside.check import check
from alphazero.games.outside.rules import shape_of_board
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import GameSpec, get_spec, known_game, make_line, read_game
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig
from tests.support.paths import REPOSITORY, SUPPORT

RULES = SUPPORT / "games" / "rules"
NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"
HEAD = """
class Game:
    num_distinct_actions = 2
    count = 0
    def current_player(self): return self.count % 2
    def legal_actions(self): return [0, 1]
    def apply_action(self, action): self.count += 1
    def is_terminal(self): return self.count >= 4
    def returns(self): return [1, -1]
    def observation_tensor(self, player): return [float(self.count)]
    def action_to_string(self, player, action): return "lr"[action]
"""


def game_of(tmp_path: Path, *changes: str) -> str:
    """A game that is right but for these methods, in a file of its own."""
    path = tmp_path / "game.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in changes), encoding="utf-8")
    return read_game("--game", f"{path}:Game")


@pytest.fixture
def spiel() -> object:
    return pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")


def test_a_file_is_recorded_by_its_name_parameters_and_digest_and_run_only_when_named(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    shutil.copy(REPOSITORY / "examples" / "nim.py", path)
    recorded = read_game("--game", f"{path}:Nim( piles = 4 )")
    assert recorded.startswith("own.py:Nim(piles=4)@") and str(tmp_path) not in recorded
    assert known_game(recorded) == recorded
    with pytest.raises(ConfigError, match=r"where .*PATH/other.py:Nim"):
        known_game("other.py:Nim@0123456789ab")
    with pytest.raises(ConfigError, match="No such file"):
        read_game("--game", f"{tmp_path / 'none.py'}:Nim")


def test_a_file_in_the_working_directory_is_not_run_for_a_recorded_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('it was run')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="only where"):
        make_line("trap.py:Game@0123456789ab")
    with pytest.raises(ConfigError, match="only where"):
        read_game("--game", "trap.py:Game@0123456789ab")


def test_a_changed_file_is_reported_once_and_read_by_the_rules_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "changed.py"
    shutil.copy(REPOSITORY / "examples" / "nim.py", path)
    before = read_game("--game", f"{path}:Nim")
    path.write_text(path.read_text() + "\n# another line\n")
    names._named.clear()  # another process
    now = read_game("--game", f"{path}:Nim")
    assert now != before and known_game(before) == now and known_game(before) == now
    assert capsys.readouterr().err.count("has changed") == 1


@pytest.mark.parametrize("text", ["x.py:Game(a)", "x.py:Game(a=1,a=2)", "x.py:Game(=1)", "x.py:Game(a=[])"])
def test_parameters_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        read_game("--game", text)


def test_a_line_of_play_is_told_by_its_moves() -> None:
    game = read_game("--game", NIM)
    line = make_line(game)
    assert (str(line), line.legal(), line.repetitions) == ("start", [0, 3, 4, 6, 7, 8], 0)
    line.push_text("c2")
    line.push(3)
    again = make_line(game, str(line))
    assert str(again) == "7,3" and again.legal() == line.legal() and again.key == line.key
    assert make_line(game).key != line.key
    with pytest.raises(GameInputError, match="position '7,9'"):
        make_line(game, "7,9")
    board = Board(game)
    for move in ("c3", "B2", "0"):  # as written, in other case, by number
        board.push(move)
    assert board.is_over and board.result == "1-0" and str(board) == "a:0  b:0  c:0"


def test_observations_are_any_floats_and_reach_the_network_with_who_moves_and_ones() -> None:
    game = read_game("--game", NIM)
    spec, line = get_spec(game), make_line(game)
    assert (spec.num_planes, spec.num_squares, spec.packed_bytes) == (5, 1, 14)
    line.push_text("c1")
    planes = expand_planes(torch.from_numpy(line.packed()[None]), spec)
    third = np.float32(1 / 3)
    assert planes.flatten().tolist() == [third, np.float32(2 / 3), np.float32(2 / 3), 1.0, 1.0]


@pytest.mark.parametrize("text", [NIM, f"{RULES / 'boxes.py'}:Boxes(size=2)"])
def test_an_evaluation_is_the_modules_and_the_same_in_every_place_of_a_batch(text: str) -> None:
    game = read_game("--game", text)
    spec, line = get_spec(game), make_line(game)
    line.push(line.legal()[1])
    network = AlphaZeroNet(NetworkConfig(game=game, blocks=2, filters=16), spec).eval()
    packed, index = np.stack([line.packed()] * 5), line.legal_indices()
    offset = np.arange(6, dtype=np.int32) * np.int32(len(index))
    found = NetworkEvaluator(network, torch.device("cpu"), "fp32", 8)(packed, np.tile(index, 5), offset)
    logits = found.legal_logits.reshape(5, -1)
    assert (logits == logits[0]).all() and (found.wdl == found.wdl[0]).all()
    with torch.inference_mode():
        output = network(expand_planes(torch.from_numpy(packed), spec))
    np.testing.assert_allclose(logits[0], output.policy_BA[0, index], atol=1e-5)
    np.testing.assert_allclose(found.wdl[0], torch.softmax(output.wdl_B3[0], 0), atol=1e-5)


def test_a_board_whose_moves_are_no_planes_has_a_linear_policy(spiel: object) -> None:
    game = read_game("--game", "openspiel:dots_and_boxes")
    spec, line = get_spec(game), make_line(game)
    network = AlphaZeroNet(NetworkConfig(game=game, blocks=1, filters=8), spec).eval()
    assert spec.policy_planes == 0 and type(network.policy).__name__ == "LinearPolicyHead"
    packed, index = line.packed()[None], line.legal_indices()
    offset = np.array([0, len(index)], np.int32)
    found = NetworkEvaluator(network, torch.device("cpu"), "fp32", 4)(packed, index, offset)
    with torch.inference_mode():
        output = network(expand_planes(torch.from_numpy(packed), spec))
    np.testing.assert_allclose(found.legal_logits, output.policy_BA[0, index], atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "board"),
    [((4, 5, 6), (4, 5, 6)), ((3, 225), (3, 15, 15)), ((16,), (16, 1, 1)), ((3, 10), (30, 1, 1))],
)
def test_shapes_of_observations(shape: tuple[int, ...], board: tuple[int, int, int]) -> None:
    assert shape_of_board(shape) == board


def spec_of(name: str) -> GameSpec:
    return get_spec(read_game("--game", name))


def test_policies_are_planes_where_actions_count_the_squares(spiel: object) -> None:
    hexes = spec_of("openspiel:hex(board_size=3)")
    assert (hexes.policy_planes, hexes.policy_map) == (1, tuple(range(9)))
    go = spec_of("openspiel:go(board_size=5)")  # a pass behind the squares
    assert (go.policy_planes, go.policy_map[-1], go.policy_size) == (2, 25, 26)
    steps = spec_of("openspiel:breakthrough(rows=4,columns=4)")  # row, column, direction, capture
    kinds = steps.policy_size // 16
    assert steps.policy_planes == kinds and steps.policy_map[kinds + 2] == 2 * 16 + 1
    assert sorted(steps.policy_map) == list(range(steps.policy_size))


def test_exactly_thirty_one_games_of_openspiel_fit(spiel: object) -> None:
    """Looked up in OpenSpiel 2.0.2's own list of types."""
    found = openspiel.names_that_fit()
    assert len(found) == 31 and {"amazons", "hex", "go", "mancala", "y"} <= set(found)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kuhn_poker", "chance plays in it"),
        ("goofspiel", "move at the same time"),
        ("dark_chess", "hides information"),
        ("2048", "one player"),
        ("dots_and_boxes(utility_margin=True)", "its results go from -4 to 4"),
        ("tic_tac_to", "did you mean tic_tac_toe"),
        ("hex(board_size=x)", "Wrong type for parameter board_size"),
    ],
)
def test_games_of_openspiel_that_do_not_fit_are_refused_by_name(spiel: object, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        get_spec(read_game("--game", f"openspiel:{name}"))
    assert name in str(caught.value)


def test_one_game_of_openspiel_has_one_name(spiel: object) -> None:
    for text in ("openspiel:hex", "openspiel:hex()", "openspiel:hex(board_size=11)"):
        assert read_game("--game", text) == "openspiel:hex"
    assert read_game("--game", "openspiel:hex(board_size=7)") == "openspiel:hex(board_size=7)"


def test_a_second_game_waits_until_the_first_is_given_back(tmp_path: Path) -> None:
    line = make_line(read_game("--game", NIM))
    other = game_of(tmp_path)
    with pytest.raises(ConfigError, match="one game of"):
        make_line(other)
    assert line.num_plies == 0 and make_line(line.NAME).legal() == line.legal()
    del line
    assert make_line(other).legal() == [0, 1]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("def returns(self): return [3, -3]", r"returns\(\) is \[3, -3\]; expected"),
        ("def returns(self): return [1, 1]", r"returns\(\) is \[1, 1\]; expected"),
        ("def legal_actions(self): return [0, 2]", r"legal_actions\(\) has 2; expected 0 to 1"),
        ("def legal_actions(self): return [0, 0]", "has 0 twice"),
        ("def legal_actions(self): return [] if self.count else [0]", "is empty while"),
        ("def current_player(self): return self.count - 4 if self.count else 0", r"current_player\(\) is -3"),
        ("def apply_action(self, action): raise KeyError('oops')", r"game.py:12: KeyError: 'oops'"),
        ("def is_terminal(self): return 1 / (2 - self.count) < 0", r"game.py:12: ZeroDivisionError"),
        ("def observation_tensor(self, player): return [0.0] * (1 + self.count)", "2 numbers; expected 1"),
        ("def observation_tensor(self, player): return [float('nan') if self.count else 0]", "not finite"),
    ],
)
def test_a_fault_of_the_rules_is_one_line_with_the_place_and_the_position(
    tmp_path: Path, change: str, fault: str
) -> None:
    game = game_of(tmp_path, change)
    with pytest.raises(RulesError, match=fault) as caught:
        line = make_line(game)
        while not line.outcome().over:
            line.packed()
            line.push(0)
    assert "\n" not in str(caught.value) and "game.py" in str(caught.value)


def test_a_class_without_a_method_or_a_number_of_actions_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no method returns"):
        rules_of(game_of(tmp_path, "returns = None"))
    with pytest.raises(ConfigError, match="actions is None"):
        rules_of(game_of(tmp_path, "num_distinct_actions = None"))
    with pytest.raises(RulesError, match=r"game\.py:12: SyntaxError"):
        rules_of(game_of(tmp_path, "def legal_actions(self: return"))
    with pytest.raises(ConfigError, match=r"'Other'; .*Game"):
        rules_of(read_game("--game", f"{tmp_path / 'game.py'}:Other") if game_of(tmp_path) else "")


def test_a_position_with_more_moves_than_a_tree_counts_is_refused(tmp_path: Path) -> None:
    game = game_of(
        tmp_path,
        "num_distinct_actions = 5000",
        "def legal_actions(self): return list(range(5000 if self.count else 4095))",
    )
    line = make_line(game)
    assert len(line.legal()) == 4095
    with pytest.raises(RulesError, match=r"5000 .*4095 .*so far: 7\)"):
        line.push(7)


THIRTY_ONE = [
    "amazons",
    "antichess",
    "breakthrough",
    "checkers",
    "chess",
    "chinese_checkers",
    "clobber",
    "connect_four",
    "crazyhouse",
    "cursor_go",
    "dots_and_boxes",
    "go",
    "gomoku",
    "havannah",
    "hex",
    "hive",
    "lines_of_action",
    "mancala",
    "mnk",
    "nim",
    "nine_mens_morris",
    "othello",
    "oware",
    "pentago",
    "quoridor",
    "shogi",
    "tic_tac_toe",
    "twixt",
    "ultimate_tic_tac_toe",
    "xiangqi",
    "y",
]


@pytest.mark.parametrize("name", THIRTY_ONE)
def test_a_line_of_each_game_is_openspiel_s_own(spiel: Any, name: str) -> None:
    """Moves, players, ends and observations, on random games of at most 60 plies."""
    draw, game = random.Random(name), read_game("--game", f"openspiel:{name}")
    state, line, spec = spiel.load_game(name).new_initial_state(), make_line(game), get_spec(game)
    network = AlphaZeroNet(NetworkConfig(game=game, blocks=1, filters=8), spec).eval()
    while not state.is_terminal() and line.num_plies < 60:
        player, action = state.current_player(), draw.choice(state.legal_actions())
        assert line.legal() == state.legal_actions() and line.first_player_to_move == (player == 0)
        assert line.move_to_text(action) == state.action_to_string(player, action)
        planes = expand_planes(torch.from_numpy(line.packed()[None]), spec)
        seen = np.array(state.observation_tensor(player), np.float32)
        assert np.array_equal(planes[0, :-2].flatten().numpy(), seen) and planes[0, -2].eq(player).all()
        state.apply_action(action)
        line.push(action)
    outcome = line.outcome()
    assert outcome.over == state.is_terminal()
    if outcome.over:
        assert (outcome.value if line.first_player_to_move else -outcome.value) == state.returns()[0]
    with torch.inference_mode():
        assert network(planes).policy_BA.shape == (1, spec.policy_size)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("num_distinct_actions = 2.5", r"num_distinct_actions is 2.5; expected a whole number, 1 to 65,536"),
        ("num_distinct_actions = 'two'", "num_distinct_actions is 'two'; expected a whole number"),
        ("num_distinct_actions = 0", "num_distinct_actions is 0; expected a whole number"),
        ("def max_game_length(self): return -5", "max_game_length is -5; expected a whole number"),
        ("max_game_length = 10**30", "max_game_length is 10*; expected a whole number, 1 to 1,000,000"),
        ("def is_terminal(self): return True", r"is_terminal\(\) is true at the start; expected a game"),
    ],
)
def test_a_class_that_is_no_game_is_refused_before_it_is_played(
    tmp_path: Path, change: str, fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        rules_of(game_of(tmp_path, change))


def test_an_exception_whose_text_raises_is_named_by_its_kind(tmp_path: Path) -> None:
    game = game_of(
        tmp_path,
        "def apply_action(self, action):",
        "    class Mute(Exception):",
        "        def __str__(self): raise ValueError",
        "    raise Mute",
    )
    with pytest.raises(RulesError, match=r":15: Mute .*start\)$"):
        make_line(game).push(0)


@pytest.mark.filterwarnings("error")
def test_observations_beyond_32_bits_are_refused_without_a_warning(tmp_path: Path) -> None:
    line = make_line(game_of(tmp_path, "def observation_tensor(self, player): return (1e300,)"))
    with pytest.raises(RulesError, match="number 0 is"):
        line.packed()


def test_a_pipe_is_no_file_of_a_game(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(ConfigError, match=r"pipe\.py: .*regular"):
        read_game("--game", f"{tmp_path / 'pipe.py'}:Game")


def test_rules_that_leave_the_process_while_they_are_checked_are_a_fault(tmp_path: Path) -> None:
    game = game_of(tmp_path, "def apply_action(self, action): raise SystemExit(0)")
    with pytest.raises(RulesError, match=r":12: SystemExit: 0 .*none\)"):
        check(rules_of(game), 1, 0)


@pytest.mark.parametrize(
    ("text", "asked", "line"),
    [
        ("while True: pass\n", "Board(GAME)", 1),
        (HEAD + "    def __init__(self):\n        while True: pass\n", "Board(GAME)", 13),
        (HEAD + '    def __str__(self): __import__("time").sleep(100)\n', "print(Board(GAME))", 12),
        (
            HEAD + "    def apply_action(self, action):\n        while True: action += 2\n",
            "check(rules_of(read_game('--game', GAME)), 1, 0)",
            13,
        ),
        (
            HEAD + "    def apply_action(self, action):\n        while True: action += 2\n",
            "measure(read_game('--game', GAME))",
            13,
        ),
    ],
)
def test_rules_that_do_not_answer_end_the_process_with_their_line(
    tmp_path: Path, text: str, asked: str, line: int
) -> None:
    path = tmp_path / "loop.py"
    path.write_text(text, encoding="utf-8")
    program = (
        "from alphazero.games.board import Board; from alphazero.games.outside import python_file, rules; "
        "from alphazero.games.outside.check import check; "
        "from alphazero.settings.chosen import measure; "
        "from alphazero.games.outside.use import rules_of; from alphazero.games.registry import read_game; "
        f"GAME = {f'{path}:Game'!r}; rules.PATIENCE_S = python_file.IMPORTS_S = 0.5; {asked}"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    (told,) = found.stderr.splitlines()
    assert f"loop.py:{line}: no answer for" in told and told.startswith("alphazero: error: ")


def test_what_rules_print_goes_to_stderr_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game = game_of(tmp_path, "def legal_actions(self): print('here', 1, sep='-'); return [0, 1]")
    assert check(rules_of(game), 20, 1).games == 20
    out, err = capsys.readouterr()
    assert out == "" and err.count("here-1\n") == python_file.MOST_PRINTS
    assert f"{tmp_path / 'game.py'}: print() was called " in err.splitlines()[-1]


def test_a_state_that_cannot_be_copied_is_a_fault_of_its_class(tmp_path: Path) -> None:
    game = game_of(tmp_path, "def __init__(self):", "    import threading; self.gate = threading.Lock()")
    with pytest.raises(RulesError, match=r"clone\(\), .*pickle"):
        make_line(game)


def test_a_module_beside_the_file_is_named_as_the_cause(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("")
    game = game_of(tmp_path, "import helper")
    with pytest.raises(ConfigError, match=r":12: .* helper\.py beside"):
        rules_of(game)
    (tmp_path / "helper.py").unlink()
    path = tmp_path / "other.py"
    path.write_text("import helper\n")
    with pytest.raises(RulesError, match=r"other\.py:1: .*'helper'$"):
        rules_of(read_game("--game", f"{path}:Game"))


@pytest.mark.parametrize("returns", ["None", "1", "[float('nan'), 1]", "['x', 'y']", "[None, None]"])
def test_returns_that_are_none_are_named_by_their_method(tmp_path: Path, returns: str) -> None:
    line = make_line(game_of(tmp_path, f"def returns(self): return {returns}"))
    with pytest.raises(RulesError, match=r"returns\(\) .*\[1, -1\].*: 0,0,0\)"):
        for _ in range(4):
            line.push(0)


def test_a_long_line_is_told_by_its_end(tmp_path: Path) -> None:
    line = make_line(game_of(tmp_path, "def is_terminal(self): return self.count == 99 and None.no"))
    with pytest.raises(RulesError, match=r"98, the last ones 0(,0){9}\)$"):
        for _ in range(99):
            line.push(0)
