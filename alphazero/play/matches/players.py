"""Players of a match, and what chooses their moves: networks, searches, the solver, chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import alphazero._core as _core
from alphazero.games.core_types import Line
from alphazero.games.lines import leaves_of
from alphazero.games.outside.names import OPENSPIEL
from alphazero.games.outside.openspiel import mcts
from alphazero.games.uct import uct_move
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
        packed, legal, offset = leaves_of(lines)
        logits = evaluator(packed, legal, offset).legal_logits
        return [
            line.index_to_move(int(legal[begin + logits[begin:end].argmax()]))
            for line, begin, end in zip(lines, offset, offset[1:], strict=False)
        ]

    return choose


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
        return [result.move for result in results]

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
        decisions = []
        for line, view in zip(lines.values(), trees.search(lines, SearchLimits(nodes=nodes)), strict=True):
            best = view.moves[0]
            mate = mate_moves(best.proven, best.plies) if best.proven in (-1, 1) else None
            score = Score(centipawns(best.q)) if mate is None else Score(mate=mate)
            decisions.append(Decision(line.move_to_text(best.move), score, nodes=view.nodes))
        return decisions

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


def mcts_player(simulations: int, seed: int) -> ChooseMoves:
    """Tree search with random playouts: OpenSpiel's own in its games, UCT in all others."""
    theirs: dict[str, Callable[[Sequence[int]], int]] = {}
    draw = random.Random(seed)

    def choose_in(line: Line) -> int:
        if not line.NAME.startswith(OPENSPIEL):
            return uct_move(line, simulations, draw)
        if line.NAME not in theirs:
            theirs[line.NAME] = mcts(line.NAME, simulations, seed)
        text = str(line).removeprefix("start")  # the moves from the start of the game
        return theirs[line.NAME]([int(move) for move in text.split(",") if move])

    return lambda lines: [choose_in(line) for line in lines]
