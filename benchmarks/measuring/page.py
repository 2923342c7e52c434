"""The document of a benchmark as JSON, and the tables made from it, between two marks of a page of docs/."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path, replacing, write_json
from alphazero.base.text import reason

FORMAT = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of a benchmark with a document."""
    parser.add_argument("--out", default="", help="file for the document, rewritten as it grows")
    parser.add_argument("--table", default="", help="measure nothing: write the tables of this document")
    parser.add_argument("--into", default="", help="with --table: put them into this page of docs/")


def document_of(
    bench: str,
    args: argparse.Namespace,
    measured: Iterable[dict[str, Any]],
    text: Callable[[dict[str, Any]], str],
) -> dict[str, Any]:
    """The document that --table names, put into a page by --into; else what is measured, written to --out."""
    if args.into and not args.table:
        raise ConfigError("--into: expected --table FILE with it")
    if args.table:
        document = read_document(given_path(args.table, "--table"), bench)
        if args.into:
            put_into_page(given_path(args.into, "--into"), bench, text(document))
        return document
    out = given_path(args.out, "--out") if args.out else None
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: expected a file in a directory that exists")
    for found in measured:
        document = {"format": FORMAT, **found}
        if out is not None:
            write_json(out, {"bench": bench, **document})
    return document


def read_document(path: Path, bench: str) -> dict[str, Any]:
    """What `alphazero bench NAME` wrote. Raises ConfigError for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {reason(error)}; expected the JSON of alphazero bench {bench}") from error
    if not isinstance(found, dict) or (found.get("bench"), found.get("format")) != (bench, FORMAT):
        raise ConfigError(f"{path}: expected the JSON of alphazero bench {bench}, format {FORMAT}")
    return found


def put_into_page(path: Path, bench: str, text: str) -> None:
    """Replace what stands between the marks of `bench` in a page. Raises ConfigError without such marks."""
    begin, end = f"<!-- bench {bench}: begin -->\n", f"<!-- bench {bench}: end -->"
    try:
        page = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {reason(error)}; expected a page of docs/") from error
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ConfigError(f"{path}: expected the lines {begin.strip()} and {end} around the place of a table")
    with replacing(path) as file:
        file.write(f"{before}{begin}\n{text.strip()}\n\n{end}{after}".encode())


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, `-` where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """A share in percent, `-` where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"
