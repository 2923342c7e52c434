"""A measured table within a page of docs/, between two marks; and the JSON that it is made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.files import replacing
from alphazero.base.text import reason


def read_document(path: Path, bench: str, format_version: int) -> dict[str, Any]:
    """What `alphazero bench NAME` wrote. Raises ConfigError for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {reason(error)}; expected the JSON of alphazero bench {bench}") from error
    if not isinstance(found, dict) or (found.get("bench"), found.get("format")) != (bench, format_version):
        raise ConfigError(f"{path}: expected the JSON of alphazero bench {bench}, format {format_version}")
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
