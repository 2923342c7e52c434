"""A micro-batch as it leaves the loader: packed positions, legal moves with their targets, results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Shapes: B positions of the micro-batch, K legal moves over all of them.


@dataclass(frozen=True)
class Batch:
    """B positions for the network, from the point of view of the side to move.

    packed: u8 [B, packed_bytes], see csrc/games/game.hpp `encode`.
    legal_offset: i32 [B + 1]; position b owns legal_index[legal_offset[b]:legal_offset[b + 1]].
    legal_index: i32 [K], policy indices of the legal moves, ascending within a position.
    policy: f32 [K], the target's share of each legal move; sums to 1 a position.
    wdl: f32 [B, 3], target share of win, draw, loss.
    moves_left: f32 [B], plies to the end of the game.
    sample_id: i64 [B], the global ply number in the window.
    """

    packed: npt.NDArray[np.uint8]
    legal_offset: npt.NDArray[np.int32]
    legal_index: npt.NDArray[np.int32]
    policy: npt.NDArray[np.float32]
    wdl: npt.NDArray[np.float32]
    moves_left: npt.NDArray[np.float32]
    sample_id: npt.NDArray[np.int64]


@dataclass(frozen=True)
class MicroBatch:
    """One forward pass of one rank: micro-batch `index` of step `step`.

    is_padding marks a surplus pass that keeps ranks in step: its loss weighs zero and it must leave
    no trace in gradients or statistics.
    """

    step: int
    index: int
    batch: Batch
    is_padding: bool
