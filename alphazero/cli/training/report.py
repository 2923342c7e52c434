"""`alphazero report`: one run, or several side by side, as a page, a picture or JSON."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.files import replacing, resolved
from alphazero.cli.flags import add_number
from alphazero.run.directory import RunDirectory
from alphazero.settings.flags import whole
from alphazero.show.report.page import ReportServer, json_of, page_of
from alphazero.show.report.picture import save
from alphazero.show.report.report import RunReport, build

PICTURES = (".png", ".svg", ".pdf")
SUFFIXES = (".html", *PICTURES, ".json")
LONGEST_NAME = 200  # bytes


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
    form.add_argument("--png", action="store_true", help="a picture instead of a page (report.png)")
    form.add_argument("--json", action="store_true", help="print JSON: the data of the page")
    form.add_argument(
        "--watch",
        action="store_true",
        help="serve the page on this machine (127.0.0.1) and keep it up to date, until Ctrl-C",
    )
    add_number(parser, "--port", whole(0, 65535), "of --watch (default: a free one)", 0)


def run(args: argparse.Namespace) -> int:
    """Write, print or serve the report; prints its place."""
    if (args.json or args.watch) and args.out is not None:
        raise ConfigError(f"--out {args.out}: --{'json' if args.json else 'watch'} writes no file")
    if args.port and not args.watch:
        raise ConfigError(f"--port {args.port}: only with --watch")
    out = args.out or _default_out(args.runs, ".png" if args.png else ".html")
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"--out {out}: expected a name that ends in {', '.join(SUFFIXES)}")
    if args.png and out.suffix not in PICTURES:
        raise ConfigError(
            f"--out {out}: --png makes a picture; expected a name that ends in {', '.join(PICTURES)}"
        )
    args.runs = _runs_of(args.runs)
    if args.watch:
        return _watch(args)
    report = build(args.runs)
    if args.json:
        print(json_of(report))
        return 0
    _write(report, out)
    print(out)
    return 0


def _default_out(given: list[Path], suffix: str) -> Path:
    """Each set of runs has a separate file: a comparison does not replace the page of one run."""
    if len(given) == 1:
        return given[0] / f"report{suffix}"
    names = "-".join(resolved(path).name for path in given)
    beside = given[0].parent if given[0].name not in ("", "..") else resolved(given[0]).parent
    return beside / (os.fsdecode(os.fsencode(f"report-{names}")[:LONGEST_NAME]) + suffix)


def _runs_of(given: list[Path]) -> list[Path]:
    """The runs behind paths: a directory stands for the runs in it that have figures."""
    runs = []
    for path in given:
        inside: list[Path] = []
        if path.is_dir() and not RunDirectory(path).metrics.exists():
            with contextlib.suppress(OSError):  # the report names what it cannot read
                inside = sorted(below for below in path.iterdir() if RunDirectory(below).metrics.exists())
        runs += inside or [path]
    return list({resolved(path): path for path in runs}.values())


def _write(report: RunReport, out: Path) -> None:
    """Raises ConfigError where the file cannot be written."""
    try:
        with replacing(out) as file:
            if out.suffix in PICTURES:
                save(report, file, out.suffix[1:])
            else:
                content = json_of(report) + "\n" if out.suffix == ".json" else page_of(report)
                file.write(content.encode())
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror}") from error


def _watch(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    with ReportServer(lambda: build(args.runs), args.port) as server:
        server.serve()
    return 0
