"""`alphazero rate`: the Elo of networks by games against the ladder of their game."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import ConfigError
from alphazero.base.log import Work
from alphazero.base.section import flag_of
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_network_flags, add_number, add_paths, add_weights_flag, networks_of
from alphazero.cli.playing.match import arena_of
from alphazero.cli.playing.match_flags import RANDOM_PLIES, add_book_flags, book_of, require_even
from alphazero.cli.playing.players import NODES, Lineup
from alphazero.games.registry import CHESS
from alphazero.measure.match import Scoreboard
from alphazero.play.matches.game import Adjudication, FinishedGame, pairings_of
from alphazero.play.matches.limits import Limit
from alphazero.play.matches.match import Arena, MatchPlan
from alphazero.play.matches.openings import Opening, random_openings
from alphazero.play.matches.players import Player
from alphazero.play.uci.levels import MOST_NODES, SUFFIX, Level, write_levels
from alphazero.run.checkpoint_files import checkpoints_in, step_of
from alphazero.run.directory import RunDirectory
from alphazero.run.find import find_weights
from alphazero.settings.flags import count, number, seed, whole
from alphazero.settings.self_play import MOST_GAMES, MOST_SIMULATIONS
from alphazero.show.console import Console

if TYPE_CHECKING:
    from alphazero.measure.elo import MatchScore
    from alphazero.measure.ladder import Ladder

VERSION = 1
MAX_PLIES = 400  # of a game of chess
OPENING_PLIES = (RANDOM_PLIES, 2, 0)  # random moves before games without a book, fewer where these end them
LEVELS = (1, 4, 16, 64)  # nodes
OF_CHESS = ("ladder", "openings", "plies")  # flags


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser, "networks to rate", several=True)
    parser.add_argument(
        "--checkpoints",
        nargs="?",
        type=count,
        const=1,
        metavar="N",
        help="rate every N-th checkpoint of each run W (every one where N is not given), keep the ratings in "
        "its ratings.jsonl, and mark the strongest best-elo",
    )
    parser.add_argument(
        "--levels",
        nargs="*",
        type=whole(1, MOST_NODES),
        metavar="N",
        help="rate each weights file W at these nodes per move instead of --simulations (default: "
        f"{', '.join(map(str, LEVELS))}), and write W{SUFFIX}, from which the engine has UCI_Elo",
    )
    add_number(parser, "--games", whole(2, MOST_GAMES), "most games of each network, an even number", 200)
    enough = "stop when the 95 %% interval is at most this wide"
    add_number(parser, "--width", number(1, 10_000), enough, 100.0, metavar="ELO")
    add_number(parser, "--simulations", whole(1, MOST_SIMULATIONS), "simulations per move", NODES)
    networks = "directory of the ladder's networks, maia-1100.pb.gz and maia-1500.pb.gz (chess)"
    add_paths(parser, "--ladder", networks, "DIR")
    add_number(parser, "--concurrency", whole(1, 1024), "games with Stockfish side by side", 8)
    add_book_flags(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_network_flags(parser)
    add_number(parser, "--seed", seed, "seed of openings, their order, and random moves", 0)


def run(args: argparse.Namespace) -> int:
    """Rate, print a table."""
    args.weights = networks_of(args)
    require_even(args.games)
    if args.ladder is not None and not args.ladder.is_dir():
        raise ConfigError(f"--ladder {args.ladder}: expected a directory of networks")

    from alphazero.measure.ladder import published_ladder
    from alphazero.measure.rating import keep_rating, mark_best_rated

    lineup = Lineup(args, Limit(nodes=args.simulations))
    networks = list(networks_to_rate(args))
    all_nodes = nodes_to_rate_at(args)
    game = lineup.game_of([weights_player(lineup, networks[0][0])])
    ladder = None
    if game == CHESS:
        ladder, missing = published_ladder(args.ladder)
        for line in missing:
            print(line, file=sys.stderr)
    for name in OF_CHESS:
        if game != CHESS and (value := getattr(args, name)) is not None:
            raise ConfigError(f"{flag_of(name)} {value}: only for chess; this is {game}")
    ratings: list[dict[str, Any]] = []
    try:
        with arena_of(lineup) as arena, closing(Console(True)) as console:
            rater = Rater(args, lineup, game, arena, console)
            ladder = ladder or rater.estimated_ladder()
            for weights, run in networks:
                for nodes in all_nodes:
                    start = ratings[-1]["elo"] if ratings and (run or nodes != all_nodes[0]) else None
                    step = None if run is None else step_of(Path(weights))
                    ratings.append({**rater.rate(weights, ladder, start, nodes), "step": step})
                if run is not None:
                    keep_rating(run, ratings[-1])
                if args.levels is not None:
                    console.say(keep_levels(weights, all_nodes, ratings[-len(all_nodes) :], ladder))
    finally:  # those that were rated before an error or a signal as well
        if ratings:
            assert ladder is not None
            print(json.dumps(ratings) if args.json else "\n".join(table_of(ratings, ladder)), flush=True)
    for run in dict.fromkeys(run for _, run in networks):
        if run is not None and (best := mark_best_rated(run)) is not None:
            print(f"{run}@best-elo is {best[0].name} ({round(best[1])})", file=sys.stderr)
    return 0


def weights_player(lineup: Lineup, weights: str, nodes: int | None = None) -> Player:
    """The player of a network, settled. nodes: per move, None: --simulations."""
    return lineup.settled(Player(weights, "weights", weights, weights, limit=Limit(nodes=nodes)))


def nodes_to_rate_at(args: argparse.Namespace) -> list[int]:
    """Nodes per move, rising. Raises ConfigError for levels of a run or checkpoint."""
    if args.levels is None:
        return [args.simulations]
    if args.checkpoints is not None:
        raise ConfigError("--levels and --checkpoints: expected one of the two")
    for name in args.weights:
        if not find_weights(name).is_file():
            raise ConfigError(f"--levels: {name} is a checkpoint; expected a weights file (alphazero export)")
    nodes = sorted({*(args.levels or LEVELS)})
    if len(nodes) < 2:
        raise ConfigError(f"--levels {nodes[0]}: expected two numbers of nodes or more")
    return nodes


def keep_levels(weights: str, nodes: Sequence[int], ratings: Sequence[dict[str, Any]], ladder: Ladder) -> str:
    """Write what the engine needs for UCI_Elo, and say so; levels that are but bounds are left out."""
    levels = [
        Level(number, rating["elo"], rating["games"])
        for number, rating in zip(nodes, ratings, strict=True)
        if not rating["beyond"]
    ]
    measured = ", ".join(f"{level.elo:.0f} at {counted(level.nodes, 'node')}" for level in levels)
    if len(levels) < 2:
        return f"{weights}: no levels written: within the ladder are {measured or 'none'}"
    return f"wrote {write_levels(find_weights(weights), ladder.scale, levels)}: {measured}"


def openings_in(game: str, args: argparse.Namespace) -> list[Opening]:
    """One for each pair of games with the network, and for each pair of games within the ladder."""
    from alphazero.measure.ladder import PAIRS

    if game == CHESS:
        return book_of(args)
    number = max(PAIRS, args.games // 2)
    for plies in OPENING_PLIES:
        openings = random_openings(game, number, plies, args.seed)
        if len(openings) == number:
            break
    return openings


def networks_to_rate(args: argparse.Namespace) -> Iterator[tuple[str, Path | None]]:
    """Weights, and the run whose checkpoint they are, if its ratings are kept. Raises ConfigError."""
    for name in args.weights:
        if args.checkpoints is None:
            yield name, None
            continue
        directory = RunDirectory(Path(name)).checkpoints
        checkpoints = checkpoints_in(directory) if directory.is_dir() else []
        if not checkpoints:
            raise ConfigError(f"{name}: no checkpoints found; --checkpoints expects the directory of a run")
        for path in checkpoints[:: args.checkpoints]:
            yield str(path), Path(name)


class Rater:
    """Rates one network after another on the ladder of a game."""

    def __init__(
        self, args: argparse.Namespace, lineup: Lineup, game: str, arena: Arena, console: Console
    ) -> None:
        self._args, self._lineup, self._game = args, lineup, game
        self._arena, self._console = arena, console
        self._openings = openings_in(game, args)

    def estimated_ladder(self) -> Ladder:
        """That of a game other than chess; games that it lacks are played."""
        from alphazero.measure.ladder import EstimatedLadder

        estimated = EstimatedLadder(self._game)
        with self._console.working(f"ladder of {self._game}", estimated.games_left, "game") as shown:
            ladder = estimated.estimate(partial(self._play, shown))
        for line in table(estimated.table(ladder), "lrl"):
            self._console.say(line)
        return ladder

    def rate(self, weights: str, ladder: Ladder, start: float | None, nodes: int) -> dict[str, Any]:
        """The rating as JSON. start: the first estimate. nodes: per move."""
        from alphazero.measure.rating import rate

        player, checksums = weights_player(self._lineup, weights, nodes), self._lineup.checksums
        if (game := self._lineup.game_of([player])) != self._game:
            raise ConfigError(f"{weights}: plays {game}; expected {self._game}, as the ladder is")
        rungs = [  # without the network itself, in whatever file
            rung
            for rung in ladder.rungs
            if not rung.player.weights or checksums(weights) != checksums(rung.player.weights)
        ]
        with self._console.working(weights, self._args.games, "game") as shown:
            rating = rate(
                rungs,
                lambda index, first, pairs: self._play(shown, player, rungs[index].player, first, pairs),
                most_games=self._args.games,
                width=self._args.width,
                start=start,
                report=lambda estimate: self._console.say(
                    f"{weights}: {counted(estimate.games, 'game')}, {round(estimate.elo)} "
                    f"({round(estimate.low)} to {round(estimate.high)})"
                ),
            )
        opponents = [
            {
                "name": rung.player.name,
                "rating": rung.rating,
                **{name: getattr(score, name) for name in ("wins", "draws", "losses")},
            }
            for rung, score in rating.met
        ]
        return {
            "version": VERSION,
            "game": self._game,
            "ladder": ladder.digest,
            "weights": weights,
            "limit": str(player.limit),
            "seed": self._args.seed,
            "elo": rating.elo,
            "elo_95": [rating.low, rating.high],
            "beyond": rating.beyond or None,
            "games": rating.games,
            "opponents": opponents,
        }

    def _play(self, shown: Work, player: Player, other: Player, first: int, pairs: int) -> MatchScore:
        """The score of a player against another one, by pairs of openings from `first` on."""
        board = Scoreboard()

        def on_game(game: FinishedGame) -> bool:
            board.add(game)
            shown.done += 1
            return True

        pairings = pairings_of(2, self._openings[first : first + pairs])
        plan = MatchPlan(
            self._game,
            (self._lineup.settled(player), self._lineup.settled(other)),
            tuple(replace(pairing, number=2 * first + pairing.number) for pairing in pairings),
            Adjudication(max_plies=MAX_PLIES) if self._game == CHESS else Adjudication(),
            concurrency=self._args.concurrency,
            seed=self._args.seed,
        )
        self._arena.play(plan, on_game, self._console.say)
        return board.score(0, 1)


def table_of(ratings: list[dict[str, Any]], ladder: Ladder) -> Iterator[str]:
    """A table for people."""
    rows = [("network", "step", "Elo", "95 %", "games", "against")]
    for rating in ratings:
        low, high = rating["elo_95"]
        step = "" if rating["step"] is None else f"{rating['step']:,}"
        met = ", ".join("{name} +{wins} ={draws} -{losses}".format(**each) for each in rating["opponents"])
        interval = f"{round(low)} to {round(high)}"
        rows.append((rating["weights"], step, str(round(rating["elo"])), interval, str(rating["games"]), met))
    yield from table(rows, "lrrrrl")
    for rating in ratings:
        if rating["beyond"]:
            won = "won" if rating["beyond"] == "above" else "lost"
            yield f"{rating['weights']} {won} every game: {rating['beyond']} the ladder, its Elo is a bound"
    yield ladder.scale
