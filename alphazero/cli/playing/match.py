"""`alphazero match`: networks, UCI engines, a random player or a solver against each other."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType

from alphazero.base.errors import AlphaZeroError, ConfigError
from alphazero.base.section import flag_of
from alphazero.base.text import counted, shortened
from alphazero.cli.flags import named_network
from alphazero.cli.playing.match_flags import GAUNTLET, add_match_flags, openings_of, require_even, rules_of
from alphazero.cli.playing.players import Lineup, limit_of, read_player, with_own_names
from alphazero.games.registry import CHESS
from alphazero.games.tablebases import Tablebases
from alphazero.measure.elo import Sprt
from alphazero.play.matches.game import FinishedGame, pairings_of
from alphazero.play.matches.match import SYZYGY, Arena, MatchPlan
from alphazero.play.matches.players import Player
from alphazero.play.matches.record import MatchRecord
from alphazero.play.workers import Worker, Workers, find_places
from alphazero.run.find import NETWORK, default_weights
from alphazero.run.next_command import typed_command

TERMINATED = 128 + signal.SIGTERM
# Flags that change no game; a match that continues may have more games than it was begun with.
MAY_CHANGE = ("concurrency", "device", "games", "gpus", "json", "rating_interval", "resume")

configure = add_match_flags


def run(args: argparse.Namespace) -> int:
    """Play, printing the score on the way and the result."""
    from alphazero.cli.playing.match_report import MatchReport

    require_even(args.games)
    named, rules = players_of(args), rules_of(args)
    test = Sprt(args.sprt[0], args.sprt[1], model=args.sprt_model) if args.sprt else None
    places = find_places(args.gpus, args.device)
    lineup = lineup_of(args, on_cpu=bool(places))
    players = [lineup.settled(player) for player in named]
    if any(player.command for player in players) and args.concurrency < len(places):
        raise ConfigError(
            f"--concurrency {args.concurrency}: expected at least {len(places)}, a game with engines for "
            f"each process of --gpus {args.gpus}"
        )
    game = lineup.game_of(players)
    if args.pgn_out is not None and game != CHESS:
        raise ConfigError(f"--pgn-out {args.pgn_out}: only for chess; this is {game}")
    if args.syzygy and game != CHESS:
        raise ConfigError(f"{SYZYGY} {args.syzygy}: tablebases are of chess; this is {game}")
    settings = settings_of(args, players, lineup)
    plan = MatchPlan(
        game,
        tuple(players),
        tuple(pairings_of(len(players), openings_of(args, game), gauntlet=args.tournament == GAUNTLET)),
        rules,
        concurrency=args.concurrency,
        engine_timeout_s=args.engine_timeout,
        seed=args.seed,
    )
    with MatchRecord(players, args.pgn_out, args.resume, settings) as record:
        before = record.games_before(plan.pairings)
        names = [player.name for player in players]
        report = MatchReport(names, len(plan.pairings), test, args.rating_interval, before)
        if before:
            report.say(
                f"{args.resume}: {counted(len(before), 'game')} of {len(plan.pairings):,} played before"
            )
        played = {game.pairing.number for game in before}
        left = tuple(pairing for pairing in plan.pairings if pairing.number not in played)

        def on_game(game: FinishedGame) -> bool:
            record.add(game)
            return report.take(game)

        try:
            if left and not report.is_decided:
                with Workers("match", args, places) as workers, arena_of(lineup, workers) as arena:
                    arena.play(replace(plan, pairings=left), on_game, report.say)
        except (KeyboardInterrupt, AlphaZeroError, SystemExit):
            if report.board.games:
                print(report.to_json() if args.json else report.to_text(), flush=True)
            if args.resume is not None:
                report.say(f"continue with: {shlex.join(typed_command(sys.argv, {}))}")
            raise
    print(report.to_json() if args.json else report.to_text())
    return 0


def work(args: argparse.Namespace, worker: Worker) -> None:
    """A worker of this command: some of the pairs."""
    with Arena(lineup_of(args).ready) as arena:
        arena.work(worker)


def lineup_of(args: argparse.Namespace, *, on_cpu: bool = False) -> Lineup:
    """What makes the players of this match ready, the same in each of its processes.

    on_cpu: of the parent of workers, which evaluates nothing.
    """
    return Lineup(args, limit_of(vars(args)), on_cpu=on_cpu)


@contextlib.contextmanager
def arena_of(lineup: Lineup, workers: Workers | None = None) -> Iterator[Arena]:
    """Where the games of a command are played: by its workers, here without any.

    SIGTERM ends the block by SystemExit, so that engines and workers end with it.
    """

    def end(number: int, frame: FrameType | None) -> None:
        print("alphazero: terminated", file=sys.stderr)
        raise SystemExit(TERMINATED)

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if is_main else None
    try:
        with Arena(lineup.ready, workers) as arena:
            yield arena
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def settings_of(args: argparse.Namespace, players: Sequence[Player], lineup: Lineup) -> dict[str, str]:
    """What a match that continues must have in common with its beginning, by names for people.

    Raises ConfigError and DataError for tables that cannot be used. Without --resume the content of players
    is not read.
    """
    tables = {"the content of --syzygy": Tablebases(args.syzygy, SYZYGY).identity} if args.syzygy else {}
    if args.resume is None:
        return tables
    flags = {
        flag_of(name): _text(value)
        for name, value in vars(args).items()
        if name not in MAY_CHANGE and value is not None
    }
    contents = {f"the content of {player.name}": lineup.digest(player) for player in players}
    return {**flags, **contents, **tables}


def _text(value: object) -> str:
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)


def players_of(args: argparse.Namespace) -> list[Player]:
    """All players, --weights first. Raises ConfigError where they make no match."""
    players = []
    first = named_network(args)
    if first is None and args.against is not None and not args.player:
        first = default_weights()
    if first is not None:
        players.append(Player(first, "weights", shortened(f"{NETWORK} {first}"), first))
    if args.against is not None:
        players.append(read_player([args.against], "--against"))
    players += [read_player(words, "--player") for words in args.player]
    if len(players) < 2:
        wanted = "--against P or --player ..." if players else "W --against P, or --player ... twice"
        raise ConfigError(f"a match of {counted(len(players), 'player')}: expected {wanted}")
    if len(players) > 2 and args.sprt:
        raise ConfigError(f"--sprt with {len(players)} players: expected two")
    return with_own_names(players)
