"""The flags of `alphazero launch`: the settings of a cluster, and what concerns one start alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from alphazero.base.section import add_flags
from alphazero.settings import flags as numbers
from alphazero.settings.cluster import MOST_NODES, PORT_MAX, ClusterConfig

ELASTIC_IS_GONE = (
    "--elastic: torchrun's c10d rendezvous runs what anyone on the network sends; expected --hostfile with "
    "--min-nodes and --max-restarts, which continue without lost hosts and take them back at a restart"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The launcher's own flags."""
    parser.epilog = (
        "All other flags go to the trainer: see `alphazero train --help`. docs/cluster.md describes several "
        "machines, SLURM, and which setting beats which."
    )
    add_flags(parser, {"cluster": ClusterConfig})
    group = parser.add_argument_group("this start")
    group.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="auto: GPUs where there are some (default)",
    )
    group.add_argument(
        "--node-rank",
        type=_node_rank,
        metavar="R",
        help="start only this machine's part: its number, from 0 to N-1 (auto: its place in the hostfile)",
    )
    group.add_argument(
        "--ssh-port", type=numbers.whole(1, PORT_MAX), metavar="PORT", help="port of sshd on all hosts"
    )
    group.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="ssh configuration to use instead of ~/.ssh/config"
    )
    group.add_argument(
        "--sync-data", action="store_true", help="copy --data to the hosts of the hostfile that lack it"
    )
    group.add_argument("--elastic", nargs="?", const="", help=argparse.SUPPRESS)  # gone: see run
    group.add_argument(
        "--no-preflight",
        action="store_true",
        help="start whatever the comparison of the hosts finds, and skip the preflight of all ranks",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="print the commands with their environment, start nothing"
    )


def _node_rank(text: str) -> int | str:
    return text if text == "auto" else numbers.whole(0, MOST_NODES - 1)(text)
