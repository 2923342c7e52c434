"""The searches of games whose rules are not the core's, where a player may move several times in a row.

Truth: exact values by plain search over the same states, and the second search written from docs/search.md.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from alphazero.games.core_types import BatchEvaluation, Indices, Line, Positions
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import get_game, make_line, read_game
from alphazero.search.tree_search import SearchLimits, TreeSearch
from tests.search.test_equals_reference import GUMBEL, NOISY, PUCT, Pair
from tests.support.games.exact import exact_value
from tests.support.paths import REPOSITORY, SUPPORT
from tests.support.search.driving import (
    VariedEvaluator,
    core_search,
    core_settings,
    sample_noise,
    search_to_end,
    uniform_evaluator,
)
from tests.support.search.reference import ReferenceSearch
from tests.support.search.reference_rules import Settings

RULES = SUPPORT / "games" / "rules"
NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"
BOXES = f"{RULES / 'boxes.py'}:Boxes(size=2)"
AGAIN = (BOXES, *(f"openspiel:{name}" for name in ("dots_and_boxes", "amazons(board_size=6)", "mancala")))
# Plies from which a search reaches every end within some ten thousand simulations.
BEFORE_THE_END = {
    "openspiel:tic_tac_toe": 5,
    "openspiel:nim(is_misere=False,pile_sizes=1;2;3)": 5,
    "openspiel:mnk(m=3,n=3)": 5,
    "openspiel:hex(board_size=3)": 5,
    "openspiel:hex(board_size=4)": 6,
    "openspiel:dots_and_boxes": 4,
    "openspiel:amazons(board_size=6)": 8,
    "openspiel:mancala": 4,
    "nim.py:Nim(piles=3)": 5,
    "boxes.py:Boxes(size=2)": 4,
}
SOLVED = (NIM, BOXES, *(name for name in BEFORE_THE_END if name.startswith("openspiel:")))


@pytest.fixture
def game(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    return read_game("--game", request.param)


def random_line(game: str, plies: int, draw: random.Random) -> Line:
    """So many random moves, none that ends the game."""
    line = make_line(game)
    for _ in range(plies):
        line.push(draw.choice(line.legal()))
        if line.outcome().over:
            line.pop()
            break
    return line


def late_line(game: str, seed: int) -> Line:
    """A random game up to a few plies before its end."""
    line = random_line(game, 10_000, random.Random(seed))
    for _ in range(min(BEFORE_THE_END[game.partition("@")[0]], line.num_plies)):
        line.pop()
    return line


def state_at(game: str, line: Line) -> object:
    """The same position as the rules have it."""
    rules = rules_of(game)
    state = rules.clone(rules.start) if rules.clone else rules.start.clone()
    for action in map(int, str(line).split(",") if str(line) != "start" else ()):
        state.apply_action(action)
    return state


@pytest.mark.parametrize("name", ["puct", "forced", "gumbel"])
@pytest.mark.parametrize("game", [*AGAIN, NIM], indirect=True)
def test_the_tree_is_the_reference_s_where_a_player_moves_twice(game: str, name: str) -> None:
    settings = {"puct": PUCT, "forced": NOISY, "gumbel": GUMBEL}[name]
    for plies in (0, 3, 6):
        line = random_line(game, plies, random.Random(plies))
        pair = Pair(core_search(line, settings), ReferenceSearch(settings), VariedEvaluator(seed=plies))
        pair.start(line, sample_noise(settings, len(line.legal()), plies))
        pair.search_to_end()
        pair.compare_results(seed=plies)


@pytest.mark.parametrize("algorithm", [PUCT, GUMBEL], ids=["puct", "gumbel"])
@pytest.mark.parametrize("game", SOLVED, indirect=True)
def test_a_search_to_the_end_of_the_game_proves_its_exact_value(game: str, algorithm: Settings) -> None:
    settings = replace(algorithm, simulations=30_000, considered=64)
    known: dict[str, float] = {}
    for seed in range(4):
        line = late_line(game, seed)
        search = core_search(line, settings)
        search.start(line, None)
        search_to_end(search, uniform_evaluator)
        truth = exact_value(state_at(game, line), known)
        assert search.result().proven == (truth if line.first_player_to_move else -truth), str(line)


@pytest.mark.parametrize("game", SOLVED, indirect=True)
def test_the_engine_s_tree_proves_the_exact_value_as_well(game: str) -> None:
    known: dict[str, float] = {}
    for seed in range(3):
        line = late_line(game, seed)
        search = TreeSearch(game, Even())
        search.set_line(line)
        found = search.search(SearchLimits(nodes=40_000))
        truth = exact_value(state_at(game, line), known)
        search.close()
        search.join()
        assert found.proven == (truth if line.first_player_to_move else -truth), str(line)
        assert found.moves[0].proven == found.proven


@dataclass(frozen=True)
class Known:
    found: BatchEvaluation

    def result(self) -> BatchEvaluation:
        return self.found


class Even:
    """Knows nothing, at once."""

    batch_size = 16

    def submit(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> Known:
        return Known(BatchEvaluation(*uniform_evaluator((packed, legal_index, legal_offset))))


@pytest.mark.parametrize("algorithm", [PUCT, GUMBEL], ids=["puct", "gumbel"])
@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ("tictactoe", "tic_tac_toe"),
        ("connect4", "connect_four"),
        ("othello", "othello"),
        ("chess", "chess"),
    ],
)
def test_a_search_by_openspiel_s_rules_is_that_by_ours(own: str, theirs: str, algorithm: Settings) -> None:
    """The evaluator knows a position by the moves to it and a move by OpenSpiel's number for it."""
    spiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    game, draw, compared = read_game("--game", f"openspiel:{theirs}"), random.Random(0), 0
    while compared < 3:
        line, other = make_line(own), make_line(game)
        state = spiel.load_game(theirs).new_initial_state()
        while not line.outcome().over and compared < 3:
            actions = actions_of(line, state)
            if line.num_plies % 5 == 2:
                found, expected = (
                    searched(own, line, state, algorithm),
                    searched(game, other, state, algorithm),
                )
                assert found == expected, str(line)
                compared += 1
            move = draw.choice(line.legal())
            line.push(move)
            other.push(actions[move])
            state.apply_action(actions[move])


def actions_of(line: Line, state: Any) -> dict[int, int]:
    """OpenSpiel's action of each legal move."""
    if line.NAME != "chess":
        return {move: move for move in line.legal()}
    return {move: state.parse_move_to_action(line.move_to_text(move)) for move in line.legal()}


def searched(game: str, root: Line, start: Any, settings: Settings) -> tuple[Any, ...]:
    """Visits and policy by action, and what is known of the root. start: OpenSpiel's state there."""
    search = get_game(game).core.search(core_settings(settings))
    actions = actions_of(root, start)
    in_order = [actions[root.index_to_move(index)] for index in sorted(root.legal_indices())]
    noise = np.array([np.random.default_rng(action).gumbel() for action in in_order])
    search.start(root, noise if settings.algorithm == "gumbel" else None)
    while len(search.collect()[0]):
        search.apply(*keyed_by_actions(search.nodes(), root.copy(), start.clone()))
    found, tree = search.result(), search.nodes()
    edges = zip(in_order, tree["visits"], found.policy, strict=False)  # those of the root come first
    # Sums over edges in another order differ in their last digits.
    by_action = sorted((action, int(visits), round(float(share), 5)) for action, visits, share in edges)
    return by_action, found.visits, found.proven, round(found.root_q, 6)


def keyed_by_actions(tree: dict[str, np.ndarray], line: Line, state: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of the last node: numbers from OpenSpiel's actions to it, and from each that is legal there."""
    node, path = len(tree["parent"]) - 1, []
    first, last = tree["edge_offset"][node : node + 2]
    while tree["parent"][node] >= 0:
        parent = tree["parent"][node]
        path.append(int(tree["move"][tree["edge_offset"][parent] + tree["parent_edge"][node]]))
        node = parent
    played = [line.num_plies]
    for move in reversed(path):
        played.append(actions_of(line, state)[move])
        line.push(move)
        state.apply_action(played[-1])
    actions = actions_of(line, state)
    logits = [
        np.random.default_rng([*played, actions[int(move)]]).normal() for move in tree["move"][first:last]
    ]
    wdl = np.random.default_rng(played).dirichlet([1, 1, 1], size=1)
    return np.array(logits, np.float32), wdl.astype(np.float32)
