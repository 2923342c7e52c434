"""A search as it stands, for programs and people: the moves of the root with what is known of each."""

from __future__ import annotations

from dataclasses import dataclass

import alphazero._core as _core
from alphazero.base.text import counted
from alphazero.games.core_types import Line
from alphazero.games.notation import move_text, move_texts, own_texts
from alphazero.games.registry import CHESS, make_line

UNPROVEN = 2  # the core's word for it
SHOWN_PLIES = 6  # of the line of play, where a snapshot is printed


@dataclass(frozen=True, repr=False)
class MoveReport:
    """A legal move of the root. Values are for the side to move there.

    text: as the game writes it (chess: UCI). action: its policy index, which is the number of the action in
    games of OpenSpiel and Python files. prior: the network's share of it, at the policy temperature.
    share: of the visits of all moves looked at (the prior's where there are none). q: W - L; the root's for a
    move that was not looked at. proven: 1, 0 or -1 where the end of the game is proven. plies: to that end
    along a line that the tree proves, this move included (won and lost only). pv, pv_texts: the line of play,
    which begins with the move; empty beyond the lines requested. game, position: of the root, as text (chess:
    FEN).
    """

    move: int
    text: str
    action: int
    prior: float
    visits: int
    share: float
    q: float
    wdl: tuple[float, float, float]
    proven: int | None
    plies: int | None
    pv: tuple[int, ...]
    pv_texts: tuple[str, ...]
    game: str
    position: str

    @property
    def is_looked_at(self) -> bool:
        """Whether the value is that of the move; otherwise it is the root's."""
        return self.visits > 0 or self.proven is not None

    @property
    def mate(self) -> int | None:
        """Proven in so many moves of the winner; negative: lost. None where neither is proven."""
        return mate_moves(self.proven, self.plies)

    @property
    def san(self) -> str:
        """The move as people write it: SAN in chess, else `text`."""
        return move_text(make_line(self.game, self.position), self.move) if self.game == CHESS else self.text

    @property
    def pv_san(self) -> list[str]:
        """The line of play, written so."""
        if self.game != CHESS:
            return list(self.pv_texts)
        return move_texts(make_line(self.game, self.position), self.pv)

    def __repr__(self) -> str:
        return f"MoveReport({self.san}: {counted(self.visits, 'visit')}, {_value_text(self.q, self.mate)})"


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The search of one position. Values are for the side to move; `moves` has the best move first.

    nodes: visits of the root: its own evaluation and every finished walk, kept ones included.
    playouts: of these, finished in this search. depth: mean plies of a walk; seldepth: of the longest.
    is_done: the root is proven (`proven`, `plies`), or no move is left. is_full: the tree's memory is full.
    position: the root as text (chess: FEN).
    """

    nodes: int
    playouts: int
    evaluations: int
    cache_hits: int
    seconds: float
    depth: int
    seldepth: int
    q: float
    wdl: tuple[float, float, float]
    proven: int | None
    plies: int | None
    is_done: bool
    is_full: bool
    hashfull: int
    tree_nodes: int
    tree_bytes: int
    moves: tuple[MoveReport, ...]
    position: str

    @property
    def best(self) -> MoveReport | None:
        """None before the first evaluation, and where the rules leave no move."""
        return self.moves[0] if self.moves else None

    @property
    def best_action(self) -> int | None:
        """The best move's number."""
        return self.best.action if self.best else None

    @property
    def actions(self) -> dict[int, float]:
        """The share of the visits of each move by its number, the best first; they sum to 1."""
        return {move.action: move.share for move in self.moves}

    @property
    def mate(self) -> int | None:
        """As MoveReport.mate, of the position."""
        return mate_moves(self.proven, self.plies)

    def __repr__(self) -> str:
        line = f", {' '.join(self.best.pv_san[:SHOWN_PLIES])}" if self.best else ""
        nodes = counted(self.nodes, "node")
        return f"Snapshot({self.position!r}: {nodes}, {_value_text(self.q, self.mate)}{line})"


def _value_text(q: float, mate: int | None) -> str:
    return f"q {q:+.3f}" if mate is None else f"mate {mate}"


def mate_moves(proven: int | None, plies: int | None) -> int | None:
    """Plies to a proven end as moves of the winner, negative for the loser."""
    if proven is None or plies is None:
        return None
    return (plies + 1) // 2 if proven > 0 else -(plies // 2)


def wdl_of(q: float, d: float) -> tuple[float, float, float]:
    """Win, draw, loss from W - L and D."""
    return (max(0.0, (1.0 + q - d) / 2), d, max(0.0, (1.0 - q - d) / 2))


def snapshot_of(view: _core.SearchView, line: Line, seconds: float) -> Snapshot:
    """The core's view of a search of the end of this line."""
    visits = sum(move.visits for move in view.moves)
    priors = sum(move.prior for move in view.moves)
    position = str(line)
    moves = []
    for move in view.moves:
        proven = None if move.proven == UNPROVEN else move.proven
        share = move.visits / visits if visits else move.prior / priors if priors else 0.0
        moves.append(
            MoveReport(
                move=move.move,
                text=line.move_to_text(move.move),
                action=line.move_to_index(move.move),
                prior=move.prior,
                visits=move.visits,
                share=share,
                q=move.q,
                wdl=wdl_of(move.q, move.d),
                proven=proven,
                plies=move.plies if proven else None,
                pv=tuple(move.pv),
                pv_texts=tuple(own_texts(line, move.pv)),
                game=line.NAME,
                position=position,
            )
        )
    proven = None if view.proven == UNPROVEN else view.proven
    return Snapshot(
        nodes=view.nodes,
        playouts=view.playouts,
        evaluations=view.evaluations,
        cache_hits=view.cache_hits,
        seconds=seconds,
        depth=max(1, int(view.mean_depth)),
        seldepth=max(1, view.deepest),
        q=view.root_q,
        wdl=wdl_of(view.root_q, view.root_d),
        proven=proven,
        plies=view.plies if proven else None,
        is_done=view.is_done,
        is_full=view.is_full,
        hashfull=view.cache_per_mille,
        tree_nodes=view.tree_nodes,
        tree_bytes=view.tree_bytes,
        moves=tuple(moves),
        position=position,
    )
