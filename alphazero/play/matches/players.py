"""Players of a match: of this process, which choose moves for many positions at once, or UCI engines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.base.errors import RulesError
from alphazero.games.core_types import BatchEvaluation, Line
from alphazero.games.outside.names import OPENSPIEL, is_outside
from alphazero.games.outside.openspiel import mcts
from alphazero.games.outside.uct import uct_action
from alphazero.games.outside.use import explainer_of, rules_of
from alphazero.play.matches.limits import Limit
from alphazero.search.batched import PoolEvaluator, search_lines
from alphazero.search.game_trees import GameTrees
from alphazero.search.metered import Meter, MeteredEvaluator
from alphazero.search.snapshot import mate_moves
from alphazero.search.tree_search import SearchLimits, TreeSettings

if TYPE_CHECKING:  # the command line reads players' names without torch
    import torch

    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.network.model.resnet import AlphaZeroNet

SOLVED_GAME = "connect4"
# With fewer stones on the board exact scores take minutes; who wins is known in seconds.
STONES_FOR_SCORES = 10
ENGINE_BATCH = 64  # positions of one evaluation, of several trees
TREE_CACHE_MB = 4  # of each game: the evaluations of some 20,000 positions of chess


@dataclass(frozen=True)
class Thought:
    """A move to play, and its player's value of the position.

    value: points expected by the side to move, -1 to 1; None where the player gives none.
    nodes: visits of the search, 0 without one. mate: as that of a MoveReport.
    """

    move: int
    value: float | None = None
    nodes: int = 0
    mate: int | None = None


# The move to play at the end of each line; the lines are of one game, and none is over.
Player: TypeAlias = Callable[[Sequence[Line]], Sequence[int]]
# The same with values and visits, for records of games; the lines by the numbers of their games.
Thinker: TypeAlias = Callable[[Mapping[int, Line]], Sequence[Thought]]


def without_values(player: Player) -> Thinker:
    """A player as a thinker that gives neither values nor nodes."""

    def think(lines: Mapping[int, Line]) -> list[Thought]:
        return [Thought(move) for move in player(list(lines.values()))]

    return think


def network_player(evaluator: NetworkEvaluator) -> Player:
    """Plays the move with the network's largest share, the lowest policy index among equals; no search."""

    def choose(lines: Sequence[Line]) -> list[int]:
        legal, offset, evaluation = _evaluate(evaluator, lines)
        logits = np.split(evaluation.legal_logits, offset[1:-1])
        return [
            line.index_to_move(int(indices[own.argmax()]))
            for line, indices, own in zip(lines, legal, logits, strict=True)
        ]

    return choose


def one_ply_player(evaluator: NetworkEvaluator) -> Player:
    """Plays the move after which the network values the position highest for the player who made it.

    A move that ends the game counts by its result. There is no search and no policy, so this shows what the
    values are worth. Of equal moves it plays the first in the order of Line.legal.
    """

    def choose(lines: Sequence[Line]) -> list[int]:
        values: list[dict[int, float]] = [{} for _ in lines]  # of the moves, for their player
        asked: list[tuple[int, int, int]] = []
        after: list[Line] = []
        for place, line in enumerate(lines):
            for move in line.legal():
                next_line = line.copy()
                next_line.push(move)
                outcome = next_line.outcome()
                sign = 1 if next_line.first_player_to_move == line.first_player_to_move else -1
                values[place][move] = sign * float(outcome.value) if outcome.over else 0.0
                if not outcome.over:
                    asked.append((place, move, sign))
                    after.append(next_line)
        if after:
            wdl_B3 = _evaluate(evaluator, after)[2].wdl
            for (place, move, sign), (win, _, loss) in zip(asked, wdl_B3.tolist(), strict=True):
                values[place][move] = sign * (win - loss)
        return [max(of_move, key=of_move.__getitem__) for of_move in values]

    return choose


def _evaluate(
    evaluator: NetworkEvaluator, lines: Sequence[Line]
) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int32], BatchEvaluation]:
    """The policy indices of the legal moves, each position's offset into them, and the evaluation."""
    legal = [line.legal_indices() for line in lines]
    offset = np.concatenate([[0], np.cumsum([len(indices) for indices in legal])]).astype(np.int32)
    packed = np.stack([line.packed() for line in lines])
    return legal, offset, evaluator(packed, np.concatenate(legal), offset)


def search_thinker(
    evaluator: PoolEvaluator, settings: _core.SearchSettings, *, num_threads: int = 1
) -> Thinker:
    """Self-play's rules: the search's best move, without noise."""

    def think(lines: Mapping[int, Line]) -> list[Thought]:
        results = search_lines(list(lines.values()), evaluator, settings, num_threads=num_threads)
        return [Thought(found.move, found.best_q, found.visits) for found in results]

    return think


def engine_trees(
    network: AlphaZeroNet, device: torch.device, precision: str, meter: Meter, batch_size: int = 0
) -> GameTrees:
    """Trees of the engine for games of a network side by side. batch_size: of an evaluation, 0 chooses."""
    from alphazero.network.inference.purpose import evaluator_for_self_play, largest_tree_batch

    largest = largest_tree_batch(device)
    evaluator = evaluator_for_self_play(network, device, precision, batch_size or max(ENGINE_BATCH, largest))
    settings = TreeSettings(cache_mb=TREE_CACHE_MB, minibatch_size=largest)
    return GameTrees(network.spec.name, MeteredEvaluator(evaluator, meter), settings)


def engine_thinker(trees: GameTrees, nodes: int) -> Thinker:
    """The engine's rules, as `go nodes` of the UCI engine."""

    def think(lines: Mapping[int, Line]) -> list[Thought]:
        views = trees.search(lines, SearchLimits(nodes=nodes))
        return [
            Thought(best.move, best.q, view.nodes, _mate(best)) for view in views for best in view.moves[:1]
        ]

    return think


def _mate(move: _core.RootMove) -> int | None:
    return mate_moves(move.proven, move.plies) if move.proven in (-1, 1) else None


def search_player(
    evaluator: PoolEvaluator,
    settings: _core.SearchSettings,
    *,
    cache: _core.EvaluationCache | None = None,
    num_threads: int = 1,
    after_batch: Callable[[int], None] = lambda simulations: None,
) -> Player:
    """Self-play's rules, the moves alone; cache and after_batch as of search_lines."""

    def choose(lines: Sequence[Line]) -> list[int]:
        results = search_lines(
            lines, evaluator, settings, cache=cache, num_threads=num_threads, after_batch=after_batch
        )
        return [found.move for found in results]

    return choose


def random_player(seed: int) -> Player:
    """Plays a legal move at random."""
    generator = random.Random(seed)

    def choose(lines: Sequence[Line]) -> list[int]:
        return [generator.choice(line.legal()) for line in lines]

    return choose


def solver_thinker(solver: _core.Connect4Solver) -> Thinker:
    """Perfect Connect Four: a move that keeps the exact result, among equals the one nearest to the middle.

    From STONES_FOR_SCORES stones on it also wins as early and loses as late as can be.
    """

    def think_of(line: Line) -> Thought:
        assert isinstance(line, _core.Connect4Line)
        with_scores = line.num_plies >= STONES_FOR_SCORES
        scores = solver.move_scores(line) if with_scores else solver.move_outcomes(line)
        best = max(line.legal(), key=lambda column: (scores[column], -abs(column - 3)))
        return Thought(best, float((scores[best] > 0) - (scores[best] < 0)))

    return lambda lines: [think_of(line) for line in lines.values()]


class _StateOfLine:
    """A line of the core as a state (games/outside/uct.py): players are 0, who moves first, and 1."""

    def __init__(self, line: Line) -> None:
        self._line = line.copy()

    def current_player(self) -> int:
        return 0 if self._line.first_player_to_move else 1

    def legal_actions(self) -> Sequence[int]:
        return self._line.legal()

    def apply_action(self, action: int) -> None:
        self._line.push(action)

    def is_terminal(self) -> bool:
        return self._line.outcome().over

    def returns(self) -> tuple[float, float]:
        value = float(self._line.outcome().value)
        return (value, -value) if self._line.first_player_to_move else (-value, value)

    def clone(self) -> _StateOfLine:
        return _StateOfLine(self._line)


def mcts_player(simulations: int, seed: int) -> Player:
    """Tree search with random playouts: OpenSpiel's own in its games, UCT in all others."""
    theirs: dict[str, Callable[[Sequence[int]], int]] = {}
    draw = random.Random(seed)

    def choose_in(line: Line) -> int:
        if not is_outside(line.NAME):
            return uct_action(_StateOfLine(line), _StateOfLine.clone, simulations, line.MAX_PLIES, draw)
        text = str(line).removeprefix("start")  # the moves from the start of the game
        moves = [int(move) for move in text.split(",") if move]
        if not line.NAME.startswith(OPENSPIEL):
            return _choose_by_rules(line.NAME, moves, simulations, draw)
        if line.NAME not in theirs:
            theirs[line.NAME] = mcts(line.NAME, simulations, seed)
        return theirs[line.NAME](moves)

    return lambda lines: [choose_in(line) for line in lines]


def _choose_by_rules(name: str, moves: Sequence[int], simulations: int, draw: random.Random) -> int:
    """By UCT over the states of a Python file, one copy for each playout. Raises RulesError."""
    rules = rules_of(name)
    try:
        state = rules.copy(rules.start)
        for move in moves:
            state.apply_action(move)
        return uct_action(state, rules.copy, simulations, rules.max_plies, draw)
    except Exception as error:
        so_far = ",".join(map(str, moves)) or "none"
        raise RulesError(
            f"{explainer_of(name)(error)} (the moves so far: {so_far}, and a playout)"
        ) from error


@dataclass(frozen=True)
class InProcess:
    """Plays all its games in batches in this process. limit: of its search, to be shown.

    random_share: of its moves that are drawn at random instead, which makes weaker opponents of known ones.
    leave: called with the number of each game that is over.
    """

    name: str
    think: Thinker
    limit: Limit = field(default_factory=Limit)
    random_share: float = 0.0
    leave: Callable[[int], None] = lambda number: None


@dataclass(frozen=True)
class EnginePlayer:
    """A program that plays chess by UCI, with one process for each game in progress.

    command: its argument list. directory: where it runs, "" for here. random_share: as above.
    """

    name: str
    command: tuple[str, ...]
    limit: Limit
    directory: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    random_share: float = 0.0


Contestant: TypeAlias = InProcess | EnginePlayer


@dataclass(frozen=True)
class PlayerWords:
    """A player as the command line names it. kind: random, solver, mcts, weights or engine.

    given: the weights' name. limit: None where none was given. rules: "" for those of --rules.
    """

    place: str
    kind: str
    name: str
    given: str = ""
    command: tuple[str, ...] = ()
    directory: str = ""
    options: dict[str, str] = field(default_factory=dict)
    limit: Limit | None = None
    random_share: float = 0.0
    rules: str = ""
