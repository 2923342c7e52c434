"""`alphazero uci`: a network as an engine for chess programs, and for scripts in every other game."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from alphazero import __version__
from alphazero.base.errors import ConfigError
from alphazero.cli.flags import add_network_flags, add_weights_flag, device_of, named_network
from alphazero.play.uci.engine import LoadedNetwork, NetworkRequest, UciEngine
from alphazero.run.find import default_weights


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


def run(args: argparse.Namespace) -> int:
    """Serve until `quit` or the end of stdin."""
    given = {}
    for text in args.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--option {text}: expected NAME=VALUE")
        given[name] = value
    weights = named_network(args) or given.get("WeightsFile") or default_weights()
    open_it = partial(open_engine_network, args.device, args.precision)
    name = f"alphazero {__version__}"
    write = partial(print, end="", flush=True)
    return UciEngine(name, weights, open_it, write, given).run(sys.stdin.buffer)


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
