"""A small month as Lichess publishes it: random games with its headers and a clock after each move."""

from __future__ import annotations

import random
from pathlib import Path

import chess
import chess.pgn

# Base, increment and the class that Lichess's site shows for it.
CONTROLS = (
    (15, 0, "UltraBullet"),
    (60, 1, "Bullet"),
    (180, 2, "Blitz"),
    (600, 0, "Rapid"),
    (1800, 20, "Classical"),
)
ENDS = ("Normal", "Normal", "Normal", "Time forfeit", "Abandoned", "Rules infraction")


def lichess_games(count: int, seed: str) -> list[chess.pgn.Game]:
    """Random games of 4 to 30 plies; some players have no rating, some games no clocks."""
    rng = random.Random(seed)
    games = []
    for number in range(count):
        base, increment, speed = rng.choice(CONTROLS)
        game = chess.pgn.Game()
        game.headers["Event"] = f"Rated {speed} game"
        game.headers["Site"] = f"https://lichess.org/{number:08d}"
        game.headers["White"], game.headers["Black"] = f"w{number % 7}", f"b{number % 5}"
        game.headers["Result"] = rng.choice(("1-0", "0-1", "1/2-1/2"))
        for name in ("WhiteElo", "BlackElo"):
            game.headers[name] = "?" if rng.random() < 0.1 else str(rng.randrange(1470, 1630))
        game.headers["TimeControl"] = f"{base}+{increment}"
        game.headers["Termination"] = rng.choice(ENDS)
        clocks = [float(base), float(base)]
        has_clocks = rng.random() < 0.9
        node: chess.pgn.GameNode = game
        for ply in range(rng.randrange(4, 31)):
            moves = list(node.board().legal_moves)
            if not moves:
                break
            node = node.add_variation(rng.choice(moves))
            clocks[ply % 2] = max(1.0, clocks[ply % 2] - rng.randrange(0, max(2, base // 8)) + increment)
            if has_clocks:
                node.set_clock(clocks[ply % 2])
        games.append(game)
    return games


def write_pgn(path: Path, games: list[chess.pgn.Game]) -> None:
    """The games in one file."""
    path.write_text("\n\n".join(map(str, games)) + "\n")
