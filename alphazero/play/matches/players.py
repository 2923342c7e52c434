"""Players of a match, and what chooses their moves: networks, searches, the solver, chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.games.core_types import BatchEvaluation, Line
from alphazero.games.outside.names import OPENSPIEL, is_outside
from alphazero.games.outside.openspiel import mcts
from alphazero.games.outside.rules import text_of_moves
from alphazero.games.outside.uct import uct_action
from alphazero.games.outside.use import rules_of
from alphazero.play.matches.game import Decision, Score
from alphazero.play.matches.limits import Limit
from alphazero.play.uci.protocol import centipawns
from alphazero.search.batched import PoolEvaluator, search_lines
from alphazero.search.game_trees import GameTrees
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

# The move to play at the end of each line; the lines are of one game, and none is over.
ChooseMoves: TypeAlias = Callable[[Sequence[Line]], Sequence[int]]
# The same with scores and nodes, for records of games; the lines by the numbers of their games.
Decide: TypeAlias = Callable[[Mapping[int, Line]], Sequence[Decision]]


@dataclass(frozen=True)
class Player:
    """A player, from the words of a user on; decide is what chooses its moves once it is ready to play.

    kind: random, solver, mcts, weights or engine. flag: where the user named it. weights: their name.
    command: the argument list of a program that plays by UCI in this player's name, in `directory` ("" for
    here) and with `options`; one process for each game.
    random_share: of its moves that are drawn at random instead, which makes weaker opponents of known ones.
    leave: called with the number of each game that is over.
    """

    name: str
    kind: str = ""
    flag: str = ""
    weights: str = ""
    command: tuple[str, ...] = ()
    directory: str = ""
    options: dict[str, str] = field(default_factory=dict)
    limit: Limit = field(default_factory=Limit)
    random_share: float = 0.0
    decide: Decide | None = None
    leave: Callable[[int], None] | None = None


def decisions_of(choose: ChooseMoves) -> Decide:
    """Moves alone, without scores and nodes, as decisions."""

    def decide(lines: Mapping[int, Line]) -> list[Decision]:
        moves = choose(list(lines.values()))
        return [Decision(line.move_to_text(move)) for line, move in zip(lines.values(), moves, strict=True)]

    return decide


def network_player(evaluator: NetworkEvaluator) -> ChooseMoves:
    """Plays the move with the network's largest share, the lowest policy index among equals; no search."""

    def choose(lines: Sequence[Line]) -> list[int]:
        legal, offset, evaluation = _evaluate(evaluator, lines)
        logits = np.split(evaluation.legal_logits, offset[1:-1])
        return [
            line.index_to_move(int(indices[own.argmax()]))
            for line, indices, own in zip(lines, legal, logits, strict=True)
        ]

    return choose


def one_ply_player(evaluator: NetworkEvaluator) -> ChooseMoves:
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


def search_player(
    evaluator: PoolEvaluator,
    settings: _core.SearchSettings,
    *,
    cache: _core.EvaluationCache | None = None,
    num_threads: int = 1,
    after_batch: Callable[[int], None] = lambda simulations: None,
) -> ChooseMoves:
    """Plays the best move of a search by self-play's rules, without noise; arguments as of search_lines."""

    def choose(lines: Sequence[Line]) -> list[int]:
        results = search_lines(
            lines, evaluator, settings, cache=cache, num_threads=num_threads, after_batch=after_batch
        )
        return [found.move for found in results]

    return choose


def engine_trees(
    network: AlphaZeroNet, device: torch.device, precision: str, batch_size: int = 0
) -> GameTrees:
    """Trees of the engine for games of a network side by side. batch_size: of an evaluation, 0 chooses."""
    from alphazero.network.inference.purpose import evaluator_for_self_play, largest_tree_batch

    largest = largest_tree_batch(device)
    evaluator = evaluator_for_self_play(network, device, precision, batch_size or max(ENGINE_BATCH, largest))
    settings = TreeSettings(cache_mb=TREE_CACHE_MB, minibatch_size=largest)
    return GameTrees(network.spec.name, evaluator, settings)


def engine_decisions(trees: GameTrees, nodes: int) -> Decide:
    """The engine's rules, as `go nodes` of the UCI engine."""

    def decide(lines: Mapping[int, Line]) -> list[Decision]:
        found = []
        for line, view in zip(lines.values(), trees.search(lines, SearchLimits(nodes=nodes)), strict=True):
            best = view.moves[0]
            mate = mate_moves(best.proven, best.plies) if best.proven in (-1, 1) else None
            score = Score(centipawns(best.q)) if mate is None else Score(mate=mate)
            found.append(Decision(line.move_to_text(best.move), score, nodes=view.nodes))
        return found

    return decide


def solver_decisions(solver: _core.Connect4Solver) -> Decide:
    """Perfect Connect Four: a move that keeps the exact result, among equals the one nearest to the middle.

    From STONES_FOR_SCORES stones on it also wins as early and loses as late as can be.
    """

    def decision(line: Line) -> Decision:
        assert isinstance(line, _core.Connect4Line)
        with_scores = line.num_plies >= STONES_FOR_SCORES
        scores = solver.move_scores(line) if with_scores else solver.move_outcomes(line)
        best = max(line.legal(), key=lambda column: (scores[column], -abs(column - 3)))
        value = (scores[best] > 0) - (scores[best] < 0)
        return Decision(line.move_to_text(best), Score(centipawns(value)))

    return lambda lines: [decision(line) for line in lines.values()]


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


def mcts_player(simulations: int, seed: int) -> ChooseMoves:
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
    with rules.explain.faults(lambda: f" (the moves so far: {text_of_moves(moves)}, and a playout)"):
        state = rules.copy(rules.start)
        for move in moves:
            state.apply_action(move)
        return uct_action(state, rules.copy, simulations, rules.max_plies, draw)
