"""The flags of `alphazero launch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from alphazero.settings import flags as numbers
from alphazero.settings.cluster import (
    MOST_NODES,
    MOST_PROCESSES,
    MOST_RESTARTS,
    PORT_MAX,
)

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
    _add_process_flags(parser.add_argument_group("processes"))
    _add_machine_flags(parser.add_argument_group("several machines"))
    _add_supervision_flags(parser.add_argument_group("supervision"))


def _add_process_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpus",
        "--num-gpus",
        "--nproc-per-node",
        type=numbers.whole(-1, MOST_PROCESSES),
        metavar="N",
        help="processes on each machine: N, or -1 for one per GPU (default); without a GPU N CPU ranks "
        "(default: one per core, as far as batch and memory go)",
    )
    group.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="auto: GPUs where there are some (default)",
    )
    group.add_argument(
        "--launcher",
        choices=("auto", "torchrun", "deepspeed", "slurm"),
        default="auto",
        help="what starts the ranks of a machine; slurm: torchrun, started on the nodes by srun",
    )


def _add_machine_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--nodes",
        "--num-nodes",
        "--nnodes",
        type=numbers.whole(1, MOST_NODES),
        metavar="N",
        help="machines of the job (default: 1)",
    )
    group.add_argument(
        "--node-rank",
        type=_node_rank,
        metavar="R",
        help="start only this machine's part: its number, from 0 to N-1 (auto: its place in the hostfile)",
    )
    group.add_argument("--master-addr", metavar="ADDRESS", help="address of node 0")
    group.add_argument(
        "--master-port",
        type=numbers.whole(1, PORT_MAX),
        metavar="PORT",
        help="port of node 0 (default: 12355, or a free one)",
    )
    group.add_argument(
        "--interface", metavar="NAME", help="network interface to use (default: the one that leads to node 0)"
    )
    group.add_argument(
        "--hostfile",
        type=Path,
        metavar="FILE",
        help="file of hosts, each line '<host> slots=<processes> [weight=<share>]'; all start from here",
    )
    group.add_argument("--include", metavar="HOSTS", help="hosts and slots to use, as gpu1@gpu2:0,2")
    group.add_argument("--exclude", metavar="HOSTS", help="hosts and slots to leave out")
    group.add_argument(
        "--ssh-port", type=numbers.whole(1, PORT_MAX), metavar="PORT", help="port of sshd on all hosts"
    )
    group.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="ssh configuration to use instead of ~/.ssh/config"
    )
    group.add_argument(
        "--sync-data", action="store_true", help="copy --data to the hosts of the hostfile that lack it"
    )


def _add_supervision_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-restarts",
        type=numbers.whole(0, MOST_RESTARTS),
        metavar="N",
        help="times to start again after a failure (default: 0)",
    )
    group.add_argument(
        "--min-nodes",
        type=numbers.whole(1, MOST_NODES),
        metavar="N",
        help="fewest hosts to continue with after a failure (default: all of them)",
    )
    for flag, least, help_text in (
        ("--hang-timeout", 1, "a step may stand still, or 10 median steps if that is more (default: 10)"),
        ("--start-timeout", 1, "until the first steps are timed: data import, compilation (default: 1800)"),
        ("--pause-timeout", 1, "a validation, checkpoint or collection of games may take (default: 600)"),
        ("--games-timeout", 1, "self-play or the games of a gate may stand still (default: 300)"),
        ("--shutdown-timeout", 1, "from a rank's last message to its end (default: 60)"),
        ("--silence-timeout", 3, "until a silent host or head counts as lost (default: 10)"),
    ):
        group.add_argument(flag, type=numbers.seconds(least), metavar="SECONDS", help=f"seconds {help_text}")
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
