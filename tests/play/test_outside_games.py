"""A game of a Python file, and one of OpenSpiel, through the program: runs, self-play, matches."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import RulesError
from alphazero.cli.main import main
from alphazero.data.sampling.loader import WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import get_game, get_spec, history_fill, make_line, read_game
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.play.matches.players import mcts_player
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import lanes_of, new_lane, play
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.games.exact import exact_value
from tests.support.jobs.zygote import Zygote
from tests.support.paths import SUPPORT
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

BOXES = f"{SUPPORT / 'games' / 'rules' / 'boxes.py'}:Boxes(size=2)"
QUICK = ("--lanes", "8", "--simulations", "4", "--evaluation-batch", "8")


@pytest.fixture
def weights(tmp_path: Path) -> str:
    game = read_game("--game", BOXES)
    path = tmp_path / "boxes.pt"
    save_weights(path, AlphaZeroNet(NetworkConfig(game=game, blocks=1, filters=8), get_spec(game)), {})
    return str(path)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which knows no file that was not named to it."""
    return subprocess.run((sys.executable, "-m", "alphazero", *words), capture_output=True, text=True)


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def forked(zygote: Zygote, tmp_path: Path) -> Command:
    """As `run`, in a fork that has imported torch: standard output and error come as one."""

    return partial(zygote.run_command, tmp_path)


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_games_are_the_same_on_one_rank_and_on_three_and_follow_the_rules(algorithm: str) -> None:
    game = read_game("--game", BOXES)
    settings = self_play_settings(
        SearchConfig(algorithm=algorithm, simulations=8), SelfPlayConfig(opening_plies=4), seed=1
    )

    def played(lanes: range, threads: int) -> list:
        evaluator = MadeUpEvaluator(game, batch_size=8)
        own = [new_lane(number) for number in lanes]
        return play(game, settings, own, 30, evaluator, num_threads=threads).finished

    alone = played(range(6), 1)
    apart = [one for rank in range(3) for one in played(lanes_of(rank, 3, 6), 2)]
    apart.sort(key=lambda one: (one.lane, one.number))
    assert len(alone) >= 12
    for one, other in zip(alone, apart, strict=True):
        assert (one.lane, one.number, one.result) == (other.lane, other.number, other.result)
        for column in ("moves", "root_q", "best_q", "policy_prob", "policy_move"):
            assert np.array_equal(getattr(one, column), getattr(other, column)), column
        line = make_line(game)
        for move in one.moves:
            line.push(int(move))
        outcome = line.outcome()
        value = outcome.value if line.first_player_to_move else -outcome.value
        assert outcome.over and value == one.result


def test_targets_are_for_whoever_moved_and_not_by_turns(weights: str, tmp_path: Path) -> None:
    store = tmp_path / "games"
    assert main(["selfplay", "--weights", weights, "--out", str(store), "--games", "12", *QUICK]) == 0
    opened = GameStore.open(store)
    window = Window.of_stores([opened])
    spec = get_spec(window.game_name)
    batch = WindowEncoder(window, spec, num_threads=1).encode(np.arange(window.num_samples))
    seen = again = 0
    games = [
        (int(view.result[number]), view.moves[view.moves_offset[number] : view.moves_offset[number + 1]])
        for view in opened.shards
        for number in range(view.num_games)
    ]
    for result, moves in games:
        line, last = make_line(window.game_name), None
        for move in moves.tolist():
            by_first = line.first_player_to_move
            again += by_first == last
            last = by_first
            assert batch.wdl[seen].argmax() == 1 - (result if by_first else -result)
            assert np.array_equal(batch.packed[seen], line.packed())
            line.push(move)
            seen += 1
    assert seen == window.num_samples and again > 10


@pytest.mark.parametrize("game", ["openspiel:tic_tac_toe", "tictactoe"])
def test_a_search_with_random_playouts_completes_and_prevents_a_row(game: str) -> None:
    """OpenSpiel's own search in its games, UCT in others."""
    if game.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    lines = []
    for moves in ((0, 3, 1, 4), (0, 4, 1)):
        line = make_line(read_game("--game", game))
        for move in moves:
            line.push(move)
        lines.append(line)
    assert mcts_player(2000, seed=1)(lines) == [2, 2]


def test_random_playouts_follow_who_moves_next_in_a_python_file() -> None:
    """Against exact search: dots and boxes, where a player may move several times in a row."""
    game = read_game("--game", BOXES)
    start = rules_of(game).start
    known: dict[str, float] = {}
    line, state, think = make_line(game), copy.deepcopy(start), mcts_player(600, seed=2)
    for edge in (0, 11, 5, 6, 10, 2, 9):
        line.push(edge)
        state.apply_action(edge)
    while not state.is_terminal():
        (chosen,) = think([line])
        sign = 1 if state.current_player() == 0 else -1
        values = {}
        for action in state.legal_actions():
            after = copy.deepcopy(state)
            after.apply_action(action)
            values[action] = sign * exact_value(after, known)
        assert values[chosen] == max(values.values()), (str(line), values)
        line.push(chosen)
        state.apply_action(chosen)


def test_rules_that_fail_in_a_playout_are_one_line(tmp_path: Path) -> None:
    rules = Path(BOXES.partition(":")[0]).read_text(encoding="utf-8")
    begin = "        before = self.closed()\n"
    assert begin in rules
    fault = "        if sum(self.drawn) == 9:\n            raise KeyError('oops')\n"
    (tmp_path / "fails.py").write_text(rules.replace(begin, fault + begin), encoding="utf-8")
    line = make_line(read_game("--game", f"{tmp_path / 'fails.py'}:Boxes(size=2)"), "4,2")
    with pytest.raises(RulesError, match=r"fails.py:\d+: KeyError: 'oops' .*: 4,2,"):
        mcts_player(10, seed=1)([line])


def test_stored_moves_that_are_not_legal_are_named() -> None:
    core = get_game(read_game("--game", BOXES)).core
    moves, offset = np.array([0, 5, 5, 1], np.uint16), np.array([0, 4], np.int32)
    no_text, no_texts = np.zeros(0, np.uint8), np.zeros(2, np.int32)
    encoder = core.batch_encoder(1)
    encoder.add_shard("a shard", moves, offset, np.zeros(1, np.int8), np.ones(1, bool), no_text, no_texts)
    first, fill = np.zeros(1, np.int32), history_fill("no")
    assert encoder.encode(first, first, np.array([1], np.int32), fill)[1].tolist() == [0, 11]
    with pytest.raises(_core.GameError, match=r"game 0, ply 2: move 5 "):
        encoder.encode(first, first, np.array([3], np.int32), fill)
    fault = core.find_illegal_game(moves, offset, no_text, no_texts)
    assert (fault.game, fault.ply) == (0, 2) and "move 5 is not" in fault.reason


@pytest.mark.slow
def test_a_recorded_game_is_opened_only_where_its_file_is_named(
    forked: Command, weights: str, tmp_path: Path
) -> None:
    store = str(tmp_path / "games")
    refused = forked("selfplay", "--weights", weights, "--out", store, "--games", "2", *QUICK)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert "expected --game 'PATH/boxes.py:Boxes(size=2)'" in refused.stderr
    named = ("--game", BOXES)
    played = run(
        "selfplay", "--weights", weights, "--out", store, "--games", "4", "--gpus", "2", *QUICK, *named
    )
    assert played.returncode == 0 and "4 games of 12.0 plies" in played.stdout
    assert forked("data", "verify", store).returncode == 2
    assert forked("data", "verify", store, *named).returncode == 0
    match = (
        "match",
        "--weights",
        weights,
        "--against",
        "random",
        "--games",
        "4",
        "--simulations",
        "4",
        "--json",
    )
    found = forked(*match, *named)
    figures = json.loads(found.stdout.splitlines()[-1])
    assert found.returncode == 0 and figures["wins"] + figures["draws"] + figures["losses"] == 4


def test_games_that_ended_before_the_rules_fail_are_kept(forked: Command, tmp_path: Path) -> None:
    rules = Path(BOXES.partition(":")[0]).read_text(encoding="utf-8")
    counter = "Boxes.calls = getattr(Boxes, 'calls', 0) + 1"
    fault = f"        {counter}\n        if Boxes.calls > 3000:\n            raise KeyError('oops')\n"
    begin = "        before = self.closed()\n"
    (tmp_path / "fails.py").write_text(rules.replace(begin, fault + begin), encoding="utf-8")
    game = read_game("--game", f"{tmp_path / 'fails.py'}:Boxes(size=2)")
    path = tmp_path / "w.pt"
    save_weights(path, AlphaZeroNet(NetworkConfig(game=game, blocks=1, filters=8), get_spec(game)), {})
    store = tmp_path / "games"
    words = ("selfplay", "--weights", str(path), "--out", str(store), "--games", "3000", *QUICK)
    found = forked(*words, "--game", f"{tmp_path / 'fails.py'}:Boxes(size=2)")
    assert found.returncode == 2 and "KeyError: 'oops'" in found.stderr.splitlines()[-1]
    assert GameStore.open(store).num_games > 0
    again = forked(*words, "--game", f"{tmp_path / 'fails.py'}:Boxes(size=2)", "--debug")
    assert "Traceback" in again.stderr


def test_rules_that_fail_at_a_person_s_move_end_the_game(tmp_path: Path) -> None:
    begin, rules = (
        "        before = self.closed()\n",
        Path(BOXES.partition(":")[0]).read_text(encoding="utf-8"),
    )
    file = tmp_path / "fails.py"
    file.write_text(rules.replace(begin, f"        raise KeyError('oops')\n{begin}"), encoding="utf-8")
    game = read_game("--game", f"{file}:Boxes(size=2)")
    path = tmp_path / "w.pt"
    save_weights(path, AlphaZeroNet(NetworkConfig(game=game, blocks=1, filters=8), get_spec(game)), {})
    words = ("play", "--weights", str(path), "--simulations", "2", "--game", f"{file}:Boxes(size=2)")
    found = subprocess.run(
        (sys.executable, "-m", "alphazero", *words),
        input="0\n1\n",
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    line = found.stderr.splitlines()[-1]
    assert "fails.py:" in line and line.endswith("KeyError: 'oops' (the moves so far: start)")


@pytest.mark.parametrize("game", [BOXES, "openspiel:tic_tac_toe"])
def test_a_run_trains_stops_and_goes_on(forked: Command, game: str, tmp_path: Path) -> None:
    if game.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    words = (
        *("train", "--game", game, "--mode", "selfplay", "--device", "cpu", "--runs-dir", str(tmp_path)),
        *(
            "--run-name",
            "own",
            "--blocks",
            "1",
            "--filters",
            "8",
            "--batch-size",
            "32",
            "--warmup-steps",
            "2",
        ),
        *("--steps-per-generation", "2", "--precision", "fp32", *QUICK),
    )
    begun = forked(*words, "--generations", "2")
    assert begun.returncode == 0, begun.stderr
    chosen = " plies, window from 5,000 positions (games of "  # the flags give all else
    assert begun.stderr.count(chosen) == 1
    before = GameStore.open(tmp_path / "own" / "games").num_games
    resumed = forked(*words, "--generations", "3")
    assert resumed.returncode == 0 and "chosen for" not in resumed.stderr
    store = GameStore.open(tmp_path / "own" / "games")
    assert store.num_games > before
    report = forked(
        "report", str(tmp_path / "own"), *(() if game.startswith("openspiel:") else ("--game", game))
    )
    assert report.returncode == 0, report.stderr
    without = [word for word in words if word not in ("--game", game)]
    if game == BOXES:
        assert "only where you" in forked(*without, "--generations", "4").stderr
