"""`alphazero doctor`: the environment for a report of a fault, and what this machine can do, measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.settings.flags import seconds, whole
from alphazero.settings.load import preset_names

if TYPE_CHECKING:
    from alphazero.doctor.examined_host import ExaminedHost, Wishes

FORMAT, VERSION = "alphazero-doctor", 1
# For each preset to train, and again to play.
SECONDS = 4.0
MOST_RANKS = 4096
START_S, TIMES_LONGER = 300.0, 20.0  # until a host that has not answered is given up


def configure(parser: argparse.ArgumentParser) -> None:
    """What to measure, and where."""
    parser.epilog = "Exit status: 0, or 2 where a host or a preset could not be measured."
    parser.add_argument("--quick", action="store_true", help="tell the environment alone, measure nothing")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/doctor.md has its keys)")
    parser.add_argument(
        "--presets",
        nargs="+",
        choices=preset_names(),
        default=preset_names(),
        help="what to measure (default: all that ship)",
    )
    parser.add_argument(
        "--seconds",
        type=seconds(0.5),
        default=SECONDS,
        help=f"to measure each preset's training, and as long its self-play (default: {SECONDS:g})",
    )
    parser.add_argument(
        "--gpus",
        type=whole(0, MOST_RANKS),
        default=0,
        metavar="N",
        help="ranks: one per GPU, or CPU ranks (default: as many as training would have)",
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where to compute")
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="whose disk is measured (default: runs)"
    )
    parser.add_argument(
        "--hostfile", type=Path, help="examine these hosts, each for itself, instead of this one"
    )
    parser.add_argument("--ssh-port", type=whole(1, 65_535), metavar="PORT", help="port of sshd on all hosts")
    parser.add_argument("--ssh-config", type=Path, metavar="FILE", help="instead of ~/.ssh/config")


def run(args: argparse.Namespace) -> int:
    """Examine, tell."""
    from alphazero.doctor.examined_host import Wishes, examine_this_host, to_json
    from alphazero.doctor.page import page

    presets = tuple(dict.fromkeys(args.presets))
    runs = str(args.runs_dir.absolute())
    wishes = Wishes(presets, runs, args.device, 0.0 if args.quick else args.seconds, args.gpus)
    if not args.quick:
        print(f"measuring {', '.join(presets)}: about a minute on a quiet machine", file=sys.stderr)
    found = _examine_hosts(args, wishes) if args.hostfile else [examine_this_host(wishes)]
    if args.json:
        hosts = [to_json(host) for host in found]
        print(json.dumps({"format": FORMAT, "version": VERSION, "hosts": hosts}, indent=1))
    else:
        print("\n\n".join(map(page, found)))
    is_whole = all(not host.fault and not any(one.fault for one in host.presets) for host in found)
    return 0 if is_whole else ConfigError.exit_code


def _examine_hosts(args: argparse.Namespace, wishes: Wishes) -> list[ExaminedHost]:
    from alphazero.cluster.launch.remote import SshOptions
    from alphazero.cluster.plan.hostfile import read_hostfile
    from alphazero.doctor.cluster import examine_hosts

    if args.gpus:
        raise ConfigError("--gpus: not with --hostfile, whose slots are the ranks of each host")
    if args.ssh_config is not None and not args.ssh_config.is_file():
        raise ConfigError(f"--ssh-config {args.ssh_config}: no such file")
    hosts = read_hostfile(args.hostfile)
    limit_s = START_S + TIMES_LONGER * args.seconds * len(wishes.presets)
    ssh = SshOptions(args.ssh_port, args.ssh_config)
    return examine_hosts(hosts, sys.executable, ssh, wishes, limit_s)
