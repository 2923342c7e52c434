"""`alphazero checkpoint list|verify|prune`: the checkpoints of a run, checked and removed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from alphazero.base.errors import CheckpointError
from alphazero.base.files import resolved
from alphazero.base.text import printable, table
from alphazero.cli.flags import add_number
from alphazero.machine.lock import only_writer
from alphazero.run import checkpoint_files as files
from alphazero.settings.flags import count


def configure(parser: argparse.ArgumentParser) -> None:
    """The three actions."""
    actions = parser.add_subparsers(dest="action", metavar="list|verify|prune", required=True)
    texts = {
        "list": "list the checkpoints; sizes are checked, contents are not read",
        "verify": "read and check every byte; exit status 2 where something is damaged",
        "prune": "remove all but the newest and the best ones",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("path", type=Path, help="a run, its checkpoints directory or one checkpoint")
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "prune":
            add_number(action, "--keep", count, "newest checkpoints to keep", 3)
            action.add_argument(
                "--dry-run", action="store_true", help="list what would be removed, remove nothing"
            )


def run(args: argparse.Namespace) -> int:
    """Do one action."""
    directory, paths = find(args.path)
    if args.action == "prune":
        removed = prune(directory, args.keep, dry_run=args.dry_run)
        if args.json:
            print(json.dumps([path.name for path in removed]))
        else:
            verb = "would remove" if args.dry_run else "removed"
            print("\n".join(f"{verb} {printable(path)}" for path in removed) or "nothing to remove")
        return 0
    marked = files.best_of(directory)
    rows = []
    for path in paths:
        best = [metric for metric, (at, _) in marked.items() if at == path]
        rows.append(describe(path, best, hash_files=args.action == "verify"))
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        print(to_table(rows))
    return CheckpointError.exit_code if any(row["fault"] for row in rows) else 0


def prune(directory: Path, keep: int, *, dry_run: bool) -> list[Path]:
    """files.prune, as the one writer of the run; BusyError where another process writes to it."""
    if dry_run:
        return files.prune(directory, keep, dry_run=True)
    # A run's own lock, however its checkpoints are reached.
    run_directory = resolved(directory)
    if run_directory.name == "checkpoints":
        run_directory = run_directory.parent
    with only_writer(run_directory, "checkpoint prune", lambda text: print(text, file=sys.stderr)):
        return files.prune(directory, keep)


def find(path: Path) -> tuple[Path, list[Path]]:
    """The directory of checkpoints that `path` means, and those of them; CheckpointError if none."""
    if (path / files.MANIFEST).exists():
        return path.parent, [path]
    directory = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    paths = [*files.superseded_in(directory), *files.checkpoints_in(directory)]
    if not paths:
        raise CheckpointError(f"{path}: no checkpoints found; expected a run or its checkpoints directory")
    return directory, paths


def describe(path: Path, best: list[str], *, hash_files: bool) -> dict[str, Any]:
    """One checkpoint as JSON. fault: "" where it is complete. best: metrics by which it is the best."""
    fault = ""
    figures: dict[str, float] = {}
    try:
        files.verify(path, hash_files=hash_files)
        figures = files.figures_of(path)
    except CheckpointError as error:
        fault = str(error)
    contents = [file for file in path.iterdir() if file.is_file()]
    return {
        "name": path.name,
        "step": files.step_of(path),
        "time_s": path.stat().st_mtime,
        "size_bytes": sum(file.stat().st_size for file in contents),
        "figures": figures,
        "best": best,
        "fault": fault,
    }


def to_table(rows: list[dict[str, Any]]) -> str:
    """One line per checkpoint."""
    lines = [("checkpoint", "saved", "MB", "state")]
    for row in rows:
        saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["time_s"]))
        state = ["complete"]
        if "policy_top1" in row["figures"]:
            state.append(f"top-1 {row['figures']['policy_top1']:.2%}")
        if row["best"]:
            state.append(f"best {', '.join(row['best'])}")
        size_mb, fault = f"{row['size_bytes'] / 1e6:.1f}", row["fault"] or "; ".join(state)
        lines.append((row["name"], saved, size_mb, fault))
    return "\n".join(table(lines, "llr"))
