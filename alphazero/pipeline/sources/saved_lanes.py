"""The games under way in a checkpoint, checked before anything goes on from them."""

from __future__ import annotations

import pyarrow as pa

from alphazero.errors import CheckpointError
from alphazero.selfplay import games
from alphazero.selfplay.worker import check_lanes
from alphazero.training.exchange import Exchange


def saved_lanes(content: bytes, game_name: str, num_lanes: int, exchange: Exchange) -> pa.RecordBatch:
    """The lanes of a checkpoint, as many as the settings have. Collective.

    Raises DataError on all ranks unless all their games can go on, CheckpointError for another number.
    """
    lanes = exchange.on_each(lambda: _checked(content, game_name))
    if lanes.num_rows != num_lanes:
        raise CheckpointError(
            f"--lanes {num_lanes}: the run has {lanes.num_rows}; expected as many, or --fresh-start",
            found_by_all_ranks=True,
        )
    return lanes


def _checked(content: bytes, game_name: str) -> pa.RecordBatch:
    lanes = games.from_bytes(content, "lanes.arrow")
    check_lanes(game_name, games.from_batch(lanes, "lanes.arrow", under_way=True), "lanes.arrow")
    return lanes
