"""`alphazero health`: GPUs and host of this machine, as a table or JSON; failures are exit status 2."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from alphazero.cli.flags import add_device_flag
from alphazero.machine.health import check_this_host, to_json, to_table
from alphazero.machine.judge import exit_status


def configure(parser: argparse.ArgumentParser) -> None:
    """What to look at and how to print it."""
    parser.epilog = (
        "Exit status: 0 without failures, 2 with failures (or a mistake in the command); with --strict 1 "
        "where there are warnings."
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/health.md has its keys)")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with status 1 where there are warnings, as clusters want it",
    )
    add_device_flag(parser, "cuda: a GPU must be there; cpu: look at the host alone")
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="where runs are written (default: runs)"
    )


def run(args: argparse.Namespace) -> int:
    """Look, print, judge."""
    report = check_this_host(args.runs_dir, args.device)
    print(json.dumps(to_json(report, strict=args.strict), indent=1) if args.json else to_table(report))
    return exit_status(report.findings, strict=args.strict)
