"""What the core makes of each game in its list (csrc/games/all_games.hpp): the same types under other names.

The core itself is loaded when a game's types are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    import alphazero._core as _core

    # Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.
    Positions: TypeAlias = npt.NDArray[np.uint8]
    Indices: TypeAlias = npt.NDArray[np.int32]
    Floats: TypeAlias = npt.NDArray[np.float32]
    # packed [B, N], legal_index [K], legal_offset [B + 1]
    Leaves: TypeAlias = tuple[Positions, Indices, Indices]
    # The core has a class per game, all with the same members: in annotations those of chess stand for all.
    Line: TypeAlias = _core.ChessLine
    LineSearch: TypeAlias = _core.ChessLineSearch
    SelfPlay: TypeAlias = _core.ChessSelfPlay
    GameSearch: TypeAlias = _core.ChessGameSearch
else:
    Positions = Indices = Floats = Leaves = Line = LineSearch = SelfPlay = GameSearch = Any


class BatchEvaluation(NamedTuple):
    """legal_logits [K], not normalised; wdl [B, 3], probabilities of win, draw, loss for the side to move."""

    legal_logits: Floats
    wdl: Floats


class Pool(Protocol):
    """Searches in groups (csrc/search/search_pool.hpp): LineSearch and SelfPlay."""

    def step(self, group: int, legal_logits: Floats | None = None, wdl: Floats | None = None) -> Leaves: ...


@dataclass(frozen=True)
class CoreTypes:
    """The core's classes and functions of one game.

    search: one tree, step by step. game_search: one for a whole game. find_illegal_game: the first of some
    stored games that breaks the rules.
    """

    line: type[Line]
    search: type[_core.ChessSearch]
    game_search: type[GameSearch]
    line_search: type[LineSearch]
    self_play: type[SelfPlay]
    batch_encoder: type[_core.ChessBatchEncoder]
    find_illegal_game: Callable[..., _core.IllegalGame | None]


@cache
def core_types(name: str) -> CoreTypes:
    """Those of the game whose lines have this NAME."""
    import alphazero._core as _core

    (line,) = (
        kind
        for key, kind in vars(_core).items()
        if key.endswith("Line") and getattr(kind, "NAME", None) == name
    )
    prefix = line.__name__.removesuffix("Line")
    of_check = "foreign" if prefix == "Foreign" else name  # whose lines have the name of the game in use
    return CoreTypes(
        line=line,
        search=getattr(_core, f"{prefix}Search"),
        game_search=getattr(_core, f"{prefix}GameSearch"),
        line_search=getattr(_core, f"{prefix}LineSearch"),
        self_play=getattr(_core, f"{prefix}SelfPlay"),
        batch_encoder=getattr(_core, f"{prefix}BatchEncoder"),
        find_illegal_game=getattr(_core, f"find_illegal_{of_check}_game"),
    )
