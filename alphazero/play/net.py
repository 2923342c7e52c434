"""A network for use from Python: evaluations of positions, and searches."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from alphazero.base.errors import ConfigError, GameInputError
from alphazero.base.text import one_of
from alphazero.games.board import Board
from alphazero.games.core_types import Line
from alphazero.games.lines import require_move
from alphazero.games.registry import get_spec, history_fill, read_game
from alphazero.network.inference.purpose import evaluator_for_tree
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.precision import choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network
from alphazero.network.weights.weights import Metadata, save_weights
from alphazero.search.batched import Evaluator
from alphazero.search.snapshot import Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig

# Shapes: B positions, N bytes of a packed position, A policy indices, K legal moves of a position.

EVALUATED_AT_ONCE = 256  # the most positions of a batch of evaluate_batch

if TYPE_CHECKING:
    import chess

    from alphazero.games.outside.rules import State

    Move: TypeAlias = str | int | chess.Move
    # A position: a board, its text (chess: FEN; None is the start of the game), or that text with moves.
    Position: TypeAlias = Board | chess.Board | State | str | tuple[str | None, Sequence[Move]] | None


@dataclass(frozen=True)
class Evaluation:
    """The network's evaluation of a position, from the point of view of the side to move.

    position: as text (chess: FEN). wdl: chances of win, draw and loss, which sum to 1. policy: the share of
    each legal move by its text (chess: UCI), largest first; they sum to 1. actions: the same by policy index,
    which is the number of the action in games of OpenSpiel and Python files. moves_left: plies to the end of
    the game, None for a network without that head.
    """

    position: str
    wdl: tuple[float, float, float]
    policy: dict[str, float]
    actions: dict[int, float]
    moves_left: float | None

    @property
    def value(self) -> float:
        """Win minus loss, from -1 to 1."""
        return self.wdl[0] - self.wdl[2]

    @property
    def best(self) -> str:
        """The move with the largest share."""
        return next(iter(self.policy))

    @property
    def best_action(self) -> int:
        """The policy index of the move with the largest share."""
        return next(iter(self.actions))


class Net:
    """A network frozen for playing; `az.load` opens one.

    game: which it plays. config: its shape. metadata: of its file (step, run, ...). source: the name
    that it was opened by.
    """

    def __init__(self, network: AlphaZeroNet, metadata: Metadata, device: torch.device, source: str) -> None:
        self.config: NetworkConfig = network.config
        self.game = network.config.game
        self.metadata = metadata
        self.device = device
        self.source = source
        self._network = network.to(device).eval()
        self._evaluator: Evaluator | None = None

    @property
    def module(self) -> AlphaZeroNet:
        """The torch module, in eval mode: planes [B, C, H, W] to logits (network/model/resnet.py)."""
        return self._network

    def board(self, start: str | chess.Board | State | None = None, moves: Iterable[Move] = ()) -> Board:
        """A board of the network's game."""
        return Board(self.game, start, moves)

    def evaluate(
        self, position: Position = None, moves: Sequence[Move] = (), *, fill: str = "fen_only"
    ) -> Evaluation:
        """Evaluate one position, without a search.

        position: as text (chess: FEN; None is the start of the game), a Board, a board of python-chess, or a
        state of OpenSpiel or a Python file. moves: played from there, as for Board; they are
        the position's history, which the network sees, as are the moves of a board. fill: what stands for
        positions before the first, 'no' or 'fen_only'.
        Raises GameInputError.
        """
        return self.evaluate_batch([self._board(position, moves)], fill=fill)[0]

    def evaluate_batch(self, positions: Sequence[Position], *, fill: str = "fen_only") -> list[Evaluation]:
        """The same for many positions at once: texts, boards, or pairs of a text and moves from there."""
        return self.evaluate_lines([self._board(position).line for position in positions], fill=fill)

    def evaluate_lines(self, lines: Sequence[Line], *, fill: str = "fen_only") -> list[Evaluation]:
        """The same for lines of play of the core. Raises GameInputError for one without a legal move."""
        for line in lines:
            require_move(line)
        evaluations: list[Evaluation] = []
        for begin in range(0, len(lines), EVALUATED_AT_ONCE):
            evaluations += self._evaluate(lines[begin : begin + EVALUATED_AT_ONCE], fill)
        return evaluations

    @torch.inference_mode()
    def _evaluate(self, lines: Sequence[Line], fill: str) -> list[Evaluation]:
        packed_BN = torch.as_tensor(np.stack([line.packed(history_fill(fill)) for line in lines]))
        planes_BCHW = expand_planes(packed_BN.to(self.device), self._network.spec)
        output = self._network(planes_BCHW)
        policy_BA = output.policy_BA.float().cpu()
        wdl_B3 = torch.softmax(output.wdl_B3.float(), dim=1).cpu().tolist()
        left_B = [None] * len(lines) if output.moves_left_B1 is None else output.moves_left_B1[:, 0].tolist()
        evaluations = []
        for line, policy_A, wdl, left in zip(lines, policy_BA, wdl_B3, left_B, strict=True):
            legal_K = torch.as_tensor(line.legal_indices()).long()
            shares = torch.softmax(policy_A[legal_K].double(), dim=0).tolist()
            shared = sorted(zip(legal_K.tolist(), shares, strict=True), key=lambda pair: -pair[1])
            policy = {line.move_to_text(line.index_to_move(index)): share for index, share in shared}
            win, draw, loss = wdl
            evaluations.append(Evaluation(str(line), (win, draw, loss), policy, dict(shared), left))
        return evaluations

    def search(
        self,
        position: Position = None,
        moves: Sequence[Move] = (),
        *,
        simulations: int | None = None,
        seconds: float | None = None,
        lines: int = 3,
        settings: TreeSettings | None = None,
    ) -> Snapshot:
        """A new tree search of one position; position and moves as for `evaluate`.

        It ends at so many simulations (visits of the root, its own evaluation included) or after so many
        seconds; without either at 800 simulations. lines: of how many moves the line of play is wanted. The
        Snapshot has the best move first, with visits, W, D, L for the side to move and pv_texts.
        """
        if simulations is not None and simulations < 1:
            raise ConfigError(f"simulations {simulations}: expected at least 1")
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            raise ConfigError(f"seconds {seconds}: expected a number above 0")
        if simulations is None and seconds is None:
            simulations = 800
        board = self._board(position, moves)
        tree = self.tree(settings)
        try:
            return search_line(tree, board.line, SearchLimits(nodes=simulations, seconds=seconds), lines)
        finally:
            tree.close()

    def tree(self, settings: TreeSettings | None = None) -> TreeSearch:
        """A search that keeps its tree between moves (TreeSearch); close() ends its threads."""
        if self._evaluator is None:
            self._evaluator = evaluator_for_tree(self._network, self.device, "fp32")
        return TreeSearch(self.game, self._evaluator, settings)

    def _board(self, position: Position, moves: Iterable[Move] = ()) -> Board:
        """A new board of a position and moves from there. Raises GameInputError for one of another game."""
        if isinstance(position, tuple) and len(position) == 2:
            board = Board(self.game, *position)
        elif not isinstance(position, Board):
            board = Board(self.game, position)
        elif position.game == self.game:
            board = position.copy()
        else:
            raise GameInputError(f"a board of {position.game}: the network plays {self.game}")
        for move in moves:
            board.push(move)
        return board

    def refresh(self) -> None:
        """Use the module's current weights in searches, after training it."""
        self._network.eval()
        self._evaluator = None

    def save(self, path: str | Path) -> None:
        """Write the weights to a .pt or .safetensors, which every command takes. Raises WeightsError."""
        save_weights(Path(path), self._network, self.metadata)

    def __repr__(self) -> str:
        shape = f"{self.config.blocks}x{self.config.filters}"
        return f"Net({self.source!r}: {self.game} {shape} on {self.device})"


def search_line(tree: TreeSearch, line: Line, limits: SearchLimits, lines: int) -> Snapshot:
    """Search the end of a line; the snapshot has lines of play for so many moves.

    A search whose time is over before the first evaluation waits for it. Raises as require_move.
    """
    require_move(line)
    tree.set_line(line)
    snapshot = tree.search(limits, num_lines=lines)
    return snapshot if snapshot.best else tree.search(SearchLimits(nodes=1), num_lines=lines)


def new_net(
    game: str = "chess", *, blocks: int = 6, filters: int = 64, seed: int = 0, **shape: int | bool
) -> Net:
    """An untrained network on the CPU, its weights drawn by the seed.

    shape: other settings of the network, such as se_ratio=8 or moves_left=True. Raises ConfigError.
    """
    flags = {"game": game, "blocks": blocks, "filters": filters, **shape}
    known = {entry.name for entry in fields(NetworkConfig)}
    if unknown := [name for name in shape if name not in known]:
        raise ConfigError(f"new_net: {unknown[0]!r}: no such setting; {one_of(unknown[0], known)}")
    config = load_config("", flags).network
    generator = torch.Generator().manual_seed(seed)
    network = AlphaZeroNet(config, get_spec(config.game), generator)
    return Net(network, {"step": 0}, torch.device("cpu"), "new")


def load(weights: str | Path, *, device: str = "auto", game: str = "", flag: str = "az.load") -> Net:
    """The network that `weights` means: what `--weights` of the commands takes.

    A weights file (.pt, .safetensors, lc0's .pb.gz), a run ('runs/x', 'runs/x@best-policy_top1',
    'runs/x@12000') or a checkpoint. device: 'auto', 'cpu' or 'cuda'. game: the Python file with the
    rules, 'nim.py:Nim', where it plays such a game. flag: what an error calls the weights. Raises
    WeightsError, CheckpointError, and ConfigError where the rules are not named.
    """
    if game:
        read_game("game", game)
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device {device!r}: expected auto, cpu or cuda")
    chosen = choose_device(device, 0, os.environ)
    network, metadata = open_network(str(weights), chosen, flag)
    return Net(network, metadata, chosen, str(weights))
