"""The columns of a shard: those of every store, and the optional ones of version 2.

A store without a column of version 2 is a version 1 store, byte for byte. Version 2 may get further columns:
a program that does not know one passes it over, and a cached import is made again by one that does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

_WORDS = pa.dictionary(pa.int32(), pa.utf8())  # few distinct values: 4 bytes per game

# result: +1 the first player (white) won, 0 drawn, -1 lost, null unknown. moves: csrc/games/game.hpp.
# From flags on, what a search knew, one entry a ply; null where no search made the game:
#   root_q, best_q: W - L for the side to move; root_d: chance of a draw; visits: of the root;
#   policy of ply i: policy_move and policy_prob (1/65535) [policy_offsets[i]:policy_offsets[i + 1]].
SCHEMA = pa.schema(
    [
        pa.field("game", _WORDS, nullable=False),
        pa.field("variant", _WORDS, nullable=False),
        pa.field("start_fen", pa.utf8()),  # null: the game's usual start
        pa.field("moves", pa.list_(pa.field("item", pa.uint16(), nullable=False)), nullable=False),
        pa.field("result", pa.int8()),
        pa.field("termination", _WORDS),
        pa.field("white", _WORDS),
        pa.field("black", _WORDS),
        pa.field("white_elo", pa.int32()),
        pa.field("black_elo", pa.int32()),
        pa.field("event", _WORDS),
        pa.field("date", _WORDS),
        pa.field("source", _WORDS, nullable=False),
        pa.field("flags", pa.list_(pa.uint8())),
        pa.field("root_q", pa.list_(pa.float32())),
        pa.field("root_d", pa.list_(pa.float32())),
        pa.field("best_q", pa.list_(pa.float32())),
        pa.field("visits", pa.list_(pa.uint32())),
        pa.field("policy_offsets", pa.list_(pa.uint32())),
        pa.field("policy_move", pa.list_(pa.uint16())),
        pa.field("policy_prob", pa.list_(pa.uint16())),
        pa.field("target_kind", _WORDS),
    ]
)

# What else a search knew of each ply, for the side to move; NaN where it is not known, which orig_* may be.
# Of what: root (its average over the tree), best and played (the moves), orig (the network without a search).
# _d: chance of a draw; _m: plies to the end. q_st, d_st: lc0's measures of how root_q and root_d continue.
SEARCH_NUMBERS: tuple[str, ...] = (
    "best_d",
    "played_q",
    "played_d",
    "orig_q",
    "orig_d",
    "root_m",
    "best_m",
    "played_m",
    "orig_m",
    "plies_left",
    "policy_kld",
    "q_st",
    "d_st",
)

# Beside the moves, whoever made them: entries may be null. An evaluation and the clock are those of the
# position after the move; eval_cp and eval_mate count for the first player.
PLY_NOTES: dict[str, pa.DataType] = {
    "eval_cp": pa.int32(),
    "eval_mate": pa.int16(),
    "eval_depth": pa.uint16(),
    "eval_source": pa.uint8(),
    "clock_ms": pa.uint32(),
}

# The columns of version 2 in their order, each of which a shard has or has not.
VERSION_2_FIELDS: tuple[pa.Field[Any], ...] = (
    *(pa.field(name, pa.list_(pa.float32())) for name in SEARCH_NUMBERS),
    pa.field("best_move", pa.list_(pa.uint16())),
    *(pa.field(name, pa.list_(kind)) for name, kind in PLY_NOTES.items()),
    pa.field("time_control", _WORDS),
)

# The headers of PGN that are columns, in the order in which they are written; csrc/data/pgn_parser.hpp reads
# them. The first four are among the seven that every game has.
PGN_HEADERS: dict[str, str] = {
    "event": "Event",
    "date": "Date",
    "white": "White",
    "black": "Black",
    "white_elo": "WhiteElo",
    "black_elo": "BlackElo",
    "time_control": "TimeControl",
    "termination": "Termination",
}

FIELDS: dict[str, pa.Field[Any]] = {field.name: field for field in (*SCHEMA, *VERSION_2_FIELDS)}
OLDEST_VERSION = 1
VERSION = 2


def schema_with(names: Iterable[str]) -> pa.Schema:
    """A shard's schema: SCHEMA and those columns of version 2 that are named."""
    chosen = set(names)
    return pa.schema([*SCHEMA, *(field for field in VERSION_2_FIELDS if field.name in chosen)])


def version_of(schema: pa.Schema) -> int:
    """The version of store that a shard of these columns needs."""
    return VERSION if len(schema) > len(SCHEMA) else OLDEST_VERSION


def as_rows(schema: pa.Schema) -> pa.Schema:
    """What a writer of rows hands over for such a shard: plain words instead of dictionaries."""
    return pa.schema(
        [field.with_type(pa.utf8()) if pa.types.is_dictionary(field.type) else field for field in schema]
    )
