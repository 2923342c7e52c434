"""What the terminal can show: Unicode or ASCII, colours or none; and the flags that say otherwise."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from alphazero.games.drawing import Style


def add_screen_flags(parser: argparse.ArgumentParser) -> None:
    """--ascii and --color."""
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII letters alone")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set (default: auto)",
    )


def style_of(
    args: argparse.Namespace, stream: TextIO | None = None, environment: Mapping[str, str] = os.environ
) -> Style:
    """How to draw on `stream`, by default stdout."""
    stream = stream or sys.stdout
    encoding = (getattr(stream, "encoding", "") or "").lower().replace("-", "")
    shows_colours = stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Style(
        unicode=not args.ascii and encoding.startswith("utf"),
        colours=args.color == "always" or (args.color == "auto" and shows_colours),
    )
