"""`alphazero uci`: a network as an engine for chess programs, and for scripts in every other game."""

from __future__ import annotations

import argparse
import shlex
import sys
from functools import partial

from alphazero import __version__
from alphazero.base.errors import ConfigError
from alphazero.cli.flags import add_network_flags, add_paths, add_weights_flag, device_of, named_network
from alphazero.play.uci.engine import LoadedNetwork, NetworkRequest, UciEngine
from alphazero.play.uci.levels import read_levels
from alphazero.play.uci.lichess_bot import FLAG as LICHESS_BOT
from alphazero.play.uci.lichess_bot import write_files
from alphazero.run.find import default_weights, find_weights


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_weights_flag(parser)
    add_network_flags(parser)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="initial value of a UCI option, as Hash=256; may be repeated (docs/play.md)",
    )
    bot = "write the engine's script and the section of config.yml for lichess-bot in DIR, and end"
    add_paths(parser, LICHESS_BOT, bot, "DIR")
    parser.add_argument("--force", action="store_true", help=f"with {LICHESS_BOT}: replace both")


def run(args: argparse.Namespace) -> int:
    """Serve until `quit` or the end of stdin."""
    given = {}
    for text in args.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--option {text}: expected NAME=VALUE")
        given[name] = value
    weights = named_network(args) or given.get("WeightsFile") or default_weights()
    if args.lichess_bot is not None:
        arguments = ("--device", args.device, "--precision", args.precision)
        directory = args.lichess_bot
        script, config = write_files(directory, weights, given, arguments, force=args.force)
        print(f"wrote {script} and the section engine of {config}")
        print(f"next: set token: there, then: cd {shlex.quote(str(directory))} && python lichess-bot.py")
        return 0
    if args.force:
        raise ConfigError(f"--force: expected only with {LICHESS_BOT}")
    open_it = partial(open_engine_network, args.device, args.precision)
    name = f"alphazero {__version__}"
    write = partial(print, end="", flush=True)
    return UciEngine(
        name, weights, open_it, write, given, lambda weights: read_levels(find_weights(weights))
    ).run(sys.stdin.buffer)


def open_engine_network(asked_device: str, precision: str, request: NetworkRequest) -> LoadedNetwork:
    """A network of the engine; torch is imported with the first one."""
    from alphazero.network.inference.purpose import evaluator_for_tree
    from alphazero.network.weights.open_network import open_network

    device = device_of(asked_device)
    network, _ = open_network(request.weights, device)
    evaluator = evaluator_for_tree(
        network, device, precision, batch_size=request.minibatch_size, num_threads=request.threads
    )
    config = network.config
    return LoadedNetwork(
        evaluator,
        f"{request.weights}: {config.blocks}x{config.filters}, {evaluator.description}, batches of up to "
        f"{evaluator.batch_size}",
        network.spec.name,
    )
