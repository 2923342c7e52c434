"""What the harnesses of csrc/fuzz begin with: valid inputs, made from the rules and the embedded games."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from alphazero._core import (
    ChessLine,
    ChessPosition,
    Connect4Line,
    OthelloLine,
    SelfPlayGame,
    TicTacToeLine,
    chess_random_playout,
)
from tests.support.paths import REPOSITORY

# Castling of Chess960, en passant, promotions, pins, ends of games, the most moves.
FENS = (
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "nrk1rbbq/ppp1pppp/8/3p4/8/5N2/PPPPPPPP/NRK1RBBQ w EBeb - 0 1",
    "8/P1k3P1/8/3pP3/3Pp3/8/p1K3p1/8 w - d6 0 1",
    "r3k2r/1P4P1/8/8/8/8/1p4p1/R3K2R b KQkq - 3 40",
    "4k3/8/8/8/8/8/8/qRK4R w HB - 0 1",
    "1b1k4/8/8/1rPpK3/8/8/8/8 w - d6 99 80",
    "R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1",
)
EMBEDDED = REPOSITORY / "alphazero" / "assets" / "games" / "embedded.pgn.gz"
ODD_PGN = """\ufeff; by hand\r
[Event "one \\"two\\""]\r
[White "J\xf6rg"]\r
[Result "1-0"]\r
\r
{ brace ; } 1.e4 $1 e5! (1...c5 {x ) y} 2.Nf3 (2.c3)) 2. Nf3?! ; rest
% escaped
2...Nc6 3.Bb5 a6 1-0

[Event "960"]
[Variant "chess960"]
[FEN "nbbrknrq/pppppppp/8/8/8/8/PPPPPPPP/NBBRKNRQ w KQkq - 0 1"]

d2d4 d7d5 1/2-1/2

[Event "null"]

1. e4 -- 2. d4 0-1

[Event "open"]

1. e4 { never closed 1-0

[Event "mate"]

1. f3 e5 2. g4 Qh4# 0-1
"""
COMMENTED_PGN = """[Event "comments"]
[TimeControl "180+2"]
[Result "1-0"]

1. e4 { [%eval 0.35,20] [%clk 0:03:00] } e5 {[%eval #-3] [%clk 0:02:59.9]} 2. Nf3
{d=30, mt=90906, tl=3514094, pv=Nf3 Nc6, wv=-M59, R50=50, } Nc6 { ev=-0.24, d=22, tl=02:22:58, } 3. Bb5
{+0.35/12 1.2s} a6 {-M4/20 0.50s, White mates} 4. Ba4 {book} Nf6 {+nan/1 1e9s} 1-0
"""
# A game's number in shards and lanes is its place here, as in csrc/games/all_games.hpp.
LINES = (ChessLine, Connect4Line, OthelloLine, TicTacToeLine)
SHARD_TYPES = "Hibbbi"  # moves, moves_offset, result, result_valid, fen_bytes, fen_offset
SEARCH_TYPES = "iffiIiHH"  # the order of SearchColumns
EVAL_TYPES = "iiiihBBBB"  # offsets, centipawns, mates ... as csrc/fuzz/shard_fuzz.cpp has them
GAME_TYPES = "HBfffIIHH"  # moves ... policy_prob, the order of SelfPlayGame


def column(kind: str, values: Sequence[float]) -> bytes:
    """A column as csrc/fuzz/fuzz.hpp reads it."""
    return struct.pack(f"<H{len(values)}{kind}", len(values), *values)


def columns(kinds: str, values: Iterable[Sequence[float]]) -> bytes:
    """Several, one after the other."""
    return b"".join(itertools.starmap(column, zip(kinds, values, strict=True)))


def random_moves(game: int, seed: int, plies: int) -> list[int]:
    """A game of legal moves that does not end."""
    line, random = LINES[game](), np.random.default_rng(seed)
    moves: list[int] = []
    for _ in range(plies):
        legal = line.legal()
        move = legal[int(random.integers(len(legal)))]
        line.push(move)
        if line.outcome().over:
            break
        moves.append(move)
    return moves


def shard(game: int, games: Sequence[Sequence[int]], *, fen: str = "", searched: bool = False) -> bytes:
    """Stored games, the first of them from `fen`; with searches whose policy is the move played."""
    lengths = [len(moves) for moves in games]
    offsets = [0, *itertools.accumulate(lengths)]
    fens = list(fen.encode())
    body = columns(
        SHARD_TYPES,
        (
            [move for moves in games for move in moves],
            offsets,
            [(1, 0, -1)[number % 3] for number in range(len(games))],
            [1] * len(games),
            fens,
            [0, *[len(fens)] * len(games)],
        ),
    )
    plies = offsets[-1]
    policy_offsets = [ply for length in lengths for ply in range(length + 1)]
    search = (
        offsets,
        [0.25] * plies,
        [0.5] * plies,
        [0, *itertools.accumulate(length + 1 for length in lengths)],
        policy_offsets,
        offsets,
        [move for moves in games for move in moves],
        [65535] * plies,
    )
    known = [0b10110111] * ((plies + 7) // 8)
    evaluations = (
        offsets,
        [30 * (ply - 4) for ply in range(plies)],
        offsets,
        offsets,
        [ply - 5 for ply in range(plies)],
        known,
        [1] * len(known),
        [1 + ply % 2 for ply in range(plies)],
        known,
    )
    # Without searches their columns are empty, and the evaluations follow.
    return (
        bytes([game])
        + body
        + bytes([searched])
        + (columns(SEARCH_TYPES, search) if searched else columns(SEARCH_TYPES, [[]] * len(SEARCH_TYPES)))
        + bytes([not searched])
        + columns(EVAL_TYPES, evaluations)
    )


def lane(game: int, moves: Sequence[int]) -> bytes:
    """A game of self-play under way."""
    plies = len(moves)
    head = struct.pack("<BQQBBbBi", game, 3, 7, 0, 0, 0, 1, SelfPlayGame().resign_ply)
    arrays = (
        moves,
        [1] * plies,
        *([0.25] * plies,) * 3,
        [40] * plies,
        range(plies + 1),
        moves,
        [65535] * plies,
    )
    return head + columns(GAME_TYPES, [list(values) for values in arrays])


def embedded_games(number: int) -> str:
    """The first games that come with the package."""
    with gzip.open(EMBEDDED, "rt", encoding="utf-8") as file:
        text = file.read(number * 3000)
    return "\n\n[Event ".join(text.split("\n\n[Event ")[:number])


def seeds(harness: str) -> Iterator[bytes]:
    """Inputs for one of csrc/fuzz."""
    if harness == "chess_fuzz":
        for number, fen in enumerate(FENS):
            yield f"{fen}\n".encode() + bytes(range(number, number + 30))
            yield f"{fen}\ne2e4".encode()
    elif harness == "pgn_fuzz":
        yield ODD_PGN.encode("latin-1", "replace")
        yield COMMENTED_PGN.encode()
        yield from (embedded_games(number).encode() for number in (1, 3))
    elif harness == "text_fuzz":
        yield b"7/7/7/7/7/3x3\n4\n4\n1\n7"
        yield b"3/1x1/3\na1\nb3"
        for line in (make() for make in LINES):
            yield str(line).encode() + b"\n"
    elif harness == "replay_fuzz":
        for fen in FENS:
            moves = chess_random_playout(5, 20, fen)
            yield f"{fen}\n".encode() + struct.pack(f"<{len(moves)}H", *moves)
        for game in range(1, len(LINES)):
            moves = random_moves(game, 5, 12)
            yield b"\n" + struct.pack(f"<{len(moves)}H", *moves)
    elif harness == "shard_fuzz":
        for game in range(len(LINES)):
            games = [random_moves(game, seed, 8) for seed in range(3)]
            yield shard(game, games)
            yield shard(game, games, searched=True)
        for fen in FENS[2:4]:
            yield shard(0, [chess_random_playout(1, 6, fen), random_moves(0, 1, 6)], fen=fen)
    elif harness == "lanes_fuzz":
        for game, search in itertools.product(range(len(LINES)), (0, len(LINES))):
            yield lane(game + search, random_moves(game, 2, 6))
            yield lane(game + search, [])
    assert all(ChessPosition(fen) for fen in FENS)


def write_seeds(harness: str, directory: Path) -> None:
    """A file for each, named by its content as libFuzzer names its own."""
    directory.mkdir(parents=True, exist_ok=True)
    for seed in seeds(harness):
        (directory / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
