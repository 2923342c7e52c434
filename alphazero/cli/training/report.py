"""`alphazero report`: one run, or several side by side, as a page or JSON."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path

from alphazero.base.errors import ConfigError, DataError
from alphazero.base.files import replacing
from alphazero.run.directory import RunDirectory
from alphazero.show.report.page import json_of, page_of
from alphazero.show.report.report import RunReport, build

SUFFIXES = (".html", ".json")
LONGEST_NAME = 200  # bytes
REFRESH_S = 5.0
# Making a report takes at most this part of the time, however long the run is.
BUSY_SHARE = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="runs, as runs/connect4, or a directory of runs"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"file to write, by its ending: {', '.join(SUFFIXES)} (default: report.html in RUN; "
        "of several, report-ONE-TWO.html beside the first)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON: the data of the page")
    form.add_argument(
        "--watch",
        action="store_true",
        help="keep the page up to date until Ctrl-C: a browser that shows it reloads it",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report and print its place, or print its data."""
    if args.json and args.out is not None:
        raise ConfigError(f"--out {args.out}: --json writes no file")
    out = args.out or _default_out(args.runs)
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"--out {out}: expected a name that ends in {', '.join(SUFFIXES)}")
    args.runs = _runs_of(args.runs)
    if args.watch:
        return _watch(args.runs, out)
    report = build(args.runs)
    if args.json:
        print(json_of(report))
        return 0
    _write(report, out)
    print(out)
    return 0


def _default_out(given: list[Path]) -> Path:
    """Each set of runs has a separate file: a comparison does not replace the page of one run."""
    if len(given) == 1:
        return given[0] / "report.html"
    names = "-".join(path.resolve().name for path in given)
    beside = given[0].parent if given[0].name not in ("", "..") else given[0].resolve().parent
    return beside / (os.fsdecode(os.fsencode(f"report-{names}")[:LONGEST_NAME]) + ".html")


def _runs_of(given: list[Path]) -> list[Path]:
    """The runs behind paths: a directory stands for the runs in it that have figures."""
    runs = []
    for path in given:
        inside: list[Path] = []
        if path.is_dir() and not RunDirectory(path).metrics.exists():
            with contextlib.suppress(OSError):  # the report names what it cannot read
                inside = sorted(below for below in path.iterdir() if RunDirectory(below).metrics.exists())
        runs += inside or [path]
    return list({path.resolve(): path for path in runs}.values())


def _write(report: RunReport, out: Path, watch_s: float = 0.0) -> None:
    """Raises ConfigError where the file cannot be written."""
    try:
        with replacing(out) as file:
            content = json_of(report) + "\n" if out.suffix == ".json" else page_of(report, watch_s)
            file.write(content.encode())
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror}") from error


def _watch(runs: list[Path], out: Path) -> int:
    """Write the page again and again until Ctrl-C; the last one is not reloaded any more."""
    began, report = time.monotonic(), build(runs)
    _write(report, out, REFRESH_S)
    print(f"{out}  (a page that reloads itself; Ctrl-C ends it)", flush=True)
    try:
        while True:
            time.sleep(max(REFRESH_S, (time.monotonic() - began) / BUSY_SHARE))
            began = time.monotonic()
            with contextlib.suppress(DataError):  # a run that is removed or started again
                report = build(runs)
                _write(report, out, REFRESH_S)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        _write(report, out)
    return 0
