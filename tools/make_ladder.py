"""Ratings of the ladder's opponents from the games of tournaments (`alphazero match --pgn-out`).

python tools/make_ladder.py GAMES.pgn [...] --anchor maia-1100 1100

prints a line for each player: name, rating, half the 95 % interval of its distance from the mean, games.
docs/matches.md has the tournaments.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from alphazero.base.text import table
from alphazero.measure.match import Scoreboard
from alphazero.measure.rating import ratings
from alphazero.play.matches.game import Ending, FinishedGame, Pairing
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.record import RESULTS

HEADER = re.compile(r'^\[(Round|White|Black|Result) "(.*)"\]$', re.MULTILINE)
POINTS = {result: points for points, result in RESULTS.items()}


def results(path: Path) -> Iterator[dict[str, str]]:
    """Round, White, Black and Result of each game."""
    found = HEADER.findall(path.read_text(encoding="utf-8"))
    for start in range(0, len(found), 4):
        yield dict(found[start : start + 4])


def main() -> None:
    """Read, rate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("games", type=Path, nargs="+")
    parser.add_argument("--anchor", nargs=2, required=True, metavar=("NAME", "RATING"))
    args = parser.parse_args()
    numbers: dict[str, int] = {}
    board = Scoreboard()
    for offset, path in zip(itertools.count(0, 10**6), args.games):
        for game in results(path):
            white, black = (numbers.setdefault(game[side], len(numbers)) for side in ("White", "Black"))
            # Games 2n + 1 and 2n + 2 of a tournament are a pair.
            pairing = Pairing(
                int(game["Round"]), offset + (int(game["Round"]) - 1) // 2, white, black, Opening()
            )
            board.add(FinishedGame(pairing, POINTS[game["Result"]], Ending.NORMAL, "", (), 0.0))
    found = ratings(len(numbers), {met: board.score(*met) for met in board.met})
    name, rating = args.anchor
    shift = float(rating) - found[numbers[name]].elo
    rows = [("name", "rating", "+/-", "games")]
    for player, number in sorted(numbers.items(), key=lambda item: found[item[1]].elo):
        own = found[number]
        rows.append(
            (
                player,
                f"{own.elo + shift:.0f}",
                f"{(own.high - own.low) / 2:.0f}",
                str(board.total(number).games),
            )
        )
    print("\n".join(table(rows, "lrrr")))


if __name__ == "__main__":
    main()
