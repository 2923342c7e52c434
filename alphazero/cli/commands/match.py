"""`alphazero match`: two networks, or a network and a random player, against each other."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from alphazero.cli.flags import numbers
from alphazero.cli.flags.network import add_network_flags, add_weights_flag
from alphazero.config import MOST_LANES as MOST_GAMES
from alphazero.config import MOST_PLIES, MOST_UNITS, SearchConfig, load_config, preset_names
from alphazero.errors import ConfigError
from alphazero.settings import add_flags

if TYPE_CHECKING:
    from alphazero.evaluation.elo import MatchScore
    from alphazero.evaluation.players import Player
    from alphazero.evaluation.sprt import Sprt

RANDOM = "random"


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments, and the settings of the search of both players."""
    add_weights_flag(parser, "the first player")
    parser.add_argument(
        "--against",
        required=True,
        metavar="W",
        help=f"the second player: as --weights, or {RANDOM} for random moves",
    )
    parser.add_argument(
        "--games",
        type=numbers.whole(2, MOST_GAMES),
        default=100,
        metavar="N",
        help="games to play, an even number (default: 100)",
    )
    parser.add_argument(
        "--sprt",
        type=float,
        nargs=2,
        metavar=("ELO0", "ELO1"),
        help="stop when it is decided whether the first player is ELO0 or ELO1 stronger (normalized Elo, "
        "errors of 5 %%); --games is then the most that are played",
    )
    parser.add_argument(
        "--opening-plies",
        type=numbers.whole(0, MOST_PLIES),
        default=4,
        metavar="N",
        help="random moves that each game begins with (default: 4)",
    )
    parser.add_argument(
        "--config", default="", metavar="NAME|FILE", help=f"preset ({', '.join(preset_names())})"
    )
    add_network_flags(parser)
    parser.add_argument(
        "--batch-size",
        type=numbers.whole(1, MOST_UNITS),
        default=64,
        metavar="N",
        help="positions per evaluation of the network (default: 64)",
    )
    parser.add_argument(
        "--seed",
        type=numbers.seed,
        default=0,
        metavar="N",
        help="seed of openings and random moves (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_flags(parser, {"search": SearchConfig})


def run(args: argparse.Namespace) -> int:
    """Play the match, print the score."""
    if args.games % 2:
        raise ConfigError(f"--games {args.games}: expected an even number, as each opening is played twice")
    own = ("batch_size", "opening_plies", "seed", "precision")
    flags = {name: value for name, value in vars(args).items() if name not in own}
    config = load_config(args.config, {**flags, "noise_epsilon": "0"})

    from tqdm import tqdm

    from alphazero.evaluation.match import play_match, random_openings
    from alphazero.evaluation.sprt import Sprt

    game, first = network_side(args, config.search, args.weights, "--weights")
    if args.against == RANDOM:
        from alphazero.evaluation.players import random_player

        second = random_player(args.seed)
    else:
        other, second = network_side(args, config.search, args.against, "--against")
        if other != game:
            raise ConfigError(f"--against {args.against}: plays {other}, {args.weights} plays {game}")
    openings = random_openings(game, args.games // 2, args.opening_plies, args.seed)
    test = Sprt(*args.sprt) if args.sprt else None
    with tqdm(total=args.games, unit="game", file=sys.stderr, leave=False, disable=None) as bar:

        def count(over: int) -> None:
            bar.update(over - bar.n)

        score = play_match(first, second, openings, test=test, after_move=count)
    print(to_json(score, test) if args.json else to_text(args, score, test))
    return 0


def network_side(args: argparse.Namespace, search: SearchConfig, name: str, flag: str) -> tuple[str, Player]:
    """The game that the network of that name plays, and its player."""
    import torch

    from alphazero.evaluation.players import search_player
    from alphazero.network.device import choose_device
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.search.settings import search_settings
    from alphazero.training.checkpoint.any_weights import open_network

    device = choose_device(args.device, 0, os.environ)
    network, _ = open_network(name, device, flag)
    evaluator = NetworkEvaluator(network, network.spec, device, args.precision, args.batch_size)
    settings = search_settings(search)
    return network.spec.name, search_player(evaluator, settings, num_threads=torch.get_num_threads())


def to_text(args: argparse.Namespace, score: MatchScore, test: Sprt | None) -> str:
    """For people."""
    estimate = score.elo()
    text = (
        f"{args.weights} against {args.against}: +{score.wins} ={score.draws} -{score.losses}, "
        f"{score.share:.1%} of the points\n"
        f"Elo {estimate.elo:+.0f} (95 %: {estimate.low:+.0f} to {estimate.high:+.0f}), "
        f"the stronger one with a probability of {estimate.superiority:.1%}"
    )
    if test is None:
        return text
    ratio, (lower, upper) = test.log_likelihood_ratio(score.pairs), test.bounds
    verdict = {
        "H1": f"at least {test.elo1:g} Elo accepted",
        "H0": f"at most {test.elo0:g} Elo accepted",
        "continue": "not decided; expected more --games",
    }[test.decide(score.pairs)]
    return (
        f"{text}\nSPRT [{test.elo0:g}, {test.elo1:g}]: {ratio:.2f} of ({lower:.2f}, {upper:.2f}): {verdict}"
    )


def to_json(score: MatchScore, test: Sprt | None) -> str:
    """For programs. pairs: how many gave 0, 1/2, 1, 3/2 and 2 points."""
    estimate = score.elo()
    sprt = test and {
        "elo": [test.elo0, test.elo1],
        "log_likelihood_ratio": test.log_likelihood_ratio(score.pairs),
        "bounds": test.bounds,
        "decision": test.decide(score.pairs),
    }
    return json.dumps(
        {
            "wins": score.wins,
            "draws": score.draws,
            "losses": score.losses,
            "pairs": score.pairs,
            "share": score.share,
            "elo": estimate.elo,
            "elo_95": [estimate.low, estimate.high],
            "superiority": estimate.superiority,
            "sprt": sprt,
        }
    )
