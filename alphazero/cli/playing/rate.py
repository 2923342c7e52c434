"""`alphazero rate`: the Elo of networks by games against the ladder of their game."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import ConfigError
from alphazero.base.log import Work
from alphazero.base.section import flag_of
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_number, add_weights_flag, networks_of
from alphazero.cli.playing.match import check_concurrency, serve, stage_of
from alphazero.cli.playing.match_flags import RANDOM_PLIES, add_book_flags, add_search_flags, book_of
from alphazero.cli.playing.players import SELF_PLAY, Lineup
from alphazero.measure.match import Scoreboard
from alphazero.play.matches.conduct import Conditions
from alphazero.play.matches.game import CHESS, Adjudication, FinishedGame, games_of
from alphazero.play.matches.limits import Limit
from alphazero.play.matches.openings import Opening, random_openings
from alphazero.play.matches.players import PlayerWords
from alphazero.play.matches.stage import MatchShare, Stage
from alphazero.play.workers import Place, Worker, find_places
from alphazero.run.checkpoint_files import checkpoints_in, step_of
from alphazero.run.directory import RunDirectory
from alphazero.search.metered import Speed
from alphazero.settings.flags import count, number, whole
from alphazero.settings.self_play import MOST_GAMES
from alphazero.show.console import Console

if TYPE_CHECKING:
    from alphazero.measure.elo import MatchScore
    from alphazero.measure.ladder import Ladder
    from alphazero.measure.rating import Rung

VERSION = 1
MAX_PLIES = 400  # of a game of chess
OPENING_PLIES = (RANDOM_PLIES, 2, 0)  # random moves before games without a book, fewer where these end them
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
    add_number(parser, "--games", whole(2, MOST_GAMES), "most games of each network, an even number", 200)
    add_number(
        parser,
        "--width",
        number(1, 10_000),
        "stop when the 95 %% interval is at most this wide",
        100.0,
        metavar="ELO",
    )
    parser.add_argument(
        "--ladder",
        type=Path,
        metavar="DIR",
        help="directory of the ladder's networks, maia-1100.pb.gz and maia-1500.pb.gz (chess)",
    )
    add_number(parser, "--concurrency", whole(1, 1024), "games with Stockfish side by side", 8)
    add_book_flags(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_search_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Rate, print a table."""
    args.weights = networks_of(args)
    if args.games % 2:
        raise ConfigError(f"--games {args.games}: expected an even number, as each opening is played twice")
    if args.ladder is not None and not args.ladder.is_dir():
        raise ConfigError(f"--ladder {args.ladder}: expected a directory of networks")

    from alphazero.measure.rating import keep_rating, mark_best_rated

    candidates, places = list(candidates_of(args)), find_places(args.gpus, args.device)
    lineup = lineup_of(args, on_cpu=bool(places))
    game = lineup.game_of([candidates[0].words])
    ladder = published(args, places) if game == CHESS else None
    if ladder is None:
        refuse_flags_of_chess(args, game)
    found: list[dict[str, Any]] = []
    try:
        with stage_of("rate", args, lineup, places) as stage, closing(Console(True)) as console:
            rater = Rater(args, lineup, game, stage, console)
            ladder = rater.climb(ladder)
            for candidate in candidates:
                start = found[-1]["elo"] if found and candidate.run else None
                found.append(rater.rate(candidate, ladder, start))
                if candidate.run is not None:
                    keep_rating(candidate.run, found[-1])
    finally:  # those that were rated before an error or a signal as well
        if found:
            assert ladder is not None
            print(json.dumps(found) if args.json else "\n".join(table_of(found, ladder)), flush=True)
    print(Speed.of(rater.games, stage.efforts), file=sys.stderr)
    for run in dict.fromkeys(candidate.run for candidate in candidates if candidate.run is not None):
        if (best := mark_best_rated(run)) is not None:
            print(f"{run}@best-elo is {best[0].name} ({best[1]:.0f})", file=sys.stderr)
    return 0


def work(args: argparse.Namespace, worker: Worker) -> None:
    """A worker of this command: some of the pairs."""
    serve(worker, lineup_of(args))


def lineup_of(args: argparse.Namespace, *, on_cpu: bool = False) -> Lineup:
    """What makes the players, the same in each process. on_cpu: of the parent of workers."""
    from alphazero.measure.rating import PAIRS_AT_ONCE

    return Lineup(args, Limit(), 2 * PAIRS_AT_ONCE, on_cpu=on_cpu)


def published(args: argparse.Namespace, places: Sequence[Place]) -> Ladder:
    """The ladder of chess; says what this machine lacks of it. Raises ConfigError."""
    from alphazero.measure.ladder import published_ladder

    ladder, missing = published_ladder(args.ladder)
    for line in missing:
        print(line, file=sys.stderr)
    if any(rung.kind == "stockfish" for rung in ladder.rungs):
        check_concurrency(args, places)
    return ladder


def refuse_flags_of_chess(args: argparse.Namespace, game: str) -> None:
    """Raises ConfigError."""
    for name in OF_CHESS:
        if (value := getattr(args, name)) is not None:
            raise ConfigError(f"{flag_of(name)} {value}: only for chess; this is {game}")


def openings_in(game: str, args: argparse.Namespace) -> list[Opening]:
    """One for each pair of games with the network, and for each pair of games within the ladder."""
    from alphazero.measure.ladder import PAIRS

    if game == CHESS:
        return book_of(args)
    number = max(PAIRS, args.games // 2)
    for plies in OPENING_PLIES:
        found = random_openings(game, number, plies, args.seed)
        if len(found) == number:
            break
    return found


@dataclass(frozen=True)
class RatedNetwork:
    """A network to rate. run, step: of a checkpoint of a run whose ratings are kept."""

    weights: str
    run: Path | None = None
    step: int | None = None

    @property
    def words(self) -> PlayerWords:
        """The network as a player."""
        return PlayerWords(self.weights, "weights", self.weights, self.weights)


def candidates_of(args: argparse.Namespace) -> Iterator[RatedNetwork]:
    """The networks to rate, in order. Raises ConfigError for a run without checkpoints."""
    if args.checkpoints is None:
        yield from (RatedNetwork(weights) for weights in args.weights)
        return
    for name in args.weights:
        directory = RunDirectory(Path(name)).checkpoints
        found = checkpoints_in(directory) if directory.is_dir() else []
        if not found:
            raise ConfigError(f"{name}: no checkpoints found; --checkpoints expects the directory of a run")
        for path in found[:: args.checkpoints]:
            yield RatedNetwork(str(path), Path(name), step_of(path))


class Rater:
    """Rates one network after another on the ladder of a game."""

    def __init__(
        self, args: argparse.Namespace, lineup: Lineup, game: str, stage: Stage, console: Console
    ) -> None:
        self._args = args
        self._lineup = lineup
        self._game = game
        self._stage = stage
        self._console = console
        self._openings = openings_in(game, args)
        self.games = 0  # played so far

    def climb(self, ladder: Ladder | None) -> Ladder:
        """The ladder. That of games other than chess (None) is estimated: games that it lacks are played."""
        from alphazero.measure.ladder import EstimatedLadder

        if ladder is not None:
            return ladder
        estimated = EstimatedLadder(self._game)
        with self._console.working(f"ladder of {self._game}", estimated.games_left, "game") as shown:
            ladder = estimated.estimate(
                lambda high, low, first, pairs: self._play(
                    (opponent(high), opponent(low)), 1, first, pairs, shown
                )
            )
        for line in table(estimated.table(ladder), "lrl"):
            self._console.say(line)
        return ladder

    def rate(self, candidate: RatedNetwork, ladder: Ladder, start: float | None) -> dict[str, Any]:
        """The rating as JSON. start: the first estimate."""
        from alphazero.measure.rating import rate

        words = candidate.words
        if (game := self._lineup.game_of([words])) != self._game:
            raise ConfigError(f"{candidate.weights}: plays {game}; expected {self._game}, as the ladder is")
        rungs = [rung for rung in ladder.rungs if not self._is_same(candidate.weights, rung)]
        players = (words, *map(opponent, rungs))
        with self._console.working(candidate.weights, self._args.games, "game") as shown:
            rating = rate(
                rungs,
                lambda index, first, pairs: self._play(players, index + 1, first, pairs, shown),
                most_games=self._args.games,
                width=self._args.width,
                start=start,
                report=lambda found: self._console.say(
                    f"{candidate.weights}: {counted(found.games, 'game')}, {found.elo:.0f} "
                    f"({found.low:.0f} to {found.high:.0f})"
                ),
            )
        return {
            "version": VERSION,
            "game": self._game,
            "ladder": ladder.digest,
            "weights": candidate.weights,
            "step": candidate.step,
            "limit": str(self._lineup.limit(words)),
            "rules": self._args.rules,
            "seed": self._args.seed,
            "elo": rating.elo,
            "elo_95": [rating.low, rating.high],
            "beyond": rating.beyond or None,
            "games": rating.games,
            "opponents": [
                {
                    "name": rung.name,
                    "rating": rung.rating,
                    "wins": score.wins,
                    "draws": score.draws,
                    "losses": score.losses,
                }
                for rung, score in rating.met
            ],
        }

    def _is_same(self, weights: str, rung: Rung) -> bool:
        """Whether a rung is the rated network itself, in whatever file."""
        checksums = self._lineup.checksums
        return rung.kind == "weights" and checksums(weights) == checksums(rung.path)

    def _play(
        self, players: tuple[PlayerWords, ...], other: int, first: int, pairs: int, shown: Work
    ) -> MatchScore:
        """The score of the first player against another one, by pairs of openings from `first` on."""
        games = games_of([(0, other)], self._openings[first : first + pairs])
        pairings = [replace(game, number=2 * first + game.number) for game in games]
        board = Scoreboard()

        def on_game(game: FinishedGame) -> bool:
            board.add(game)
            self.games += 1
            shown.done += 1
            return True

        conditions = Conditions(
            self._game,
            Adjudication(max_plies=MAX_PLIES) if self._game == CHESS else Adjudication(),
            concurrency=self._args.concurrency,
            seed=self._args.seed,
        )
        share = MatchShare(players, conditions, tuple(pairings))
        self._stage.play(share, on_game, self._console.say)
        return board.score(0, other)


def opponent(rung: Rung) -> PlayerWords:
    """A rung as a player, by the rules with which the ladder was rated."""
    is_engine = rung.kind == "stockfish"
    return PlayerWords(
        rung.name,
        "engine" if is_engine else rung.kind,
        rung.name,
        rung.path,
        command=(rung.path,) if is_engine else (),
        options={"Threads": "1", "Hash": "16"} if is_engine else {},
        limit=Limit(nodes=rung.nodes or None),
        random_share=rung.random_share,
        rules=SELF_PLAY,
    )


def table_of(found: list[dict[str, Any]], ladder: Ladder) -> Iterator[str]:
    """A table for people."""
    rows = [("network", "step", "Elo", "95 %", "games", "against")]
    for rating in found:
        low, high = rating["elo_95"]
        rows.append(
            (
                rating["weights"],
                "" if rating["step"] is None else f"{rating['step']:,}",
                f"{rating['elo']:.0f}",
                f"{low:.0f} to {high:.0f}",
                str(rating["games"]),
                ", ".join(
                    f"{met['name']} +{met['wins']} ={met['draws']} -{met['losses']}"
                    for met in rating["opponents"]
                ),
            )
        )
    yield from table(rows, "lrrrrl")
    for rating in found:
        if rating["beyond"]:
            won = "won" if rating["beyond"] == "above" else "lost"
            yield f"{rating['weights']} {won} every game: {rating['beyond']} the ladder, its Elo is a bound"
    yield ladder.scale
