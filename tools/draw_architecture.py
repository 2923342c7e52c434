"""Draws the rooms of the package into docs/architecture.md as a Mermaid diagram, from its imports.

python -m tools.draw_architecture            writes the diagram (`make architecture`)
python -m tools.draw_architecture --table    prints files, lines and imports of every folder
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = "alphazero"
MOST_ARROWS = 130
MOST_MODULES = 10  # of a folder, without __init__.py


def read_imports() -> list[tuple[str, str]]:
    """Every pair (importing module, imported module) of the package."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    return [(a, b) for a in sorted(graph.modules) for b in sorted(graph.find_modules_directly_imported_by(a))]


def room_of(module: str) -> str:
    """The room of a module: the folder under the package, or the package itself."""
    parts = module.split(".")
    return parts[1] if (ROOT / PACKAGE / parts[1]).is_dir() else PACKAGE


def arrows_between_rooms() -> Counter[tuple[str, str]]:
    """How many imports lead from one room to another."""
    pairs = [(room_of(a), room_of(b)) for a, b in read_imports() if a.count(".") and b.count(".")]
    return Counter((a, b) for a, b in pairs if a != b and PACKAGE not in (a, b))


def drawn_arrows(arrows: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows that do not follow from others: a to c is left out where a leads to b and b to c."""
    below: dict[str, set[str]] = {}
    direct = {a: [b for c, b in arrows if c == a] for a, _ in arrows}
    try:
        for room in TopologicalSorter(direct).static_order():
            below[room] = set(direct.get(room, ())).union(*(below[b] for b in direct.get(room, ())))
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise SystemExit(
            f"rooms import each other in a circle: {circle}; expected imports down only"
        ) from None
    return sorted((a, b) for a, b in arrows if not any(b in below[c] for c in direct[a] if c != b))


def diagram() -> str:
    """The diagram, fenced, as it stands in the page."""
    lines = [f"  {a} --> {b}" for a, b in drawn_arrows(arrows_between_rooms())]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"])


def folders() -> dict[str, list[Path]]:
    """The modules of every folder of the package, without empty ones."""
    found: dict[str, list[Path]] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        if path.stat().st_size:
            found.setdefault(path.parent.relative_to(ROOT / PACKAGE).as_posix(), []).append(path)
    return found


def table() -> str:
    """A line for each folder: modules, lines, and how many folders it imports and is imported by."""
    arrows = arrows_between_rooms()
    lines = [f"{'folder':<22}{'modules':>8}{'lines':>8}"]
    for folder, paths in folders().items():
        num_lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        lines.append(f"{folder:<22}{len(paths):>8}{num_lines:>8,}")
    rooms = {room for arrow in arrows for room in arrow}
    return "\n".join([*lines, f"{len(rooms)} rooms, {len(arrows)} arrows between them"])


def main() -> None:
    """Write the diagram into the page, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print the folders instead")
    if parser.parse_args().table:
        print(table())
        return
    page = PAGE.read_text(encoding="utf-8")
    drawn = re.sub(r"```mermaid\n.*?```", lambda _: diagram(), page, count=1, flags=re.DOTALL)
    PAGE.write_text(drawn, encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
