"""Plays the embedded games: Stockfish against itself, the same file for the same seed and engine.

Every game depends on (seed, its number, engine, nodes) only: one thread, a fixed hash table that is
cleared before each game, node limits instead of clocks. `--jobs` changes how long it takes, nothing else.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import multiprocessing
import os
import random
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import chess
import chess.engine
import chess.pgn
from tqdm import tqdm

HASH_MIB = 16
# Openings: this many plies, each drawn from the engine's best moves that lose at most OPENING_MARGIN_CP.
# They stay plausible, and no two games are alike.
OPENING_PLIES = (4, 12)
OPENING_CHOICES = 6
OPENING_MARGIN_CP = 50
OPENING_NODES = 400
BALANCE_CP = 60  # an opening further from equal is drawn anew
# A side's strength: the node limit is drawn from these for each side, so that many games are decided.
NODE_SHARES = (0.5, 1.0, 2.0)
# Adjudication. Won: both sides have agreed for 6 plies on a lead of 10 pawns. Drawn: both have seen
# at most 0.08 pawns for 24 plies, from move 50 on. One game in PLAYED_OUT_EVERY goes on to the end by
# the rules, so that mates and dead draws are in the data as well.
WIN_CP, WIN_PLIES = 1000, 6
DRAW_CP, DRAW_PLIES, DRAW_FROM_PLY = 8, 24, 100
PLAYED_OUT_EVERY = 4
MAX_PLIES = 400
MATE_CP = 100_000


@dataclass(frozen=True)
class Settings:
    """All that a game depends on besides its number."""

    engine: str
    seed: int
    nodes: int


def score_white_cp(info: chess.engine.InfoDict) -> int:
    """The engine's score in centipawns, positive when White is better."""
    return info["score"].white().score(mate_score=MATE_CP)


def draw_opening(engine: chess.engine.SimpleEngine, rng: random.Random, key: object) -> chess.Board:
    """A balanced position some plies after the start, its moves on the board's stack."""
    while True:
        board = chess.Board()
        for _ in range(rng.randint(*OPENING_PLIES)):
            lines = engine.analyse(
                board, chess.engine.Limit(nodes=OPENING_NODES), multipv=OPENING_CHOICES, game=key
            )
            scores = [line["score"].pov(board.turn).score(mate_score=MATE_CP) for line in lines]
            good = [
                line["pv"][0]
                for line, score in zip(lines, scores, strict=True)
                if score >= scores[0] - OPENING_MARGIN_CP
            ]
            board.push(rng.choice(good))
        info = engine.analyse(board, chess.engine.Limit(nodes=4 * OPENING_NODES), game=key)
        if abs(score_white_cp(info)) <= BALANCE_CP:
            return board


def adjudicated_result(scores: list[int], num_plies: int) -> str | None:
    """The result both engines have agreed on for long enough (scores: White's view, newest last)."""
    recent = scores[-WIN_PLIES:]
    if len(recent) == WIN_PLIES and min(recent) >= WIN_CP:
        return "1-0"
    if len(recent) == WIN_PLIES and max(recent) <= -WIN_CP:
        return "0-1"
    quiet = scores[-DRAW_PLIES:]
    if num_plies >= DRAW_FROM_PLY and len(quiet) == DRAW_PLIES and max(map(abs, quiet)) <= DRAW_CP:
        return "1/2-1/2"
    return None


def play_game(engine: chess.engine.SimpleEngine, settings: Settings, number: int) -> chess.pgn.Game:
    """Game `number`, counted from 1."""
    rng = random.Random(f"{settings.seed}/{number}")
    board = draw_opening(engine, rng, key=number)
    nodes = {color: int(settings.nodes * rng.choice(NODE_SHARES)) for color in chess.COLORS}
    is_played_out = number % PLAYED_OUT_EVERY == 0
    scores: list[int] = []
    result: str | None = None
    outcome = board.outcome(claim_draw=True)
    while outcome is None and result is None and board.ply() < MAX_PLIES:
        reply = engine.play(
            board,
            chess.engine.Limit(nodes=nodes[board.turn]),
            game=number,
            info=chess.engine.INFO_SCORE,
        )
        if reply.move is None:
            raise RuntimeError(f"game {number}: the engine has no move at {board.fen()}")
        scores.append(score_white_cp(reply.info))
        board.push(reply.move)
        outcome = board.outcome(claim_draw=True)
        if not is_played_out:
            result = adjudicated_result(scores, board.ply())
    game = chess.pgn.Game.from_board(board)
    game.headers.clear()
    game.headers["Round"] = str(number)
    game.headers["White"] = f"Stockfish, {nodes[chess.WHITE]} nodes"
    game.headers["Black"] = f"Stockfish, {nodes[chess.BLACK]} nodes"
    if outcome is not None:
        game.headers["Result"] = outcome.result()
        game.headers["Termination"] = "normal"
    else:
        game.headers["Result"] = result or "1/2-1/2"  # MAX_PLIES reached: nobody made progress
        game.headers["Termination"] = "adjudication"
    return game


@functools.lru_cache(maxsize=1)
def engine_of_process(path: str) -> chess.engine.SimpleEngine:
    """The engine of this worker process, started once."""
    engine = chess.engine.SimpleEngine.popen_uci(path)
    engine.configure({"Threads": 1, "Hash": HASH_MIB})
    return engine


def game_text(settings: Settings, number: int) -> str:
    """Game `number` as PGN."""
    game = play_game(engine_of_process(settings.engine), settings, number)
    return game.accept(chess.pgn.StringExporter(columns=80, comments=True))


def games(settings: Settings, num_games: int, num_jobs: int) -> Iterator[str]:
    """The games in order, each text once."""
    play = functools.partial(game_text, settings)
    numbers = range(1, num_games + 1)
    seen: set[str] = set()
    with multiprocessing.Pool(num_jobs) as pool:
        for text in tqdm(pool.imap(play, numbers), total=num_games, unit="game", mininterval=5):
            moves = text.partition("\n\n")[2]
            if moves not in seen:
                seen.add(moves)
                yield text


def write_gzip(path: Path, text: str) -> None:
    """Write `text` compressed, the same bytes for the same text (no time stamp, no file name)."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as stream:
            stream.write(text.encode("ascii"))
        raw.flush()
        os.fsync(raw.fileno())
    temporary.replace(path)


def main() -> None:
    """Play and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the .pgn.gz file to write")
    parser.add_argument("--engine", default="/usr/games/stockfish", help="Stockfish (Debian: stockfish)")
    parser.add_argument("--games", type=int, default=2400)
    parser.add_argument(
        "--nodes", type=int, default=600, help="nodes a move; a side has 1/2 to 2 times as many"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="engines at the same time")
    args = parser.parse_args()
    settings = Settings(args.engine, args.seed, args.nodes)
    with chess.engine.SimpleEngine.popen_uci(args.engine) as engine:
        engine_name = engine.id["name"]
    texts = list(games(settings, args.games, args.jobs))
    flags = f"--games {args.games} --nodes {args.nodes} --seed {args.seed}"
    note = (
        f"{{ Games of {engine_name} against itself, made by the alphazero project: python "
        f"tools/make_embedded_games.py {shlex.quote(args.output.as_posix())} {flags}. "
        "Licence: GPL-3.0-or-later, as the project. }"
    )
    headers, _, moves = texts[0].partition("\n\n")
    texts[0] = f"{headers}\n\n{note}\n{moves}"
    write_gzip(args.output, "\n\n".join(texts) + "\n")
    print(f"{args.output}: {len(texts)} games, {args.output.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
