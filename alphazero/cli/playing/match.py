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
from typing import TYPE_CHECKING

from alphazero.base.errors import AlphaZeroError, ConfigError
from alphazero.base.section import flag_of
from alphazero.base.text import counted, shortened
from alphazero.cli.flags import named_network
from alphazero.cli.playing.match_flags import add_match_flags, limit_of, openings_of, rules_of, tables_of
from alphazero.cli.playing.players import ENGINE, Lineup, read_player, with_own_names
from alphazero.games.tablebases import Tablebases
from alphazero.measure.elo import Sprt
from alphazero.play.matches.conduct import Conditions
from alphazero.play.matches.game import ROUND_ROBIN, FinishedGame, games_of, meetings
from alphazero.play.matches.pgn import PgnFile
from alphazero.play.matches.players import PlayerWords
from alphazero.play.matches.saved import SavedMatch
from alphazero.play.matches.stage import DealtStage, MatchShare, OwnStage, Stage, play_tasks
from alphazero.play.workers import Place, Worker, Workers, find_places
from alphazero.run.find import NETWORK, default_weights
from alphazero.run.next_command import typed_command

if TYPE_CHECKING:
    from alphazero.cli.playing.match_report import MatchReport

LANES = 256  # games of networks side by side
FEWER_LANES = 64  # where each game has a tree of each network, or a test may end the match
TERMINATED = 128 + signal.SIGTERM
# Flags that change no game; a match that continues may have more games than it was begun with.
MAY_CHANGE = ("batch_size", "concurrency", "device", "games", "gpus", "json", "rating_interval", "resume")


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_match_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Play, printing the score on the way and the result."""
    if args.games % 2:
        raise ConfigError(f"--games {args.games}: expected an even number, as each opening is played twice")
    players, rules = players_of(args), rules_of(args)

    from alphazero.cli.playing.match_report import MatchReport

    test = Sprt(args.sprt[0], args.sprt[1], model=args.sprt_model) if args.sprt else None
    places = find_places(args.gpus, args.device)
    lineup = lineup_of(args, on_cpu=bool(places))
    if any(map(lineup.is_program, players)):
        check_concurrency(args, places)
    game = lineup.game_of(players)
    if args.pgn_out is not None and game != "chess":
        raise ConfigError(f"--pgn-out {args.pgn_out}: only for chess; this is {game}")
    tables = tables_of(args, game)
    shown = [replace(player, limit=lineup.limit(player)) for player in players]
    openings = openings_of(args, game)
    met = meetings(len(players), args.tournament or ROUND_ROBIN)
    conditions = Conditions(
        game,
        rules,
        lanes=FEWER_LANES if test or args.rules == ENGINE else LANES,
        concurrency=args.concurrency,
        engine_timeout_s=args.engine_timeout,
        seed=args.seed,
    )
    pairings = list(games_of(met, openings))
    saved: SavedMatch | None = None
    before: list[FinishedGame] = []
    if args.resume is not None:
        saved = SavedMatch.open(args.resume, settings_of(args, players, lineup, tables))
        before = saved.games(pairings)
    names = [player.name for player in players]
    report = MatchReport(names, len(pairings), test, args.rating_interval, before)
    if before:
        report.say(f"{args.resume}: {counted(len(before), 'game')} of {len(pairings):,} played before")
        played = {game.pairing.number for game in before}
        pairings = [pairing for pairing in pairings if pairing.number not in played]
    share = MatchShare(tuple(players), conditions, () if report.is_decided else tuple(pairings))
    try:
        with stage_of("match", args, lineup, places if share.pairings else ()) as stage:
            report.stage = stage
            conduct(stage, share, shown, report, saved, args)
    except (KeyboardInterrupt, AlphaZeroError, SystemExit):
        if report.board.games:
            print(report.to_json() if args.json else report.to_text(), flush=True)
        if saved is not None:
            report.say(f"continue with: {shlex.join(typed_command(sys.argv, {}))}")
        raise
    print(report.to_json() if args.json else report.to_text())
    return 0


def work(args: argparse.Namespace, worker: Worker) -> None:
    """A worker of this command: some of the pairs."""
    serve(worker, lineup_of(args))


def serve(worker: Worker, lineup: Lineup) -> None:
    """Play what a worker is given, with the players of its lineup."""
    with OwnStage(lineup.contestant, lineup.meter) as stage:
        play_tasks(worker, stage)


def check_concurrency(args: argparse.Namespace, places: Sequence[Place]) -> None:
    """Raises ConfigError for fewer games with engines than there are processes to play them."""
    if args.concurrency < len(places):
        raise ConfigError(
            f"--concurrency {args.concurrency}: expected at least {len(places)}, a game with engines for "
            f"each process of --gpus {args.gpus}"
        )


def lineup_of(args: argparse.Namespace, *, on_cpu: bool = False) -> Lineup:
    """What makes the players of this match, the same in each of its processes.

    on_cpu: of the parent of workers, which evaluates nothing.
    """
    limit = limit_of(args)
    by_engines = limit.is_timed or any(player.kind == "engine" for player in players_of(args))
    side_by_side = args.concurrency if by_engines else min(LANES, args.games)
    return Lineup(args, limit, side_by_side, on_cpu=on_cpu)


@contextlib.contextmanager
def stage_of(
    command: str, args: argparse.Namespace, lineup: Lineup, places: Sequence[Place]
) -> Iterator[Stage]:
    """Where the games of this command are played: by workers at these places, here where there are none.

    SIGTERM ends the block by SystemExit, so that engines and workers end with it.
    """
    with (
        ends_at_sigterm(),
        Workers(command, args, places) as workers,
        OwnStage(lineup.contestant, lineup.meter) as own,
    ):
        yield DealtStage(workers) if places else own


def settings_of(
    args: argparse.Namespace, players: Sequence[PlayerWords], lineup: Lineup, tables: Tablebases | None
) -> dict[str, str]:
    """What a match that continues must have in common with its beginning, by names for people."""
    settings = {
        flag_of(name): _text(value)
        for name, value in vars(args).items()
        if name not in MAY_CHANGE and value is not None
    }
    for player in players:
        settings[f"the content of {player.name}"] = lineup.digest(player)
    settings["[search]"] = lineup.search_text
    if tables is not None:
        settings["the content of --syzygy"] = tables.identity
    return settings


def _text(value: object) -> str:
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)


def players_of(args: argparse.Namespace) -> list[PlayerWords]:
    """All players, --weights first. Raises ConfigError where they make no match."""
    players = []
    first = named_network(args)
    if first is None and args.against is not None and not args.player:
        first = default_weights()
    if first is not None:
        place = shortened(f"{NETWORK} {first}")
        players.append(PlayerWords(place, "weights", first, first))
    if args.against is not None:
        players.append(read_player([args.against], "--against"))
    players += [read_player(words, "--player") for words in args.player]
    if len(players) < 2:
        wanted = "--against P or --player ..." if players else "W --against P, or --player ... twice"
        raise ConfigError(f"a match of {counted(len(players), 'player')}: expected {wanted}")
    if len(players) > 2 and args.sprt:
        raise ConfigError(f"--sprt with {len(players)} players: expected two")
    return with_own_names(players)


def conduct(
    stage: Stage,
    share: MatchShare,
    shown: Sequence[PlayerWords],
    report: MatchReport,
    saved: SavedMatch | None,
    args: argparse.Namespace,
) -> None:
    """Play all games, each to the state of the match, the PGN file and the report.

    shown: the players with the limits that PGN shows.
    """
    with contextlib.ExitStack() as stack:
        pgn: PgnFile | None = None
        if args.pgn_out is not None:
            pgn = stack.enter_context(PgnFile(args.pgn_out, "alphazero match"))
            if saved is not None and saved.last is not None:
                pgn.restore(saved.last)

        def on_game(game: FinishedGame) -> bool:
            text = None if pgn is None else pgn.next(game, shown)
            if saved is not None:
                saved.add(game, text)
            if pgn is not None and text is not None:
                pgn.add(text)
            return report.take(game)

        if share.pairings:
            stage.play(share, on_game, report.say)


@contextlib.contextmanager
def ends_at_sigterm() -> Iterator[None]:
    """SIGTERM ends the block by SystemExit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        print("alphazero: terminated", file=sys.stderr)
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
