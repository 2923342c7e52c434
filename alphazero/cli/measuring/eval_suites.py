"""Chess positions with solutions, for `alphazero eval`: the flags, networks alone and their searches."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.base.section import flag_of
from alphazero.base.text import counted
from alphazero.cli.flags import add_number, add_paths, device_of
from alphazero.search.metered import Meter
from alphazero.settings.flags import count

if TYPE_CHECKING:
    from alphazero.network.model.resnet import AlphaZeroNet
    from alphazero.play.matches.players import ChooseMoves
    from alphazero.search.game_trees import GameTrees

CHESS = "chess"
ALONE = "network alone"
BATCH_SIZE = 256  # of a network alone, unless another is given


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of --epd and --puzzles."""
    group = parser.add_argument_group("chess positions with solutions")
    add_paths(group, "--epd", "test suites in EPD with bm (best moves) or am (moves to avoid)", several=True)
    add_paths(
        group,
        "--puzzles",
        "puzzles of Lichess (.csv, .csv.zst): solved by rating, and the rating that explains it",
    )
    add_number(group, "--count", count, "puzzles to try (default: all)")


def refuse_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that needs --puzzles."""
    if args.count is not None:
        raise ConfigError("--count: only with --puzzles")


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError for flags that belong to another measure."""
    own = "--puzzles" if args.puzzles else "--epd"
    if args.puzzles and args.epd:
        raise ConfigError("--epd and --puzzles: expected one of the two")
    others = ["data", "not_in", "positions", "num_workers", "solved", "solved_sets", "one_ply", "proofs"]
    others += ["config", "all_moves", *(() if args.puzzles else ("seed", "count"))]
    for name in others:
        if getattr(args, name) not in (None, False, "", []):
            raise ConfigError(f"{flag_of(name)}: not with {own}")
    if args.gpus != 1:
        raise ConfigError(f"--gpus {args.gpus}: {own} runs in one process; expected 1")


def open_networks(args: argparse.Namespace) -> dict[str, AlphaZeroNet]:
    """By their names. Raises ConfigError for one of another game, and WeightsError."""
    from alphazero.network.weights.open_network import open_network

    found = {}
    for name in args.weights:
        found[name], _ = open_network(name, device_of(args.device))
        if (game := found[name].spec.name) != CHESS:
            raise ConfigError(f"{name}: plays {game}; --epd and --puzzles are for {CHESS}")
    return found


def player_alone(args: argparse.Namespace, network: AlphaZeroNet) -> ChooseMoves:
    """The network's likeliest move."""
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.play.matches.players import network_player

    size = args.batch_size or BATCH_SIZE
    return network_player(NetworkEvaluator(network, device_of(args.device), args.precision, size))


def search_trees(args: argparse.Namespace, network: AlphaZeroNet, meter: Meter) -> GameTrees:
    """Of its search."""
    from alphazero.play.matches.players import engine_trees

    return engine_trees(network, device_of(args.device), args.precision, meter, args.batch_size or 0)


def search_name(args: argparse.Namespace) -> str:
    """'400 simulations'."""
    return counted(args.simulations, "simulation")
