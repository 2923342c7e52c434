"""Dots and boxes as sets of drawn edges, in OpenSpiel's order of edges: what is still to be won."""

from __future__ import annotations

from functools import cache


@cache
def boxes(rows: int, columns: int) -> tuple[int, ...]:
    """The four edges of each box, as bits: horizontal edges row by row, then vertical ones."""
    across = (rows + 1) * columns
    found = []
    for row in range(rows):
        for column in range(columns):
            left = across + row * (columns + 1) + column
            edges = (row * columns + column, (row + 1) * columns + column, left, left + 1)
            found.append(sum(1 << edge for edge in edges))
    return tuple(found)


@cache
def margin(rows: int, columns: int, drawn: int) -> int:
    """Boxes that the side to move wins from here on, minus the other's, with best play of both."""
    num_edges = (rows + 1) * columns + rows * (columns + 1)
    leads = []
    for edge in range(num_edges):
        after = drawn | 1 << edge
        if after == drawn:
            continue
        won = sum(box & after == box and box & drawn != box for box in boxes(rows, columns))
        rest = margin(rows, columns, after)
        leads.append(won + rest if won else -rest)
    return max(leads, default=0)
