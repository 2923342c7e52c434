"""lc0's V6 and V7 records by its own layout; games of python-chess written as such, without our encoder."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import chess
import numpy as np
import numpy.typing as npt

from alphazero._core import chess_policy_moves
from tests.support.games.chess_reference import (
    identity,
    policy_text,
    positions_of,
    random_game,
    slow_planes,
)

NUMBERS = (
    *("root_q", "best_q", "root_d", "best_d", "root_m", "best_m", "plies_left", "result_q", "result_d"),
    *("played_q", "played_d", "played_m", "orig_q", "orig_d", "orig_m"),
)
# lc0 src/trainingdata/trainingdata_v6.h, field by field.
V6 = np.dtype(
    [
        ("version", "<u4"),
        ("input_format", "<u4"),
        ("probabilities", "<f4", 1858),
        ("planes", "u1", (104, 8)),
        ("castling", "u1", 4),
        ("black_to_move", "u1"),
        ("rule50", "u1"),
        ("invariance_info", "u1"),
        ("dummy", "u1"),
        *((name, "<f4") for name in NUMBERS),
        ("visits", "<u4"),
        ("played_idx", "<u2"),
        ("best_idx", "<u2"),
        ("policy_kld", "<f4"),
        ("q_st", "<f4"),
    ]
)
V7 = np.dtype(
    [("v6", V6), ("d_st", "<f4"), ("opp_played_idx", "<u2"), ("next_played_idx", "<u2"), ("rest", "<f4", 8)]
)
INDEX = {text: index for index, text in enumerate(chess_policy_moves())}
Records = npt.NDArray[np.void]


def read(path: Path) -> Records:
    """The V6 records of a gzip file."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), V6)


def index_of(board: chess.Board, move: chess.Move) -> int:
    """lc0's index of a move."""
    return INDEX[policy_text(board, move)]


def records_of(board: chess.Board, result: int, rng: random.Random, fill: str = "fen_only") -> Records:
    """A game of python-chess as lc0 would have written it, with random policies and values."""
    positions = positions_of(board)
    names = [identity(position) for position in positions]
    records = np.zeros(len(board.move_stack), V6)
    for ply, move in enumerate(board.move_stack):
        record, position = records[ply], positions[ply]
        planes = slow_planes(positions[: ply + 1], names[: ply + 1], fill)
        record["version"], record["input_format"] = 6, 1
        record["planes"] = np.packbits(planes[:104], axis=-1).reshape(104, 8)
        record["castling"] = planes[104:108, 0, 0]
        record["black_to_move"], record["rule50"] = planes[108, 0, 0], planes[109, 0, 0]
        legal = list(position.legal_moves)
        visits = np.array([rng.randrange(1, 50) for _ in legal])
        record["probabilities"] = -1
        for other, count in zip(legal, visits, strict=True):
            record["probabilities"][index_of(position, other)] = count / visits.sum()
        record["visits"] = visits.sum() + 1
        record["played_idx"] = index_of(position, move)
        record["best_idx"] = index_of(position, legal[int(visits.argmax())])
        for name in ("root", "best", "played", "orig"):
            q = rng.uniform(-1, 1)
            record[f"{name}_q"], record[f"{name}_d"] = q, rng.uniform(0, 1 - abs(q))
            record[f"{name}_m"] = rng.uniform(0, 90)
        record["result_q"] = result if position.turn == chess.WHITE else -result
        record["result_d"] = float(result == 0)
        record["plies_left"] = len(board.move_stack) - ply + rng.random()
        record["policy_kld"], record["q_st"] = rng.random(), rng.random()
        record["invariance_info"] = rng.choice((0, 8))
    return records


def as_v7(records: Records) -> Records:
    """The same records with what V7 adds."""
    longer = np.zeros(len(records), V7)
    longer["v6"] = records
    longer["v6"]["version"] = 7
    longer["d_st"] = np.linspace(0.25, 0.5, len(records))
    longer["opp_played_idx"] = longer["next_played_idx"] = 65535
    return longer


def write(path: Path, records: Records) -> Path:
    """A gzip file of records."""
    path.write_bytes(gzip.compress(records.tobytes(), 1))
    return path


def standard_game(seed: int, max_plies: int = 60, fen: str | None = None) -> chess.Board:
    """A random game with much castling, en passant, promotion and repetition."""
    return random_game(random.Random(f"lc0 {seed}"), max_plies, chess.Board(fen or chess.STARTING_FEN))
