"""What the core makes of each game in its list (csrc/games/all_games.hpp): the same types under other names.

The core itself is loaded when a game's types are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    import alphazero._core as _core

    # Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.
    # packed u8 [B, N], legal_index i32 [K], legal_offset i32 [B + 1]
    Leaves: TypeAlias = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]
    # packed, legal_offset, legal_index, policy f32 [K], wdl f32 [B, 3], moves_left f32 [B]
    EncodedBatch: TypeAlias = tuple[
        npt.NDArray[np.uint8],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
    ]


class Line(Protocol):
    """A line of play: a start position and the moves since (csrc/games/line.hpp)."""

    NAME: str

    @property
    def key(self) -> int: ...
    @property
    def num_plies(self) -> int: ...
    @property
    def repetitions(self) -> int: ...
    @property
    def first_player_to_move(self) -> bool: ...
    def copy(self) -> Line: ...
    def push(self, move: int) -> None: ...
    def push_text(self, text: str) -> None: ...
    def pop(self) -> None: ...
    def legal(self) -> list[int]: ...
    def legal_indices(self) -> npt.NDArray[np.int32]: ...
    def packed(self, fill: _core.HistoryFill = ...) -> npt.NDArray[np.uint8]: ...
    def perft(self, depth: int) -> int: ...
    def outcome(self) -> _core.Outcome: ...
    def move_to_index(self, move: int) -> int: ...
    def index_to_move(self, index: int) -> int: ...
    def move_to_text(self, move: int) -> str: ...
    def text_to_move(self, text: str) -> int: ...


class LineType(Protocol):
    """The class of a game's lines, which knows the sizes of the game."""

    NAME: str
    BOARD_HEIGHT: int
    BOARD_WIDTH: int
    NUM_BIT_PLANES: int
    NUM_SCALAR_PLANES: int
    POLICY_SIZE: int
    MAX_LEGAL_MOVES: int
    MAX_PLIES: int
    NUM_SYMMETRIES: int

    def __call__(self, start: str | None = None) -> Line: ...


class Pool(Protocol):
    """Searches in groups (csrc/search/search_pool.hpp)."""

    def step(
        self,
        group: int,
        legal_logits: npt.NDArray[np.float32] | None = None,
        wdl: npt.NDArray[np.float32] | None = None,
    ) -> Leaves: ...


class LineSearch(Pool, Protocol):
    """Positions searched side by side, each once."""

    @property
    def simulations(self) -> int: ...
    def found(self) -> list[_core.SearchResult]: ...


class LineSearchType(Protocol):
    """The class of a game's LineSearch."""

    def __call__(
        self,
        lines: Sequence[Line],
        settings: _core.SearchSettings,
        slots: int,
        groups: int,
        num_threads: int,
        fill: _core.HistoryFill = ...,
        cache: _core.EvaluationCache | None = None,
    ) -> LineSearch: ...


class SelfPlay(Pool, Protocol):
    """Games that a network plays against itself, in lanes."""

    @property
    def moves(self) -> int: ...
    @property
    def games(self) -> int: ...
    @property
    def simulations(self) -> int: ...
    @property
    def evaluations(self) -> int: ...
    @property
    def cached(self) -> int: ...
    def add_lane(self, game: _core.SelfPlayGame) -> None: ...
    def begin(self, budget: int, in_simulations: bool = False) -> None: ...
    def stop_at_ends(self) -> None: ...
    def take_finished(self) -> list[_core.SelfPlayGame]: ...
    def games_under_way(self) -> list[_core.SelfPlayGame]: ...


class SelfPlayType(Protocol):
    """The class of a game's SelfPlay."""

    def __call__(
        self,
        settings: _core.SelfPlaySettings,
        slots: int,
        groups: int,
        num_threads: int,
        fill: _core.HistoryFill = ...,
        cache: _core.EvaluationCache | None = None,
    ) -> SelfPlay: ...


class GameSearch(Protocol):
    """One tree, kept from move to move, that fills batches (csrc/search/game_search.hpp)."""

    def set_line(self, line: Line) -> int: ...
    def begin(self, only: Sequence[int]) -> None: ...
    def reset(self, settings: _core.EngineSettings) -> None: ...
    def set_tree_limit(self, bytes: int) -> None: ...
    def gather(self, slot: int, most_leaves: int, most_visits: int) -> Leaves: ...
    def apply(
        self, slot: int, legal_logits: npt.NDArray[np.float32], wdl: npt.NDArray[np.float32]
    ) -> None: ...
    def drop(self, slot: int) -> None: ...
    def progress(self) -> _core.SearchProgress: ...
    def view(self, num_lines: int) -> _core.SearchView: ...


class BatchEncoder(Protocol):
    """Sampled plies of stored games to batches for the network (csrc/data/batch_encoder.hpp)."""

    def add_shard(
        self,
        name: str,
        moves: npt.NDArray[np.uint16],
        moves_offset: npt.NDArray[np.int32],
        result: npt.NDArray[np.int8],
        result_valid: npt.NDArray[np.bool_],
        fen_bytes: npt.NDArray[np.uint8],
        fen_offset: npt.NDArray[np.int32],
        search: tuple[npt.NDArray[Any], ...] | None = None,
        evals: tuple[tuple[npt.NDArray[Any], ...], ...] | None = None,
    ) -> None: ...
    def encode(
        self,
        shard: npt.NDArray[np.int32],
        game: npt.NDArray[np.int32],
        ply: npt.NDArray[np.int32],
        fill: _core.HistoryFill,
        value_q_ratio: float = 0.0,
        symmetry: npt.NDArray[np.uint8] | None = None,
        curve: tuple[float, float] | None = None,
    ) -> EncodedBatch: ...
    def position_keys(self, shard: int, games: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]: ...


@dataclass(frozen=True)
class CoreTypes:
    """The core's classes and functions of one game.

    search: one tree, step by step. game_search: one for a whole game. find_illegal_game: the first of some
    stored games that breaks the rules.
    """

    line: LineType
    search: Callable[[_core.SearchSettings], Any]
    game_search: Callable[[_core.EngineSettings], GameSearch]
    line_search: LineSearchType
    self_play: SelfPlayType
    batch_encoder: Callable[[int], BatchEncoder]
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
    return CoreTypes(
        line=line,
        search=getattr(_core, f"{prefix}Search"),
        game_search=getattr(_core, f"{prefix}GameSearch"),
        line_search=getattr(_core, f"{prefix}LineSearch"),
        self_play=getattr(_core, f"{prefix}SelfPlay"),
        batch_encoder=getattr(_core, f"{prefix}BatchEncoder"),
        find_illegal_game=getattr(_core, f"find_illegal_{name}_game"),
    )
