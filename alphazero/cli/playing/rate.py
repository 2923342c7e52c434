"""`alphazero rate`: the Elo of networks by games against a ladder of fixed opponents."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, table
from alphazero.cli.flags import WEIGHTS_HELP
from alphazero.cli.playing.match_flags import add_book_flags, add_search_flags, batch_size_of, book_of
from alphazero.cli.playing.players import PlayerWords
from alphazero.settings import flags as numbers
from alphazero.settings.self_play import MOST_LANES as MOST_GAMES

if TYPE_CHECKING:
    from alphazero.cli.playing.players import Lineup
    from alphazero.measure.elo import MatchScore
    from alphazero.measure.rating import Estimate, Place
    from alphazero.play.matches.engines import EngineRoom
    from alphazero.play.matches.openings import Opening
    from alphazero.play.matches.players import Contestant

VERSION = 1
MAX_PLIES = 400
GAME = "chess"


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("weights", nargs="+", metavar="W", help=f"who is rated: {WEIGHTS_HELP}")
    parser.add_argument(
        "--checkpoints",
        nargs="?",
        type=numbers.count,
        const=1,
        metavar="N",
        help="rate every N-th checkpoint of each run W (every one where N is not given), keep the ratings in "
        "its ratings.jsonl, and mark the strongest best-elo",
    )
    parser.add_argument(
        "--games",
        type=numbers.whole(2, MOST_GAMES),
        default=200,
        metavar="N",
        help="most games of each network, an even number (default: 200)",
    )
    parser.add_argument(
        "--width",
        type=numbers.number(1, 10_000),
        default=100.0,
        metavar="ELO",
        help="stop when the 95 %% interval is so wide at most (default: 100)",
    )
    parser.add_argument(
        "--ladder",
        type=Path,
        metavar="DIR",
        help="directory of the ladder's networks, maia-1100.pb.gz and maia-1500.pb.gz",
    )
    parser.add_argument(
        "--concurrency",
        type=numbers.whole(1, 1024),
        default=8,
        metavar="N",
        help="games with Stockfish side by side (default: 8)",
    )
    add_book_flags(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_search_flags(parser, "openings and random moves")


def run(args: argparse.Namespace) -> int:
    """Rate, print a table."""
    if args.games % 2:
        raise ConfigError(f"--games {args.games}: expected an even number, as each opening is played twice")
    if args.ladder is not None and not args.ladder.is_dir():
        raise ConfigError(f"--ladder {args.ladder}: expected a directory of networks")

    from alphazero.cli.playing.match import ends_at_sigterm
    from alphazero.cli.playing.players import Lineup
    from alphazero.measure.rating import PAIRS_AT_ONCE, find_rungs, keep_rating, mark_best_rated, read_ladder
    from alphazero.play.matches.engines import EngineRoom
    from alphazero.play.matches.limits import Limit

    candidates = list(candidates_of(args))
    places, lacking = find_rungs(read_ladder(), args.ladder)
    for line in lacking:
        print(line, file=sys.stderr)
    lineup = Lineup(args, Limit(), batch_size_of(args, 2 * PAIRS_AT_ONCE))
    found: list[dict[str, Any]] = []
    with ends_at_sigterm(), EngineRoom() as room:
        rater = Rater(args, lineup, places, room)
        for candidate in candidates:
            found.append(rater.rate(candidate, start=found[-1]["elo"] if found and candidate.run else None))
            if candidate.run is not None:
                keep_rating(candidate.run, found[-1])
    print(json.dumps(found) if args.json else "\n".join(table_of(found)))
    for run in dict.fromkeys(candidate.run for candidate in candidates if candidate.run is not None):
        if (best := mark_best_rated(run)) is not None:
            print(f"{run}@best-elo is {best[0].name} ({best[1]:.0f})", file=sys.stderr)
    return 0


class Candidate:
    """Who is rated. run, step: of a checkpoint of a run whose ratings are kept."""

    def __init__(self, weights: str, run: Path | None = None, step: int | None = None) -> None:
        self.weights = weights
        self.run = run
        self.step = step


def candidates_of(args: argparse.Namespace) -> Iterator[Candidate]:
    """All networks to rate, in order. Raises ConfigError for a W that has no checkpoints."""
    if args.checkpoints is None:
        yield from (Candidate(weights) for weights in args.weights)
        return
    from alphazero.run.checkpoint_files import checkpoints_in, step_of
    from alphazero.run.directory import RunDirectory

    for name in args.weights:
        directory = RunDirectory(Path(name)).checkpoints
        found = checkpoints_in(directory) if directory.is_dir() else []
        if not found:
            raise ConfigError(f"{name}: no checkpoints there; --checkpoints expected the directory of a run")
        for path in found[:: args.checkpoints]:
            yield Candidate(str(path), Path(name), step_of(path))


class Rater:
    """Rates one network after another on the ladder."""

    def __init__(
        self, args: argparse.Namespace, lineup: Lineup, places: list[Place], room: EngineRoom
    ) -> None:
        self._args = args
        self._lineup = lineup
        self._places = places
        self._room = room
        self._openings = book_of(args, args.games // 2)
        self._checked: set[str] = set()
        self._fingerprints: dict[str, dict[str, int]] = {}

    def rate(self, candidate: Candidate, start: float | None) -> dict[str, Any]:
        """The rating as JSON has it. start: where it is looked for first."""
        from alphazero.measure import rating as adaptive

        words = PlayerWords(candidate.weights, "weights", candidate.weights, candidate.weights)
        if (game := self._lineup.game_of([words])) != GAME:
            raise ConfigError(
                f"{candidate.weights}: plays {game}; expected a network of chess, as the ladder is"
            )
        places = [place for place in self._places if not self._is_same(candidate.weights, place)]
        player = self._lineup.contestant(words)
        opponents = [self._opponent(place) for place in places]
        estimate = adaptive.rate(
            [place.rung.opponent for place in places],
            lambda index, first, pairs: self._play(player, opponents[index], first, pairs),
            most_games=self._args.games,
            width=self._args.width,
            start=start,
            told=lambda found: tell(candidate.weights, found),
        )
        return {
            "version": VERSION,
            "weights": candidate.weights,
            "step": candidate.step,
            "limit": str(player.limit),
            "seed": self._args.seed,
            **json_of(estimate),
        }

    def _is_same(self, weights: str, place: Place) -> bool:
        """Whether a rung is the rated network itself, in whatever file."""
        if place.rung.kind != "weights":
            return False
        return self._fingerprint(weights) == self._fingerprint(place.path)

    def _fingerprint(self, weights: str) -> dict[str, int]:
        from alphazero.network.weights.open_network import open_weights
        from alphazero.training.ranks.exchange import checksums

        if weights not in self._fingerprints:
            self._fingerprints[weights] = checksums(open_weights(weights).state_dict.items())
        return self._fingerprints[weights]

    def _opponent(self, place: Place) -> Contestant:
        from alphazero.play.matches.limits import Limit
        from alphazero.play.matches.players import Engine

        rung, limit = place.rung, Limit(nodes=place.rung.nodes or None)
        if rung.kind == "stockfish":
            options = {"Threads": "1", "Hash": "16"}
            engine = Engine(rung.name, (place.path,), limit, options=options, random_share=rung.random_share)
            if rung.name not in self._checked:
                self._room.check(engine)
                self._checked.add(rung.name)
            return engine
        words = PlayerWords(place.path, rung.kind, rung.name, place.path, limit=limit)
        return self._lineup.contestant(replace(words, random_share=rung.random_share))

    def _play(self, player: Contestant, opponent: Contestant, first: int, pairs: int) -> MatchScore:
        from alphazero.measure.match import Scoreboard
        from alphazero.play.matches.conduct import Conditions, Conductor
        from alphazero.play.matches.game import Adjudication, FinishedGame, Pairing

        openings: list[Opening] = self._openings[first : first + pairs]
        pairings = [
            Pairing(2 * (first + number) + second + 1, number, second, 1 - second, opening)
            for number, opening in enumerate(openings)
            for second in (0, 1)
        ]
        board = Scoreboard()

        def on_game(game: FinishedGame) -> bool:
            board.add(game)
            return True

        conditions = Conditions(
            GAME, Adjudication(max_plies=MAX_PLIES), concurrency=self._args.concurrency, seed=self._args.seed
        )
        Conductor(
            [player, opponent],
            conditions,
            engines=self._room,
            on_game=on_game,
            say=lambda line: print(line, file=sys.stderr),
        ).play(pairings)
        return board.score(0, 1)


def tell(name: str, found: Estimate) -> None:
    """A line on the way."""
    print(
        f"{name}: {counted(found.games, 'game')}, {found.elo:.0f} ({found.low:.0f} to {found.high:.0f})",
        file=sys.stderr,
    )


def json_of(found: Estimate) -> dict[str, Any]:
    """Rating and games."""
    return {
        "elo": found.elo,
        "elo_95": [found.low, found.high],
        "beyond": found.is_beyond or None,
        "games": found.games,
        "opponents": [
            {
                "name": met.opponent.name,
                "rating": met.opponent.rating,
                "wins": met.score.wins,
                "draws": met.score.draws,
                "losses": met.score.losses,
            }
            for met in found.met
        ],
    }


def table_of(found: list[dict[str, Any]]) -> Iterator[str]:
    """For people."""
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
            place = f"it is {rating['beyond']} the ladder, and the figure a bound"
            yield f"{rating['weights']} {won} every game: {place}"
    yield "Elo on the ladder's own scale (docs/matches.md), the opponents' ratings taken as exact."
