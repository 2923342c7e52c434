"""`alphazero uci`: a network as an engine for chess programs."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from alphazero.base.errors import ConfigError, WeightsError
from alphazero.cli.flags import WEIGHTS_HELP, add_network_flags, device_of
from alphazero.machine.environment import version_of
from alphazero.play.uci import LoadedNetwork, NetworkRequest, UciEngine

WEIGHTS_VARIABLE = "ALPHAZERO_WEIGHTS"
RUNS = Path("runs")


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "--weights",
        metavar="W",
        help=f"{WEIGHTS_HELP}; without it ${WEIGHTS_VARIABLE}, else the only run of {RUNS}/",
    )
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
    weights = args.weights or given.get("WeightsFile") or os.environ.get(WEIGHTS_VARIABLE) or only_run(RUNS)
    open_it = partial(open_engine_network, args.device, args.precision)
    name = f"alphazero {version_of('alphazero')}"
    write = partial(print, end="", flush=True)
    return UciEngine(name, weights, open_it, write, given).run(sys.stdin.buffer)


def only_run(runs: Path) -> str:
    """The only run of a directory. Raises WeightsError where there is not exactly one."""
    expected = f"expected --weights W, ${WEIGHTS_VARIABLE}, or exactly one run in {runs}/"
    try:
        found = sorted(path for path in runs.iterdir() if (path / "checkpoints").is_dir())
    except OSError:
        found = []
    if len(found) != 1:
        names = ", ".join(str(path) for path in found) or "none"
        raise WeightsError(f"uci: no --weights; runs found: {names}; {expected}")
    return str(found[0])


def open_engine_network(asked_device: str, precision: str, request: NetworkRequest) -> LoadedNetwork:
    """A network of the engine; torch is imported with the first one."""
    from alphazero.network.inference.purpose import evaluator_for_tree
    from alphazero.network.weights.open_network import open_network

    device = device_of(asked_device)
    network, _ = open_network(request.weights, device)
    if network.spec.name != "chess":
        raise WeightsError(f"--weights {request.weights}: plays {network.spec.name}; expected chess")
    evaluator = evaluator_for_tree(
        network, device, precision, batch_size=request.minibatch_size, num_threads=request.threads
    )
    config = network.config
    return LoadedNetwork(
        evaluator,
        f"{request.weights}: {config.blocks}x{config.filters}, {evaluator.description}, batches of up to "
        f"{evaluator.batch_size}",
    )
