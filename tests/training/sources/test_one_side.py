"""Generations of which one side wins all games are noted, by rules outside the core."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from alphazero.training.sources.generations import ONE_SIDED, Generations


@pytest.mark.parametrize(
    ("game", "results", "side"),
    [
        ("openspiel:nim", [[1, 1], [1], [1, 1, 1], [1]], "first"),
        ("openspiel:nim", [[0], [-1, -1], [-1], [], [-1]], "second"),
        ("openspiel:nim", [[1, 0], [1], [1, 1]], ""),
        ("openspiel:nim", [[0], [0], [0]], ""),
        ("openspiel:nim", [[1], [1], [-1]], ""),
        ("connect4", [[1], [1], [1]], ""),
    ],
)
def test_three_generations_in_a_row_that_one_side_wins_are_noted_once(
    game: str, results: list[list[int]], side: str
) -> None:
    lines: list[str] = []
    made: Any = object.__new__(Generations)
    made._job = SimpleNamespace(spec=SimpleNamespace(name=game))
    made._services = SimpleNamespace(console=SimpleNamespace(warn=lines.append))
    made._results = deque(maxlen=ONE_SIDED)
    for generation in results:
        made._note_one_side(pa.record_batch({"result": pa.array(generation, pa.int8())}))
    assert len(lines) == bool(side) and all(f"the {side} player" in line for line in lines)
