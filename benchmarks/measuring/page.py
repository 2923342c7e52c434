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
    """What `alphazero bench NAME` wrote. Raises ConfigError where it is none of this bench and format."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {reason(error)}; expected the JSON of alphazero bench {bench}") from error
    told = (found.get("bench", bench), found.get("format")) if isinstance(found, dict) else ("", None)
    if told != (bench, format_version):
        raise ConfigError(
            f"{path}: bench {told[0]!r}, format {told[1]!r}: expected the JSON of alphazero bench {bench}, "
            f"format {format_version}"
        )
    return dict(found)


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


def shown(value: object, digits: int = 3) -> str:
    """A number with so many digits that count, `-` where there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(value: object) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %" if isinstance(value, (int, float)) else "-"
