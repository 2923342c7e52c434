"""`alphazero report`: plots of one run, or of several side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from alphazero.errors import ConfigError

SUFFIXES = (".png", ".svg", ".pdf")


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories, as runs/connect4")
    parser.add_argument(
        "--out", type=Path, help="file to draw: .png, .svg or .pdf (default: report.png in the first run)"
    )


def run(args: argparse.Namespace) -> int:
    """Draw, and say where."""
    out = args.out or args.runs[0] / "report.png"
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"--out {out}: expected a name that ends in {', '.join(SUFFIXES)}")

    from alphazero.files import replacing
    from alphazero.report.curves import RunFigures, draw
    from alphazero.run.run_directory import RunDirectory

    figure = draw([RunFigures.read(RunDirectory(path)) for path in args.runs])
    with replacing(out) as file:
        figure.savefig(file, format=out.suffix[1:], dpi=110)
    print(out)
    return 0
