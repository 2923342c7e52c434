"""Draws docs/images/architecture.svg from the imports, or prints the rooms as a table.

python -m tools.draw_architecture                            (`make architecture`)
python -m tools.draw_architecture --table [--root CHECKOUT]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.architecture.house import read_house
from tools.architecture.rooms import Rooms, read_rooms
from tools.architecture.svg import draw

PICTURE = Path("docs/images/architecture.svg")


def table(read: Rooms) -> str:
    """A line for each room: files, lines, and the arrows that leave it and lead to it."""
    lines = [
        f"{'room':<22}{'files':>6}{'lines':>8}{'out':>5}{'in':>5}   (rooms it imports; rooms that import it)"
    ]
    for name, room in read.rooms.items():
        out = sum(source == name for source, _ in read.arrows)
        into = sum(target == name for _, target in read.arrows)
        lines.append(f"{name:<22}{room.num_files:>6}{room.num_lines:>8,}{out:>5}{into:>5}")
    files = sum(room.num_files for room in read.rooms.values())
    total = sum(room.num_lines for room in read.rooms.values())
    lines.append(f"{f'{len(read.rooms)} rooms':<22}{files:>6}{total:>8,}   {len(read.arrows)} arrows")
    return "\n".join(lines)


def main() -> None:
    """Draw, or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[1],
        help="the checkout (default: this one)",
    )
    parser.add_argument("--table", action="store_true", help="print the rooms instead of drawing them")
    parser.add_argument("--out", type=Path, help=f"file to draw (default: {PICTURE} of the checkout)")
    args = parser.parse_args()
    if args.table:
        print(table(read_rooms(args.root)))
        return
    out = args.out or args.root / PICTURE
    out.write_text(draw(read_house(args.root)), encoding="utf-8")
    print(out)


if __name__ == "__main__":
    main()
