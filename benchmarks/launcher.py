"""Wall time of what people type first: `launch --help`, `launch --dry-run`, each in a process of its own.

Both must answer within 0.5 s on an idle machine and import neither torch nor deepspeed.
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

REPOSITORY = Path(__file__).resolve().parents[1]
LIMIT_S = 0.5
HEAVY = ("torch", "deepspeed")
# Prints the heavy modules that were imported, after all else.
PROGRAM = (
    "import atexit, sys; "
    f"atexit.register(lambda: print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)); "
    "from alphazero.cli.main import entry_point; entry_point()"
)


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
            "dry_run_by_hand_s": ["--nodes", "2", "--node-rank", "1", "--master-addr", "node-0", "--dry-run"],
            "dry_run_16_hosts_s": ["--hostfile", str(hostfile), "--dry-run"],
        }
        figures: dict[str, object] = {
            name: statistics.median(seconds(command) for _ in range(args.rounds))
            for name, command in commands.items()
        }
    figures["limit_s"] = LIMIT_S
    figures["within_limit"] = all(float(str(figures[name])) < LIMIT_S for name in commands)
    return figures


def seconds(arguments: list[str]) -> float:
    """One start, from the outside; AssertionError where it imports what it must not."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "launch", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    passed = time.perf_counter() - begun
    heavy = done.stderr.splitlines()[-1]
    assert not heavy, f"launch {' '.join(arguments)} imports {heavy}"
    return passed
