"""The searches of games whose rules are not the core's, where a player may move several times in a row.

Truth: exact values by plain search over the same states, and the second search written from docs/search.md.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

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


def test_connect_four_of_openspiel_is_ours() -> None:
    """Legal moves, results, and a search with an evaluator keyed by the moves: ours count columns alike."""
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    theirs, draw = read_game("--game", "openspiel:connect_four"), random.Random(0)
    for game in range(20):
        own, other = make_line("connect4"), make_line(theirs)
        while not own.outcome().over:
            assert own.legal() == other.legal() and own.first_player_to_move == other.first_player_to_move
            if game < 3 and own.num_plies % 7 == 0:
                assert searched("connect4", own) == searched(theirs, other)
            move = draw.choice(own.legal())
            own.push(move)
            other.push(move)
        ends = [(each.outcome().value, each.first_player_to_move) for each in (own, other)]
        assert ends[0] == ends[1] and other.outcome().over


def searched(game: str, line: Line) -> tuple:
    """Policy and values of a search whose evaluator knows a position by its moves alone."""
    settings = core_settings(PUCT)
    search = get_game(game).core.search(settings)
    search.start(line, None)
    while len((leaves := search.collect())[0]):
        search.apply(*keyed_by_moves(line, search, leaves))
    found = search.result()
    return found.policy.tolist(), found.root_q, found.visits, found.proven


def keyed_by_moves(line: Line, search, leaves) -> tuple[np.ndarray, np.ndarray]:
    """Of the one leaf: numbers from its number of moves and its legal moves."""
    index = leaves[1]
    tree = search.nodes()
    node = len(tree["parent"]) - 1
    path = []
    while tree["parent"][node] >= 0:
        parent = tree["parent"][node]
        path.append(int(tree["move"][tree["edge_offset"][parent] + tree["parent_edge"][node]]))
        node = parent
    rng = np.random.default_rng([line.num_plies, *reversed(path)])
    wdl = rng.dirichlet([1, 1, 1], size=1).astype(np.float32)
    return rng.normal(size=len(index)).astype(np.float32), wdl
