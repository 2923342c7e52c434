"""The picture of the code as SVG: plain shapes and text, no script."""

from __future__ import annotations

import math
from html import escape
from itertools import cycle

from alphazero.base.text import counted
from tools.architecture.house import CORE_BOX, House
from tools.architecture.layered_drawing import Arrow, Box, LayeredDrawing
from tools.architecture.rooms import Room

WIDTH, MARGIN, CHANNEL = 2150.0, 16.0, 72.0
ROOM_WIDTH, ROOM_HEIGHT = 138.0, 46.0
FILE_HEIGHT, FILE_CHANNEL = 46.0, 10.0
# Within a box of rooms: its heading, the space around, the gaps between rooms and between their rows.
HEADING, PADDING, GAP, INNER_CHANNEL = 32.0, 12.0, 26.0, 32.0
ARROW_HEAD = 8.0
# One color a box, in order; dark enough for lines on white.
COLORS = (
    "#7a808c", "#b4452f", "#8d6b14", "#2f6db4", "#3f8a4a", "#8a4a9e", "#b03a6f", "#1f8a8a",
    "#c0731a", "#5a5fc0", "#6b8e23", "#a0522d", "#4682a0", "#7b4f7b", "#556070", "#556070",
)  # fmt: skip
STYLE = (
    "text{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#1f2430;text-anchor:middle}"
    ".name{font-size:15px;font-weight:bold}.size{font-size:12px;fill:#4a5160}.arrow{fill:none}"
)


def draw(house: House) -> str:
    """The whole picture."""
    folders = [row for row in house.rows if not set(row) & set(house.imported_by)]
    colors = dict(zip((name for row in folders for name in row), cycle(COLORS), strict=False))
    inner = {name: InnerDrawing(part, colors[name]) for name, part in house.within.items()}
    rows = [[outer_box(name, inner) for name in row] for row in folders]
    drawing = LayeredDrawing(rows, house.arrows, MARGIN, MARGIN + 8, WIDTH - 2 * MARGIN, CHANNEL)

    body = [band(top, bottom) for top, bottom in drawing.bands]
    body += arrows_of(drawing, colors)
    for box in drawing.boxes.values():
        color = colors[box.name]
        if box.name in inner:
            body.append(group(box, color, heading(box, house.within[box.name]) + inner[box.name].at(box)))
        else:
            body.append(group(box, color, caption(box, house.rooms[box.name], box.name)))
    top = drawing.bottom + 40
    body += file_row(house.imported_by, top)
    height = top + FILE_HEIGHT + MARGIN + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" '
        f'height="{height:.0f}">\n<title>Rooms of the code, and what imports what</title>\n'
        f'<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


class InnerDrawing:
    """The rooms within a box, drawn from its upper left corner."""

    def __init__(self, rooms: House, color: str) -> None:
        rows = [[Box(name, room_width(name), ROOM_HEIGHT) for name in row] for row in rooms.rows]
        # Ways at both sides for arrows that pass a row.
        self.width = max(sum(box.width for box in row) + GAP * (len(row) + 1) for row in rows)
        drawing = LayeredDrawing(rows, rooms.arrows, 0, HEADING, self.width, INNER_CHANNEL)
        self.height = drawing.bottom + PADDING
        parts = arrows_of(drawing, dict.fromkeys(drawing.boxes, color))
        for box in drawing.boxes.values():
            parts.append(group(box, color, caption(box, rooms.rooms[box.name], box.name.partition("/")[2])))
        self.parts = "\n".join(parts)

    def at(self, box: Box) -> str:
        """The drawing, moved into its box."""
        return f'<g transform="translate({box.left:.1f} {box.top:.1f})">\n{self.parts}\n</g>'


def outer_box(name: str, inner: dict[str, InnerDrawing]) -> Box:
    """A box of the outer drawing, as large as what is in it."""
    if name in inner:
        return Box(name, inner[name].width, inner[name].height)
    return Box(name, room_width(name), ROOM_HEIGHT)


def room_width(name: str) -> float:
    """Wide enough for the name, which is set in bold 15 px."""
    return max(ROOM_WIDTH, 9.8 * len(name.partition("/")[2] or name) + 20)


def band(top: float, bottom: float) -> str:
    """The floor that boxes stand on."""
    return (
        f'<rect x="{MARGIN / 2}" y="{top - 8:.1f}" width="{WIDTH - MARGIN}" '
        f'height="{bottom - top + 16:.1f}" rx="8" fill="#f4f6f9"/>'
    )


def group(box: Box, color: str, content: str) -> str:
    """A box with what is in it."""
    return (
        f'<g data-room="{escape(box.name)}"><rect x="{box.left:.1f}" y="{box.top:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" rx="6" fill="#ffffff" stroke="{color}" '
        f'stroke-width="1.6"/>\n{content}</g>'
    )


def caption(box: Box, room: Room, name: str) -> str:
    """Name and size of a room, in the middle of its box."""
    return text(box.middle, box.top + 20, "name", name) + text(box.middle, box.top + 37, "size", size(room))


def heading(box: Box, rooms: House) -> str:
    """Name and size of a box of rooms, at its top."""
    whole = Room(
        box.name,
        sum(room.num_files for room in rooms.rooms.values()),
        sum(room.num_lines for room in rooms.rooms.values()),
    )
    name = "_core (csrc, C++)" if box.name == CORE_BOX else box.name
    return (
        f'<text x="{box.middle:.1f}" y="{box.top + 21:.1f}"><tspan class="name">{escape(name)}</tspan>'
        f'<tspan class="size" dx="8">{size(whole)}</tspan></text>\n'
    )


def size(room: Room) -> str:
    """'6 files, 812 lines'."""
    return f"{counted(room.num_files, 'file')}, {counted(room.num_lines, 'line')}"


def text(x: float, y: float, css: str, words: str) -> str:
    """A line of text around `x`."""
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>\n'


def arrows_of(drawing: LayeredDrawing, colors: dict[str, str]) -> list[str]:
    """The arrows of a drawing, in the color of where they begin and as thick as their count says."""
    parts = []
    for route in drawing.routes:
        arrow, color = route.arrow, colors[route.arrow.source]
        x, tip, wide = route.xs[-1], drawing.boxes[arrow.target].top, thickness(arrow)
        half = 3 + wide / 2
        parts.append(
            f'<g class="link" data-from="{escape(arrow.source)}" data-to="{escape(arrow.target)}" '
            f'data-count="{arrow.count}"><title>{escape(arrow.source)} imports {escape(arrow.target)}: '
            f'{arrow.count}</title><path class="arrow" stroke="{color}" stroke-opacity="0.75" '
            f'stroke-width="{wide:.1f}" d="{drawing.path(route, ARROW_HEAD)}"/><path fill="{color}" '
            f'd="M{x - half:.1f} {tip - ARROW_HEAD - 1:.1f}h{2 * half:.1f}L{x:.1f} {tip:.1f}z"/></g>'
        )
    return parts


def thickness(arrow: Arrow) -> float:
    """1.2 px for one import, 5 px for 36."""
    return 0.6 + 0.7 * math.sqrt(arrow.count)


def file_row(imported_by: dict[str, int], top: float) -> list[str]:
    """The files that everything stands on, from the upper to the lowest, in one row."""
    width = (WIDTH - 2 * MARGIN - GAP * (len(imported_by) - 1)) / len(imported_by)
    parts = [
        text(
            WIDTH / 2,
            top - 14,
            "size",
            "Below them all, with the arrows left out: files that any room may import",
        )
    ]
    for number, (name, count) in enumerate(imported_by.items()):
        box = Box(name, width, FILE_HEIGHT, MARGIN + number * (width + GAP), top)
        words = text(box.middle, box.top + 19, "name", f"{name}.py") + text(
            box.middle, box.top + 36, "size", f"imported by {counted(count, 'file')}"
        )
        parts.append(group(box, "#556070", words))
    return parts
