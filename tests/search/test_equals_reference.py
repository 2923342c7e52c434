"""The core's tree search and the reference, written from docs/search.md alone: node for node, bit for bit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.games.core_types import Line
from tests.support.search.driving import (
    FILL,
    Evaluator,
    Leaves,
    Search,
    VariedEvaluator,
    core_search,
    core_settings,
    line_of,
    sample_noise,
    search_to_end,
)
from tests.support.search.driving import uniform_evaluator as uniform
from tests.support.search.reference import ReferenceSearch, Result
from tests.support.search.reference_rules import Settings

# name: game, start, moves; every chess position is one where the rules of the game interfere with the search
POSITIONS: dict[str, tuple[str, str | None, str]] = {
    "tictactoe": ("tictactoe", None, ""),
    "tictactoe with a threat": ("tictactoe", None, "a3 b2 c1"),
    "tictactoe near the end": ("tictactoe", None, "a3 b2 c1 a1 c3"),
    "connect4": ("connect4", None, ""),
    "connect4 with three in a column": ("connect4", None, "4 3 4 3 4"),
    "connect4 with full columns": (
        "connect4",
        None,
        "4 7 5 7 7 4 4 5 7 5 2 2 7 5 4 6 5 7 2 1 4 3 2 1 5 1 6 4 6 2",
    ),
    "othello": ("othello", None, ""),
    "othello, a pass": (
        "othello",
        "xxxoooo1/xxxoooox/1oxxxoox/ooxxxxox/1ooxxxxx/ooooxxxx/1ooooxox/ooooooo1 o",
        "",
    ),
    "othello near the end": (
        "othello",
        "ooooox1o/ooooxxxx/oooxxox1/ooxxxxxx/oxoxoxxx/ooooxxxx/oxxxxxxx/x1o1x1o1 x",
        "",
    ),
    "chess": ("chess", None, ""),
    "an opening": ("chess", None, "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5a4 g8f6 e1g1"),
    "a king to be mated in one": ("chess", "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", ""),
    "a king to be mated in two": ("chess", "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", ""),
    "about to be mated": ("chess", "7k/8/4K3/6Q1/8/8/8/8 b - - 0 1", ""),
    "a pawn that stalemates": ("chess", "5k2/5P2/8/4K3/8/8/8/8 w - - 0 1", ""),
    "a queen that stalemates": ("chess", "k7/8/1K6/8/8/8/8/2Q5 w - - 0 1", ""),
    "a draw by capture": ("chess", "8/8/8/3k4/8/3K4/4p3/8 w - - 0 1", ""),
    "promotions, black": ("chess", "8/8/8/8/8/1K6/p4kp1/7N b - - 0 1", ""),
    "fifty moves near": ("chess", "8/8/4k3/8/8/3QK3/8/8 w - - 97 120", ""),
    "fifty moves in two, a pawn resets": ("chess", "8/5k2/8/8/6p1/4K3/3R2P1/8 b - - 98 99", ""),
    "one knight move from threefold": ("chess", None, "g1f3 g8f6 f3g1 f6g8 g1f3 g8f6 f3g1"),
    "shuffling before the root": (
        "chess",
        "8/6k1/8/8/3q4/8/1Q6/K7 b - - 0 1",
        "g7f7 a1a2 f7g7 a2a1 g7h7 a1b1 h7g7",
    ),
    "castling, en passant, pins": (
        "chess",
        "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
        "a2a4",
    ),
}
SMALL_GAMES = [name for name, (game, _, _) in POSITIONS.items() if game != "chess"]

PUCT = Settings(simulations=160)
NOISY = replace(PUCT, noise_epsilon=0.25, forced_playouts=2.0, fpu_reduction=0.25)
GUMBEL = Settings(algorithm="gumbel", simulations=50)

SETTINGS = {
    "plain": PUCT,
    "first-play urgency": replace(PUCT, fpu_reduction=0.3, root_fpu_reduction=0.1, leaves=4),
    "16 leaves": replace(PUCT, leaves=16, fpu_reduction=0.2),
    "noise": replace(PUCT, noise_epsilon=0.25, leaves=4),
    "forced": NOISY,
    "forced, 4 leaves": replace(NOISY, leaves=4),
    "forced hard, 16 leaves, no proofs": replace(NOISY, leaves=16, forced_playouts=30.0, proofs=False),
    "forced without noise": replace(PUCT, forced_playouts=2.0),
    "no proofs": replace(PUCT, proofs=False),
    "no proofs, 16 leaves": replace(PUCT, proofs=False, leaves=16),
    "a fast growing c": replace(PUCT, c_base=10.0, c_init=0.3, leaves=4),
    "greedy": replace(PUCT, c_init=0.02, c_base=1e6),
    "no simulation": replace(NOISY, simulations=0),
    "two simulations": replace(NOISY, simulations=2, leaves=4),
    "gumbel": GUMBEL,
    "gumbel, no simulation": replace(GUMBEL, simulations=0),
    "gumbel, all considered": replace(GUMBEL, simulations=150, considered=256),
    "gumbel, three considered": replace(GUMBEL, simulations=77, considered=3),
    "gumbel, one considered": replace(GUMBEL, simulations=30, considered=1),
    "gumbel, few simulations": replace(GUMBEL, simulations=7),
    "gumbel, no proofs": replace(GUMBEL, simulations=120, proofs=False, c_visit=20.0),
    "gumbel, a small scale": replace(GUMBEL, simulations=120, c_scale=0.1, considered=8),
}


@dataclass
class Pair:
    """The core and the reference, driven by the same calls; whatever they answer must be the same."""

    core: Search
    reference: Search
    evaluator: Evaluator
    fill: _core.HistoryFill = FILL

    def start(self, line: Line, noise: np.ndarray | None) -> None:
        self.core.start(line, noise)
        self.reference.start(line, noise)

    def search_to_end(self) -> None:
        for number in range(1_000_000):
            leaves, wanted = self.core.collect(self.fill), self.reference.collect(self.fill)
            assert_same_leaves(leaves, wanted, number)
            if len(leaves[0]) == 0:
                assert self.core.done and self.reference.done
                break
            evaluation = self.evaluator(leaves)
            self.core.apply(*evaluation)
            self.reference.apply(*evaluation)
            assert self.core.done == self.reference.done, f"done after round {number}"
            if number < 6 or number % 16 == 0:
                self.compare_trees(f"after round {number}")
        self.compare_trees("at the end")

    def compare_trees(self, when: str) -> None:
        core, reference = self.core.nodes(), self.reference.nodes()
        for name, wanted in reference.items():
            got = core[name]
            assert got.dtype == wanted.dtype, name
            assert np.array_equal(got, wanted), f"{when}: {name} {difference(got, wanted)}"

    def compare_results(self, seed: int) -> Result:
        """At several temperatures and draws; returns one of them."""
        rng = np.random.default_rng(seed)
        result = None
        for temperature in (0.0, 0.05, 0.7, 1.0, 1.6):
            for draw in (0.0, float(rng.random()), 1 - 2**-53):
                result, wanted = self.core.result(temperature, draw), self.reference.result(temperature, draw)
                for name in (field.name for field in dataclasses.fields(Result)):
                    got, want = getattr(result, name), getattr(wanted, name)
                    assert np.array_equal(got, want), (
                        f"{name} at {temperature}, {draw}: {got}, expected {want}"
                    )
        assert result is not None
        return result


def difference(got: np.ndarray, wanted: np.ndarray) -> str:
    """Where two arrays part, for a message."""
    if got.shape != wanted.shape:
        return f"has shape {got.shape}, expected {wanted.shape}"
    place = int(np.flatnonzero(got != wanted)[0])
    return f"[{place}] is {got[place]!r}, expected {wanted[place]!r}"


def assert_same_leaves(got: Leaves, wanted: Leaves, number: int) -> None:
    for name, one, other in zip(("packed", "legal_index", "legal_offset"), got, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape, f"round {number}: {name} {one.shape}"
        assert np.array_equal(one, other), f"round {number}: {name}"


def pair_at(position: str, settings: Settings, evaluator: Evaluator, seed: int) -> Pair:
    """Both searches of a position, started."""
    line = line_of(*POSITIONS[position])
    pair = Pair(core_search(line, settings), ReferenceSearch(settings), evaluator)
    pair.start(line, sample_noise(settings, len(line.legal()), seed))
    return pair


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("position", POSITIONS)
def test_tree_and_result_are_the_reference_s_in_every_position(position: str, name: str) -> None:
    pair = pair_at(position, SETTINGS[name], VariedEvaluator(seed=len(name)), seed=1)
    pair.search_to_end()
    pair.compare_results(seed=1)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("position", ["tictactoe with a threat", "connect4", "a queen that stalemates"])
def test_all_ties_are_broken_alike_where_the_network_knows_nothing(position: str, name: str) -> None:
    pair = pair_at(position, SETTINGS[name], uniform, seed=2)
    pair.search_to_end()
    pair.compare_results(seed=2)


@pytest.mark.parametrize("win_bias", [-9.0, 9.0])
@pytest.mark.parametrize("name", ["first-play urgency", "forced, 4 leaves", "gumbel"])
def test_values_near_won_and_lost_are_the_reference_s(name: str, win_bias: float) -> None:
    for position in ("connect4", "castling, en passant, pins"):
        pair = pair_at(position, SETTINGS[name], VariedEvaluator(3, win_bias), seed=3)
        pair.search_to_end()
        pair.compare_results(seed=3)


def play_on(pair: Pair, position: str, settings: Settings, moves: int, seed: int) -> int:
    """Several searches in a row, in one memory; moves by visits, by chance, or the least walked."""
    line = line_of(*POSITIONS[position])
    rng = np.random.default_rng(seed)
    played = 0
    for ply in range(moves):
        pair.search_to_end()
        result = pair.compare_results(seed + ply)
        legal = sorted(line.legal(), key=line.move_to_index)
        by_chance = legal[rng.integers(len(legal))]
        least = legal[int(np.argmin(result.policy))]
        move = (result.move, result.move, by_chance, result.move, least)[ply % 5]
        line.push(move)
        if line.outcome().over:
            break
        played += 1
        pair.start(line, sample_noise(settings, len(line.legal()), seed + ply))
    return played


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "16 leaves",
        "forced",
        "forced, 4 leaves",
        "no proofs, 16 leaves",
        "gumbel",
        "a fast growing c",
    ],
)
@pytest.mark.parametrize(
    "position",
    [
        "tictactoe",
        "connect4",
        "chess",
        "a queen that stalemates",
        "a king to be mated in two",
        "fifty moves near",
        "one knight move from threefold",
    ],
)
def test_searches_of_several_moves_are_the_reference_s(position: str, name: str) -> None:
    settings = replace(SETTINGS[name], simulations=SETTINGS[name].simulations // 2)
    pair = pair_at(position, settings, VariedEvaluator(4), seed=4)
    play_on(pair, position, settings, moves=5, seed=4)


@pytest.mark.parametrize("name", ["plain", "16 leaves", "forced, 4 leaves", "gumbel"])
@pytest.mark.parametrize("position", SMALL_GAMES)
def test_searches_of_whole_games_are_the_reference_s(position: str, name: str) -> None:
    settings = replace(SETTINGS[name], simulations=24)
    pair = pair_at(position, settings, VariedEvaluator(5), seed=5)
    assert play_on(pair, position, settings, moves=42, seed=5) > 0 or pair.core.result(0, 0).proven != 2


@pytest.mark.parametrize("position", ["chess", "an opening", "shuffling before the root", "connect4"])
def test_leaves_without_a_filled_history_are_the_reference_s(position: str) -> None:
    pair = pair_at(position, SETTINGS["first-play urgency"], VariedEvaluator(8), seed=8)
    pair.fill = _core.HistoryFill.NO
    pair.search_to_end()


@pytest.mark.parametrize(
    ("game", "searches"),
    [
        ("chess", _core.ChessLineSearch),
        ("connect4", _core.Connect4LineSearch),
        ("tictactoe", _core.TicTacToeLineSearch),
        ("othello", _core.OthelloLineSearch),
    ],
)
@pytest.mark.parametrize("name", ["plain", "16 leaves", "gumbel"])
def test_positions_searched_side_by_side_find_what_the_reference_finds_alone(
    name: str, game: str, searches: type
) -> None:
    """More lines than slots, so that trees are used again; batches that mix positions; threads."""
    starts = [line_of(*position) for position in POSITIONS.values() if position[0] == game]
    lines = [after for line in starts for after in (line, *children(line)[:2])]
    settings, evaluator = replace(SETTINGS[name], simulations=48), VariedEvaluator(9)
    together = searches(lines, core_settings(settings), 3, 2, 2, FILL)
    waiting: dict[int, Leaves] = {group: together.step(group) for group in range(2)}
    while any(len(leaves[0]) > 0 for leaves in waiting.values()):
        for group, leaves in waiting.items():
            if len(leaves[0]) > 0:
                waiting[group] = together.step(group, *evaluator(leaves))
    found = together.found()
    assert len(found) == len(lines)
    assert together.simulations == sum(result.visits for result in found)
    for line, got in zip(lines, found, strict=True):
        alone = ReferenceSearch(settings)
        alone.start(line, None)
        search_to_end(alone, evaluator)
        wanted = alone.result(0.0, 0.0)
        for field in dataclasses.fields(Result):
            one, other = getattr(got, field.name), getattr(wanted, field.name)
            assert np.array_equal(one, other), f"{field.name} of {line}: {one}, expected {other}"


def children(line: Line) -> list[Line]:
    """The line after each legal move that does not end the game."""
    after = [line.copy() for _ in line.legal()]
    for child, move in zip(after, line.legal(), strict=True):
        child.push(move)
    return [child for child in after if not child.outcome().over]
