"""The flags of `alphazero match`: players, limits, openings, adjudication, and the arithmetic of networks."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.cli.flags import (
    add_gpus_flag,
    add_network_flags,
    add_number,
    add_plain_file,
    add_weights_flag,
)
from alphazero.cli.playing.players import LIMITS, NODES, key_values
from alphazero.games.registry import CHESS, get_game
from alphazero.play.matches import openings
from alphazero.play.matches.game import Adjudication, DrawRule, ResignRule
from alphazero.play.matches.limits import MARGIN_S, MOST_CLOCK_S
from alphazero.play.matches.match import ENGINE_TIMEOUT_S, SYZYGY
from alphazero.settings.flags import count, number, seed, whole
from alphazero.settings.self_play import MOST_GAMES, MOST_PLIES

BALANCED = "balanced"
RANDOM_PLIES = 4  # of games without a book
MOST_CONCURRENCY = 1024
MOST_CENTIPAWNS = 100_000
STANDARD, FISCHERANDOM = "standard", "fischerandom"  # as fastchess and cutechess name them
ROUND_ROBIN, GAUNTLET = "round-robin", "gauntlet"


def add_match_flags(parser: argparse.ArgumentParser) -> None:
    """Add all flags of `alphazero match`."""
    players = parser.add_argument_group("players", "two or more")
    add_weights_flag(players, "the first player")
    players.add_argument(
        "--against",
        metavar="P",
        help="the second player: weights, random, solver, mcts, or as --player in one text",
    )
    players.add_argument(
        "--player",
        action="append",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="a further player, in fastchess's words: cmd=PROGRAM (a UCI engine), args=, dir=, "
        "option.NAME=VALUE, or weights=W, or random, solver or mcts; name=; its limit: nodes=, "
        "depth=, tc=, st=, timemargin=; random=SHARE of its moves drawn at random",
    )
    meet = "all against each other, or the first against all others"
    players.add_argument("--tournament", choices=(ROUND_ROBIN, GAUNTLET), help=meet)
    add_number(parser, "--games", whole(2, MOST_GAMES), "games of each two players, an even number", 100)
    parser.add_argument(
        "--sprt",
        type=float,
        nargs=2,
        metavar=("ELO0", "ELO1"),
        help="stop when it is decided whether the first player is ELO0 or ELO1 stronger (errors of 5 %%); "
        "--games is then the most that are played",
    )
    scale = "the Elo of --sprt (default: normalized, as fastchess)"
    parser.add_argument("--sprt-model", choices=("normalized", "logistic"), default="normalized", help=scale)
    _add_game_flags(parser)
    add_book_flags(parser)
    add_plain_file(parser, "--pgn-out", "append each game to FILE as it ends (chess)", "games.pgn")
    add_plain_file(
        parser,
        "--resume",
        "write the state of the match to FILE after each game, and continue from FILE where it exists",
        "match.json",
    )
    add_number(parser, "--rating-interval", count, "print the score every N pairs of games", 10)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_network_flags(parser)
    add_gpus_flag(parser)
    add_number(parser, "--seed", seed, "seed of openings, their order, and random moves", 0)


def _add_game_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("games", "limits apply to players without one")
    for key, names, metavar, text in (
        ("nodes", ["--simulations"], "N", f"nodes per move (default: {NODES} for networks and mcts)"),
        ("tc", [], "T", "clock: [moves/]seconds[+increment], as 1+0.05 or 40/60"),
        ("st", ["--movetime"], "S", "seconds per move"),
        ("timemargin", [], "MS", f"milliseconds that a move may be late (default: {1000 * MARGIN_S:g})"),
    ):
        group.add_argument(f"--{key}", *names, type=LIMITS[key], metavar=metavar, help=text)
    kind = (
        "of chess; fischerandom (Chess960): without --openings from its 960 start positions, drawn by --seed"
    )
    group.add_argument("--variant", choices=(STANDARD, FISCHERANDOM), help=kind)
    drawn = f"random moves of each opening, instead of a book (default: {RANDOM_PLIES} in games but chess)"
    add_number(group, "--opening-plies", whole(0, MOST_PLIES), drawn)
    together = "games with engines side by side; all games of networks share batches"
    add_number(group, "--concurrency", whole(1, MOST_CONCURRENCY), together, 1)
    group.add_argument(
        "--draw",
        nargs="+",
        metavar="KEY=N",
        help="end games as drawn: movenumber= movecount= score= (moves, moves of both, centipawns)",
    )
    group.add_argument("--resign", nargs="+", metavar="KEY=N", help="end games as lost: movecount= score=")
    most = "end games as drawn after N moves of both sides"
    add_number(group, "--maxmoves", whole(1, MOST_PLIES), most, 256)
    known = "end games of chess with the result that the Syzygy tablebases of DIR know (several: DIR:DIR)"
    group.add_argument(SYZYGY, default="", metavar="DIR", help=known)
    silent = "seconds after which an engine without a clock forfeits"
    add_number(group, "--engine-timeout", number(0.1, MOST_CLOCK_S), silent, ENGINE_TIMEOUT_S, metavar="S")


def add_book_flags(parser: argparse.ArgumentParser) -> None:
    """The book of chess openings."""
    book = f"book of openings, EPD or PGN; {BALANCED}: the book of this program (default for chess)"
    parser.add_argument("--openings", metavar="FILE", help=book)
    order = "order of the openings (default: random, by --seed)"
    parser.add_argument("--order", choices=("sequential", "random"), default="random", help=order)
    add_number(parser, "--plies", whole(0, MOST_PLIES), "plies of a PGN book")


def require_even(games: int) -> None:
    """Raise ConfigError for an odd --games."""
    if games % 2:
        raise ConfigError(f"--games {games}: expected an even number, as each opening is played twice")


def rules_of(args: argparse.Namespace) -> Adjudication:
    """When games end early. Raises ConfigError."""
    draw = DrawRule(**_numbers(args.draw, "--draw", DrawRule)) if args.draw else None
    resign = ResignRule(**_numbers(args.resign, "--resign", ResignRule)) if args.resign else None
    return Adjudication(draw, resign, 2 * args.maxmoves, args.syzygy)


def _numbers(words: list[str], flag: str, rule: type[DrawRule] | type[ResignRule]) -> dict[str, int]:
    kinds = {entry.name: whole(0, MOST_CENTIPAWNS) for entry in fields(rule)}
    values = key_values(words, kinds, flag)
    if missing := [name for name in kinds if name not in values]:
        raise ConfigError(f"{flag} {' '.join(words)}: expected {missing[0]}= as well")
    return values


def openings_of(args: argparse.Namespace, game: str) -> list[openings.Opening]:
    """One for each pair of games: of the book, or random moves. Raises ConfigError and DataError."""
    if args.openings is not None and args.opening_plies is not None:
        raise ConfigError("--openings and --opening-plies: expected one of the two")
    has_book = get_game(game).name == CHESS
    is_chess960 = args.variant == FISCHERANDOM
    if args.variant is not None and not has_book:
        raise ConfigError(f"--variant {args.variant}: only for chess; this is {game}")
    if is_chess960 and args.opening_plies is not None:
        raise ConfigError("--variant fischerandom and --opening-plies: expected one of the two")
    if args.openings is not None and not has_book:
        raise ConfigError(
            f"--openings {args.openings}: books are of chess; expected --opening-plies in {game}"
        )
    if args.opening_plies is not None or not has_book:
        plies = RANDOM_PLIES if args.opening_plies is None else args.opening_plies
        return openings.random_openings(game, args.games // 2, plies, args.seed)
    return book_of(args, chess960=is_chess960)


def book_of(args: argparse.Namespace, *, chess960: bool = False) -> list[openings.Opening]:
    """As many openings of chess from the book of --openings, or starts of Chess960. Raises DataError."""
    if chess960 and args.openings is None:
        book = openings.chess960_starts()
    else:
        path = openings.BALANCED if args.openings in (None, BALANCED) else Path(args.openings)
        book = openings.read_book(path, args.plies, chess960=chess960)
    return openings.in_order(book, args.games // 2, args.order == "random", args.seed)
