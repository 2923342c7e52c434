"""`alphazero runs`: a table of the runs of a directory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from alphazero.base.files import given_path
from alphazero.base.text import printable, table
from alphazero.run.checkpoint_files import step_of
from alphazero.run.overview import RunOverview, RunState, list_runs

# What a row has room for: the first two that the run has, best one first.
FIGURES = ("elo", "move_error", "policy_top1", "value_mse", "composite")
SHOWN_FIGURES = 2
SHARES = ("move_error", "policy_top1")


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "directory",
        nargs="?",
        default="runs",
        metavar="DIR",
        help="directory of runs, or a run (default: runs)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    directory = given_path(args.directory, "DIR")
    runs = list_runs(directory)
    if args.json:
        print(json.dumps([overview.to_json() for overview in runs], indent=1))
    else:
        print(to_table(directory, runs))
    return 0


def to_table(directory: Path, runs: list[RunOverview]) -> str:
    """A line per run, the names first."""
    if not runs:
        return f"{printable(directory)}: no runs found"
    rows = [("run", "network", "step", "best", "state")]
    for overview in runs:
        name, steps = printable(overview.path.name), "-" if overview.step < 0 else f"{overview.step:,}"
        steps += f" of {overview.num_steps:,}" if overview.step >= 0 and overview.num_steps >= 0 else ""
        rows.append((name, overview.network, steps, best_text(overview), state_text(overview)))
    return "\n".join(table(rows, "llrl"))


def best_text(overview: RunOverview) -> str:
    """'policy_top1 41.20% (step 2,000)' for each figure that the row has room for."""
    texts = []
    for name in [name for name in FIGURES if name in overview.best][:SHOWN_FIGURES]:
        path, value = overview.best[name]
        shown = f"{value:.2%}" if name in SHARES else f"{value:.4g}"
        texts.append(f"{name} {shown} (step {step_of(path):,})")
    return "  ".join(texts)


def state_text(overview: RunOverview) -> str:
    """'running: process 12 on gpu1, since ...', 'damaged: ...', or the state alone."""
    if overview.state is RunState.RUNNING and overview.holder is not None:
        holder = overview.holder
        doing = "" if holder.purpose == "training" else f" ({holder.purpose})"
        return f"running{doing}: process {holder.pid} on {holder.host}, since {holder.since}"
    return f"damaged: {overview.fault}" if overview.state is RunState.DAMAGED else overview.state.value
