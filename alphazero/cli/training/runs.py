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
        print(json.dumps([one.to_json() for one in runs], indent=1))
    else:
        print(to_table(directory, runs))
    return 0


def to_table(directory: Path, runs: list[RunOverview]) -> str:
    """A line per run, the names first."""
    if not runs:
        return f"{printable(directory)}: no runs found"
    rows = [("run", "network", "step", "best", "state")]
    for one in runs:
        steps = "-" if one.step < 0 else f"{one.step:,}"
        steps += f" of {one.num_steps:,}" if one.step >= 0 and one.num_steps >= 0 else ""
        rows.append((printable(one.path.name), one.network, steps, best_text(one), state_text(one)))
    return "\n".join(table(rows, "llrl"))


def best_text(one: RunOverview) -> str:
    """'policy_top1 41.20% (step 2,000)' for each figure that the row has room for."""
    texts = []
    for name in [name for name in FIGURES if name in one.best][:SHOWN_FIGURES]:
        path, value = one.best[name]
        shown = f"{value:.2%}" if name in SHARES else f"{value:.4g}"
        texts.append(f"{name} {shown} (step {step_of(path):,})")
    return "  ".join(texts)


def state_text(one: RunOverview) -> str:
    """'running: process 12 on gpu1, since ...', 'damaged: ...', or the state alone."""
    if one.state is RunState.RUNNING and one.holder is not None:
        holder = one.holder
        doing = "" if holder.purpose == "training" else f" ({holder.purpose})"
        return f"running{doing}: process {holder.pid} on {holder.host}, since {holder.since}"
    return f"damaged: {one.fault}" if one.state is RunState.DAMAGED else one.state.value
