"""A validation's positions one by one: the worst of them, and whole games as the network sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from alphazero.data.sampling.window import Window
from alphazero.evaluation.predictions import Predictions
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line
from alphazero.run.validation_record import SeenGame, SeenPly, WrongPosition

NUM_WORST = 6  # of each kind
NUM_MOVES = 3  # of a wrong position
NUM_GAMES = 2
MOST_PLIES = 128  # of a game that is shown; games of a usual length are preferred
FEWEST_PLIES = 20
NUM_GAME_MOVES = 5  # shown of a ply
BY_POLICY, BY_VALUE = "policy", "value"
RESULTS = {1: "1-0", 0: "1/2-1/2", -1: "0-1"}


@dataclass(frozen=True)
class Candidate:
    """A position that may be among the worst, by its error; `place` is for the caller to find it again."""

    error: float
    place: int
    moves: tuple[tuple[int, float], ...]
    target: tuple[int, float]
    value: float
    result: float


@dataclass
class Worst:
    """The NUM_WORST positions with the largest errors of policy and of value."""

    found: dict[str, list[Candidate]] = field(default_factory=lambda: {BY_POLICY: [], BY_VALUE: []})

    def look(self, seen: Predictions, places: Sequence[int] | npt.NDArray[np.int64]) -> None:
        """Positions of a batch; places: one each."""
        errors = {BY_POLICY: seen.policy_loss, BY_VALUE: np.abs(seen.value - seen.target_value)}
        for by, error_B in errors.items():
            known_B = np.where(np.isfinite(error_B), error_B, -1.0)
            for position in np.argsort(-known_B, kind="stable")[:NUM_WORST]:
                if known_B[position] >= 0:
                    self.found[by].append(_candidate(seen, int(position), known_B, int(places[position])))
            self.found[by] = sorted(self.found[by], key=lambda one: -one.error)[:NUM_WORST]


def _candidate(seen: Predictions, position: int, error_B: npt.NDArray[np.float64], place: int) -> Candidate:
    return Candidate(
        float(error_B[position]),
        place,
        tuple(seen.moves(position, NUM_MOVES)),
        seen.target_move(position),
        float(seen.value[position]),
        float(seen.target_value[position]),
    )


def described(candidate: Candidate, by: str, line: Line) -> WrongPosition:
    """A candidate for people; `line` ends in its position."""
    index, share = candidate.target
    return WrongPosition(
        by,
        str(line),
        text_of(line, index),
        share,
        tuple((text_of(line, move), chance) for move, chance in candidate.moves),
        candidate.value,
        candidate.result,
    )


def text_of(line: Line, index: int) -> str:
    """A move in the game's own text, from its policy index."""
    return line.move_to_text(line.index_to_move(index))


def line_at(window: Window, sample: int) -> Line:
    """The position of a sample, with the moves that led there."""
    places = window.locate(np.array([sample], np.int64))
    shard, game, ply = int(places.shard[0]), int(places.game[0]), int(places.ply[0])
    line, moves = _game(window, shard, game)
    for move in moves[:ply]:
        line.push(move)
    return line


def _game(window: Window, shard: int, game: int) -> tuple[Line, list[int]]:
    """A game's start and its moves."""
    view = window.shards[shard]
    begin, end = (int(place) for place in view.moves_offset[game : game + 2])
    fen = bytes(view.fen_bytes[view.fen_offset[game] : view.fen_offset[game + 1]]).decode("ascii")
    return make_line(window.game_name, fen or None), view.moves[begin:end].tolist()


def games_to_show(window: Window) -> list[int]:
    """Rows of the window: NUM_GAMES games of a usual length, spread over it; always the same ones."""
    lengths = np.diff(window.ply_offset)
    usual = np.flatnonzero((lengths >= FEWEST_PLIES) & (lengths <= MOST_PLIES))
    rows = usual if len(usual) >= NUM_GAMES else np.arange(window.num_games)
    places = np.linspace(0, len(rows) - 1, min(NUM_GAMES, len(rows))).astype(int)
    return [int(rows[place]) for place in np.unique(places)]


def samples_of(window: Window, row: int) -> npt.NDArray[np.int64]:
    """The samples of a game, from its first ply on."""
    first, last = (int(place) for place in window.ply_offset[row : row + 2])
    return np.arange(first, min(last, first + MOST_PLIES), dtype=np.int64)


def seen_game(window: Window, row: int, seen: Sequence[Predictions]) -> SeenGame:
    """A game with what the network says of each of its samples. seen: of `samples_of`, in order."""
    samples = samples_of(window, row)
    shard, game = int(window.shard[row]), int(window.game[row])
    line, moves = _game(window, shard, game)
    said = dict(zip(window.locate(samples).ply.tolist(), _each(seen), strict=True))
    texts: list[str] = []
    plies: list[SeenPly | None] = []
    for ply, move in enumerate(moves[:MOST_PLIES]):
        plies.append(_ply(line, *said[ply]) if ply in said else None)
        texts.append(line.move_to_text(move))
        line.push(move)
    view = window.shards[shard]
    start = bytes(view.fen_bytes[view.fen_offset[game] : view.fen_offset[game + 1]]).decode("ascii")
    result = RESULTS[int(view.result[game])]
    return SeenGame(start or None, tuple(texts), result, tuple(plies), _labels(window, shard, game))


def _each(seen: Sequence[Predictions]) -> list[tuple[Predictions, int]]:
    return [(batch, position) for batch in seen for position in range(len(batch.wdl_B3))]


def _ply(line: Line, seen: Predictions, position: int) -> SeenPly:
    policy = tuple((text_of(line, move), share) for move, share in seen.moves(position, NUM_GAME_MOVES))
    return SeenPly(float(seen.value[position]), float(seen.wdl_B3[position, 1]), policy)


def _labels(window: Window, shard: int, game: int) -> dict[str, str]:
    batch = window.shards[shard].batch
    if batch is None:
        return {}
    found = {name: batch.column(name)[game].as_py() for name in ("white", "black", "event", "date")}
    return {name: str(text)[:80] for name, text in found.items() if text}
