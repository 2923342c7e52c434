"""Makes the balanced openings of matches: short lines of Stockfish's choice, the same file for the same seed.

Every line depends on (seed, its number, engine) only: one thread, a hash table cleared before each line, node
limits instead of clocks. Operations of a line: hmvc and fmvn as in EPD, ce (the engine's score for the side
that moves, in centipawns) and c0 (the moves). There are no comments: fastchess reads none.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import chess
import chess.engine
from tqdm import tqdm

PLIES = 8
HASH_MIB = 16
# Each move is drawn from the engine's best ones that lose at most MARGIN_CP.
CHOICES = 5
MARGIN_CP = 40
CHOICE_NODES = 2_000
# Then the position is kept if it is as equal as this.
BALANCE_CP = 30
BALANCE_NODES = 200_000
MATE_CP = 100_000


def draw_line(engine: chess.engine.SimpleEngine, generator: random.Random, key: object) -> chess.Board:
    """A position PLIES after the start, its moves on the board's stack."""
    board = chess.Board()
    for _ in range(PLIES):
        lines = engine.analyse(board, chess.engine.Limit(nodes=CHOICE_NODES), multipv=CHOICES, game=key)
        scores = [line["score"].relative.score(mate_score=MATE_CP) for line in lines]
        good = [
            line["pv"][0] for line, score in zip(lines, scores, strict=True) if score >= scores[0] - MARGIN_CP
        ]
        board.push(generator.choice(good))
    return board


def balanced_lines(engine: chess.engine.SimpleEngine, seed: int) -> Iterator[tuple[chess.Board, int]]:
    """Balanced positions with the engine's score for White in centipawns, none twice; without end."""
    seen: set[str] = set()
    number = 0
    while True:
        number += 1
        board = draw_line(engine, random.Random(f"{seed}/{number}"), number)
        if board.epd() in seen:
            continue
        seen.add(board.epd())
        info = engine.analyse(board, chess.engine.Limit(nodes=BALANCE_NODES), game=f"value of {number}")
        score = info["score"].white().score(mate_score=MATE_CP)
        if abs(score) <= BALANCE_CP:
            yield board, score


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the EPD file to write")
    parser.add_argument("--engine", default="/usr/games/stockfish", help="Stockfish (Debian: stockfish)")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with chess.engine.SimpleEngine.popen_uci(args.engine) as engine:
        engine.configure({"Threads": 1, "Hash": HASH_MIB})
        lines = []
        for (board, score), _ in zip(
            balanced_lines(engine, args.seed), tqdm(range(args.count)), strict=False
        ):
            moves = chess.Board().variation_san(board.move_stack)
            evaluation = score if board.turn == chess.WHITE else -score
            counters = f"hmvc {board.halfmove_clock}; fmvn {board.fullmove_number}"
            lines.append(f'{board.epd()} {counters}; ce {evaluation}; c0 "{moves}";\n')
    args.output.write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
