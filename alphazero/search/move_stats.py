"""Each move of a search as lc0's VerboseMoveStats prints it, which chess programs read.

The fields and their widths are those of lc0's Search::GetVerboseStats (src/search/classic/search.cc).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from alphazero.games.core_types import Line
from alphazero.search.snapshot import MoveReport, Snapshot
from alphazero.search.tree_search import TreeSettings

NO_VALUES = "(WL:  -.-----) (D: -.---) (M:  -.-) "  # of a move without visits
NO_MOVES_LEFT = "(M:  -.-)"  # the search predicts no length of the game


def move_stats(
    seen: Snapshot,
    line: Line,
    settings: TreeSettings,
    texts: Mapping[int, str],
    own_values: Mapping[int | None, float],
) -> list[str]:
    """A line for each move of the root, the least visited first, and one for the root.

    line: its end is the root. texts: of the moves. own_values: TreeSearch.network_values. All values are for
    the side to move.
    """
    visited_prior = sum(move.prior for move in seen.moves if move.visits)
    first_play = seen.q - settings.fpu_reduction * math.sqrt(visited_prior)
    growth = math.log((seen.nodes + settings.c_puct_base) / settings.c_puct_base)
    factor = (settings.c_puct + settings.c_puct_factor * growth) * math.sqrt(max(seen.nodes - 1, 1))
    rows = []
    for move in seen.moves:
        q = move.q if move.visits or move.proven is not None else first_play
        u = factor * move.prior / (1 + move.visits)
        index = f"{line.move_to_index(move.move):<4}"
        head = _head(texts[move.move], index, move.visits, move.prior)
        own = _own_value(move, own_values.get(move.move))
        row = f"{head}{_values(move, q)}(U: {u:6.5f}) (S: {q + u:8.5f}) {own}"
        rows.append((move.visits, q + u, row))
    root = _head("node", f"{len(seen.moves):>4}", seen.nodes, visited_prior)
    rows.sort(key=lambda row: row[:2])
    return [
        *(row[2] for row in rows),
        f"{root}{_values(seen, seen.q)}{_own_value(seen, own_values.get(None))}",
    ]


def _head(label: str, number: str, visits: int, prior: float) -> str:
    digits = 1 if prior >= 0.99995 else 2
    return f"{label:<5} ({number}) N: {visits:>7} (+ 0) (P: {100 * prior:5.{digits}f}%) "


def _values(of: MoveReport | Snapshot, q: float) -> str:
    if isinstance(of, MoveReport) and not of.visits and of.proven is None:
        return f"{NO_VALUES}(Q: {q:8.5f}) "
    return f"(WL: {q:8.5f}) (D: {of.wdl[1]:5.3f}) {NO_MOVES_LEFT} (Q: {q:8.5f}) "


def _own_value(of: MoveReport | Snapshot, value: float | None) -> str:
    """The network's value without a search, where it is known, and whether the end of the game is proven."""
    value = of.proven if of.proven is not None else value
    known = "(V:  -.----)" if value is None else f"(V: {value:7.4f})"
    return known if of.proven is None else f"{known} (T)"
