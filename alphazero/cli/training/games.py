"""`alphazero games`: the games that can be learned; `alphazero games check`: one game's rules tried out."""

from __future__ import annotations

import argparse

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_number
from alphazero.games.outside import names, openspiel
from alphazero.games.outside.check import check, notes_of
from alphazero.games.outside.symmetry import symmetries_of
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import game_names, make_line, read_game
from alphazero.settings.chosen import OUTSIDE_PRESET, line_of, measure, with_chosen
from alphazero.settings.flags import count
from alphazero.settings.load import load_config
from alphazero.show.console import showing

LIMIT_S = 60.0  # of the random games


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parts = parser.add_subparsers(dest="action", metavar="{check}")
    check_parser = parts.add_parser(
        "check", help="play random games by the rules of one game, and report what is wrong"
    )
    check_parser.add_argument("game", metavar="GAME", help=f"{', '.join(game_names())}, {names.FORMS}")
    add_number(check_parser, "--games", count, "random games", 1000)
    add_number(check_parser, "--seed", count, "seed of the moves", 1)


def run(args: argparse.Namespace) -> int:
    """List the games, or check one."""
    if args.action == "check":
        return check_one(read_game("GAME", args.game), args.games, args.seed)
    games = list(game_names())
    try:
        games += [f"{names.OPENSPIEL}{name}" for name in openspiel.names_that_fit()]
        rest = f"and classes of your own in Python, --game {names.FORMS.split(' or ')[1]}"
    except ConfigError as error:
        rest = f"and games of OpenSpiel and your own, --game {names.FORMS}; {error}"
    print("\n".join([*games, rest]))
    return 0


def check_one(name: str, num_games: int, seed: int) -> int:
    """Print what random games show. Raises RulesError for the first fault."""
    if not names.is_outside(name):
        raise ConfigError(f"{name}: its rules are this program's own; expected {names.FORMS}")
    rules = rules_of(name)
    with showing("random games", num_games, "game") as work:
        findings = check(rules, num_games, seed, LIMIT_S, lambda: work.advance(work.done + 1))
    make_line(name).packed()  # the core has nothing against it
    config = with_chosen(load_config(OUTSIDE_PRESET, {"game": name}, is_named=False), measure(name))
    planes, height, width = rules.shape
    seen = f"{planes} planes of {height}x{width}" if height * width > 1 else counted(planes, "number")
    games, decided = max(1, findings.games), sum(findings.wins)
    ended = f"; ended after {LIMIT_S:.0f} s" if findings.out_of_time else ""
    rows = [
        ("game", name),
        ("network", f"{seen}, {counted(rules.num_actions, 'action')}"),
        (
            "games",
            f"{counted(findings.games, 'random game')} of {findings.plies / games:.1f} plies, "
            f"{findings.longest} at most{ended}",
        ),
        (
            "results",
            f"first player {findings.wins[0] / games:.0%}, drawn {1 - decided / games:.0%}; of the others "
            f"{findings.last_wins / max(1, decided):.0%} won by the last move",
        ),
        ("symmetries", f"{len(symmetries_of(name))} beside the identity"),
        ("training", line_of(config, measure(name))),
    ]
    print("\n".join([*table(rows), *(f"note: {note}" for note in notes_of(rules, findings))]))
    return 0
