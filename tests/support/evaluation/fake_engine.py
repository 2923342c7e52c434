"""A UCI engine for tests: plays seeded random legal moves, and fails in the way that it is told to.

python fake_engine.py [--mode MODE] [--from-move N]: crash, leave (after its move), hang, close (its output),
illegal, early (a move where it is asked whether it is ready), none, null, huge (numbers), endless (a line),
bytes (no text), slow, indented (and slow), deaf, mute or parent (of a process in a session of its own), from
the N-th move of a process on. Their ids go to --pid-file. With --chess960 it castles where it can, and takes
moves only as UCI has them there: king takes rook.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import chess


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="well")
    parser.add_argument("--from-move", type=int, default=1)
    parser.add_argument("--chess960", action="store_true")
    parser.add_argument("--score", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds per move")
    parser.add_argument("--pid-file", type=Path)
    args = parser.parse_args()
    if args.pid_file:
        with args.pid_file.open("a") as file:
            file.write(f"{os.getpid()}\n")
    if args.mode == "parent":
        start_orphan(args.pid_file)
    if args.mode == "mute":
        sys.stderr.write("no licence found\n")
        return
    board, seed, moves = chess.Board(), 1, 0
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if not words:
            continue
        if words[0] == "uci":
            names = ("Seed", "Threads", "Hash")
            options = [f"option name {name} type spin default 1 min 0 max 999" for name in names]
            options += ["option name UCI_Chess960 type check default false"] * args.chess960
            say("id name Fake", "id author tests", *options, "uciok")
        elif words[0] == "isready":
            if args.mode == "early" and moves:
                say(f"bestmove {min(move.uci() for move in board.legal_moves)}")
            say("readyok")
        elif words[0] == "setoption" and words[2] == "Seed":
            seed = int(words[4])
        elif words[0] == "setoption" and words[2] == "UCI_Chess960":
            board.chess960 = words[4] == "true"
        elif words[0] == "position":
            board = read_position(words[1:], board.chess960)
        elif words[0] == "go":
            moves += 1
            answer(args, board, seed, moves)
        elif words[0] == "quit" and args.mode != "deaf":
            return
    while args.mode == "deaf":  # neither quit nor the end of its input ends it
        time.sleep(60)


BAD_MOVES = {"illegal": "e1e8", "none": "(none)", "null": "0000"}  # by mode


def answer(args: argparse.Namespace, board: chess.Board, seed: int, moves: int) -> None:
    mode = args.mode if moves >= args.from_move else "well"
    time.sleep(args.delay + 0.4 * (mode in ("slow", "indented")))
    if mode == "crash":
        sys.stderr.write("segmentation fault, or so\n")
        os._exit(1)
    if mode == "close":
        os.close(1)
    if mode in ("hang", "close"):
        time.sleep(600)
    while mode == "endless":
        sys.stdout.write("info string " * 10_000)
    if mode == "bytes":
        os.write(1, b"\xff\xfe\0 \x1b[31m\n\n   \nbestmove\n")
    legal = sorted(move.uci() for move in board.legal_moves)
    castling = [move.uci() for move in board.generate_castling_moves()] if args.chess960 else []
    move = BAD_MOVES.get(mode) or random.Random(f"{seed}/{board.fen()}").choice(castling or legal)
    if mode == "huge":
        for name in ("time", "depth", "nodes", "nps", "score mate", "score mate -", "score cp -", "score cp"):
            say(f"info {name if name.endswith('-') else name + ' '}{'9' * 400}")
    else:
        say(f"info depth 3 nodes 77 score cp {args.score} pv {move}")
    say(f"{' ' * (mode == 'indented')}bestmove {move}")
    if mode == "leave":
        os._exit(0)


def start_orphan(pid_file: Path) -> None:
    """A process that neither the end of its parent nor that of its parent's group ends."""
    code = (
        "import os, time\nchild = os.fork()\n"
        "if child:\n    print(child, flush=True)\n    os._exit(0)\ntime.sleep(600)"
    )
    with pid_file.open("a") as file:
        subprocess.run([sys.executable, "-c", code], start_new_session=True, stdout=file, check=True)


def read_position(words: list[str], chess960: bool) -> chess.Board:
    end = words.index("moves") if "moves" in words else len(words)
    fen = chess.STARTING_FEN if words[0] == "startpos" else " ".join(words[1:end])
    board = chess.Board(fen, chess960=chess960)
    for move in words[end + 1 :]:
        if chess960 and chess.Move.from_uci(move) not in [*board.legal_moves]:
            sys.stderr.write(f"{move} is no move of Chess960\n")
            os._exit(1)
        board.push_uci(move)
    return board


def say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    main()
