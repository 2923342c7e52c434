"""Wall time of what people type first: `launch --help`, `launch --dry-run`, each in a process of its own.

Both must answer within 0.5 s on an idle machine; that they import neither torch nor deepspeed is a test.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from alphazero.settings.flags import Parser, count

CHECKOUT = Path(__file__).resolve().parents[1]
LIMIT_S = 0.5


def run(arguments: list[str]) -> dict[str, object]:
    """Median seconds by command, and whether all of them kept to the limit."""
    parser = Parser(prog="alphazero bench launcher", description=__doc__)
    parser.add_argument("--rounds", type=count, default=7)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        hostfile = Path(directory, "hostfile")
        hostfile.write_text("".join(f"node-{number} slots=8\n" for number in range(16)), encoding="utf-8")
        commands = {
            "help_s": ["--help"],
            "dry_run_s": ["--dry-run"],
            "dry_run_16_hosts_s": ["--hostfile", str(hostfile), "--dry-run"],
        }
        medians = {
            name: statistics.median(seconds(command) for _ in range(args.rounds))
            for name, command in commands.items()
        }
    return {**medians, "limit_s": LIMIT_S, "within_limit": max(medians.values()) < LIMIT_S}


def seconds(arguments: list[str]) -> float:
    """One start, from the outside."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "alphazero", "launch", *arguments],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - begin
