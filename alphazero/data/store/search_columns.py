"""What searches knew of the games of a shard: the columns from `flags` on as arrays, and what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero.data.store.arrow_views import ListView, list_view

TRAINED_ON = 1  # bit of flags: the ply got a full search and is a sample (csrc/search/self_play.hpp)

_A_PLY = {
    "flags": np.uint8,
    "root_q": np.float32,
    "root_d": np.float32,
    "best_q": np.float32,
    "visits": np.uint32,
}
_OF_POLICIES = {"policy_offsets": np.uint32, "policy_move": np.uint16, "policy_prob": np.uint16}
_TOLERANCE = 1e-4  # of a value beyond its bounds: float32 sums of three shares

CoreSearchArrays: TypeAlias = tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint32],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
]


@dataclass(frozen=True)
class SearchView:
    """What searches knew of the plies of a shard's G games; views, nothing is copied.

    A game that no search made has no entries. Game g owns [ply_offset[g], ply_offset[g + 1]) of flags,
    root_q, root_d, best_q and visits, an entry a ply, and likewise of policy_offset and of policy_move and
    policy_prob: its ply i has the moves [policy_offset[i], policy_offset[i + 1]) of its own part. Element
    types as in SCHEMA, offsets i32 [G + 1].
    """

    ply_offset: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]
    root_q: npt.NDArray[np.float32]
    root_d: npt.NDArray[np.float32]
    best_q: npt.NDArray[np.float32]
    visits: npt.NDArray[np.uint32]
    policy_offset_offset: npt.NDArray[np.int32]
    policy_offset: npt.NDArray[np.uint32]
    policy_move_offset: npt.NDArray[np.int32]
    policy_move: npt.NDArray[np.uint16]
    policy_prob: npt.NDArray[np.uint16]

    def core_arrays(self) -> CoreSearchArrays:
        """What csrc/data/shard_columns.hpp's SearchColumns takes, in its order."""
        return (
            self.ply_offset,
            self.root_q,
            self.root_d,
            self.policy_offset_offset,
            self.policy_offset,
            self.policy_move_offset,
            self.policy_move,
            self.policy_prob,
        )

    @property
    def is_trained_on(self) -> npt.NDArray[np.bool_]:
        """bool [plies of all searched games]: samples."""
        trained_on: npt.NDArray[np.bool_] = (self.flags & TRAINED_ON) != 0
        return trained_on


def search_view(batch: pa.RecordBatch, moves_offset: npt.NDArray[np.int32]) -> SearchView | None:
    """The search columns of a shard; None where no search made any of its games.

    moves_offset: of its games. Raises ValueError where the columns do not fit each other or the games.
    """
    if all(batch.column(name).null_count == batch.num_rows for name in (*_A_PLY, *_OF_POLICIES)):
        return None
    columns = {name: list_view(batch, name, dtype) for name, dtype in (_A_PLY | _OF_POLICIES).items()}
    _check_lengths(columns, moves_offset)
    return SearchView(
        ply_offset=columns["flags"].offset,
        flags=columns["flags"].values,
        root_q=columns["root_q"].values,
        root_d=columns["root_d"].values,
        best_q=columns["best_q"].values,
        visits=columns["visits"].values,
        policy_offset_offset=columns["policy_offsets"].offset,
        policy_offset=columns["policy_offsets"].values,
        policy_move_offset=columns["policy_move"].offset,
        policy_move=columns["policy_move"].values,
        policy_prob=columns["policy_prob"].values,
    )


def _check_lengths(columns: dict[str, ListView], moves_offset: npt.NDArray[np.int32]) -> None:
    """A searched game has an entry a ply, a policy offset more, and as many shares as moves of policies."""
    plies = np.diff(moves_offset)
    is_searched = np.diff(columns["flags"].offset) > 0

    def expect(name: str, wanted: npt.NDArray[Any], where: npt.NDArray[np.bool_]) -> None:
        found = np.diff(columns[name].offset)
        wrong = np.flatnonzero(where & (found != wanted))
        if len(wrong):
            game = wrong[0]
            raise ValueError(f"game {game}: {found[game]} entries of {name}; expected {wanted[game]}")

    for name in _A_PLY:
        expect(name, plies * is_searched, np.ones_like(is_searched))
    expect("policy_offsets", plies + 1, is_searched)
    expect("policy_move", np.zeros_like(plies), ~is_searched)
    expect("policy_prob", np.diff(columns["policy_move"].offset), np.ones_like(is_searched))


def check_values(view: SearchView) -> None:
    """Values lie within their bounds; reads all of them. Raises ValueError."""
    for name, values, low in (
        ("root_q", view.root_q, -1.0),
        ("best_q", view.best_q, -1.0),
        ("root_d", view.root_d, 0.0),
    ):
        outside = np.flatnonzero(~((values >= low - _TOLERANCE) & (values <= 1 + _TOLERANCE)))  # NaN too
        if len(outside):
            game = int(np.searchsorted(view.ply_offset, outside[0], side="right")) - 1
            ply = outside[0] - view.ply_offset[game]
            raise ValueError(f"game {game}, ply {ply}: {name} {values[outside[0]]}; expected {low:g} to 1")
