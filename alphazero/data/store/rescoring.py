"""Results of given games by tablebases: games on their way into a store, corrected as rows.

A game has one result. It becomes that of the first position that the tables know, which is what the moves
up to there were worth, as lc0's rescorer has it (src/trainingdata/rescorer.cc). Where a later move changes
what the tables say, the result holds no longer: the game ends before that move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from alphazero.games.core_types import Line
from alphazero.games.notation import RESULTS
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases

CUT = "cut"  # games whose end is left out, among the counts
_OF_A_POLICY = ("policy_move", "policy_prob")


class Rescoring:
    """Corrects rows of chess games and counts what it changes."""

    def __init__(self, tables: Tablebases) -> None:
        self._tables = tables
        # Which tables: stores rescored by others differ.
        self.text = tables.identity

    def rows(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Counter[str]]:
        """The corrected rows, and the games changed: '1-0 -> 1/2-1/2' (from, to) and CUT.

        Raises DataError for a table that cannot be read.
        """
        counts: Counter[str] = Counter()
        before = rows.column("result").to_pylist()
        after = list(before)
        kept: dict[int, int] = {}
        starts, moves = rows.column("start_fen"), rows.column("moves")
        for row in range(rows.num_rows):
            entries: Any = moves[row]
            played = entries.values.to_numpy()
            verdict = self._judge(starts[row].as_py(), played.tolist())
            if verdict is None:
                continue
            result, plies = verdict
            if result != before[row]:
                after[row] = result
                counts[f"{RESULTS[before[row]]} -> {RESULTS[result]}"] += 1
            if plies < len(played):
                kept[row] = plies
        if counts:
            index = rows.schema.get_field_index("result")
            rows = rows.set_column(index, rows.schema.field(index), pa.array(after, pa.int8()))
        if kept:
            counts[CUT] = len(kept)
            rows = _with_cut_games(rows, kept)
        return rows, counts

    def _judge(self, start: str | None, moves: list[int]) -> tuple[int, int] | None:
        """The first player's result, and for how many plies it holds; None where no position is known."""
        line = make_line("chess", start)
        for move in moves:
            line.push(move)
        if _num_pieces(line) > self._tables.most_pieces:
            return None
        known: int | None = None
        for ply, result in self._results(line, moves):
            if result is None:
                continue
            if known is None:
                known = result
            elif result != known:
                break
            plies = ply
        else:
            plies = len(moves)
        return None if known is None else (known, plies)

    def _results(self, line: Line, moves: list[int]) -> Iterator[tuple[int, int | None]]:
        """What the tables say after so many plies, for the first player, from few pieces on to the end."""
        while line.num_plies and _num_pieces(line) <= self._tables.most_pieces:
            line.pop()
        if _num_pieces(line) > self._tables.most_pieces:
            line.push(moves[line.num_plies])
        while True:
            result = self._tables.result(str(line))
            if result is not None and not line.first_player_to_move:
                result = -result
            yield line.num_plies, result
            if line.num_plies == len(moves):
                return
            line.push(moves[line.num_plies])


def _num_pieces(line: Line) -> int:
    return sum(map(str.isalpha, str(line).split(maxsplit=1)[0]))


def _with_cut_games(rows: pa.RecordBatch, kept: Mapping[int, int]) -> pa.RecordBatch:
    """The rows, of which some games keep only their first plies."""
    cut = pa.RecordBatch.from_pylist(
        [_cut(rows.slice(row, 1).to_pylist()[0], plies) for row, plies in kept.items()], schema=rows.schema
    )
    order = np.arange(rows.num_rows)
    order[list(kept)] = rows.num_rows + np.arange(len(kept))
    table = pa.Table.from_batches([rows, cut]).take(order)
    return table.combine_chunks().to_batches()[0]


def _cut(game: Mapping[str, Any], plies: int) -> dict[str, Any]:
    """A row of the first plies of a game."""
    offsets = game["policy_offsets"]
    cut = {}
    for name, value in game.items():
        if not isinstance(value, list):
            cut[name] = value
        elif name in _OF_A_POLICY:
            cut[name] = value[: offsets[plies]]
        else:
            cut[name] = value[: plies + (name == "policy_offsets")]
    return cut
