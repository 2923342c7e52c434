"""A layered drawing: boxes in rows, and arrows that lead down from row to row without crossing a box.

Each arrow passes the rows between its ends through the gaps between their boxes. The order of the boxes in
each row is chosen for few crossings, by trying all orders of one row after the other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise, permutations

LANE_PX = 7.0  # between arrows that share a gap
PORT_PX = 15.0  # at most, between the ends of arrows at a box
# One crossing costs as much as this much horizontal travel.
CROSSING_PX = 60.0


@dataclass
class Box:
    """A rectangle with a name; its place is set by the layout."""

    name: str
    width: float
    height: float
    left: float = 0.0
    top: float = 0.0

    @property
    def middle(self) -> float:
        """The x in the middle."""
        return self.left + self.width / 2

    @property
    def right(self) -> float:
        """The x at the right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The y at the lower edge."""
        return self.top + self.height


@dataclass(frozen=True)
class Arrow:
    """From a box to one in a lower row, for so many imports."""

    source: str
    target: str
    count: int


@dataclass
class Route:
    """The path of an arrow: an x for its start, for each row that it passes, and for its end."""

    arrow: Arrow
    rows: range  # from the row of its start to that of its end
    xs: list[float] = field(default_factory=list)


class LayeredDrawing:
    """Rows of boxes between `left` and `left + width`, from `top` down."""

    def __init__(
        self,
        rows: list[list[Box]],
        arrows: list[Arrow],
        left: float,
        top: float,
        width: float,
        channel: float,
    ) -> None:
        self.rows, self.left, self.width = rows, left, width
        self._order_rows(arrows)
        self.bands: list[tuple[float, float]] = []  # top and bottom of each row
        for row in self.rows:
            height = max(box.height for box in row)
            for box in row:
                box.top = top + (height - box.height) / 2
            self.bands.append((top, top + height))
            top += height + channel
        self.bottom = self.bands[-1][1]
        self.boxes = {box.name: box for row in self.rows for box in row}
        self.routes = self._routes(arrows)

    def path(self, route: Route, head_px: float) -> str:
        """The path of an arrow as SVG path data; it ends `head_px` above its target."""
        y = self.boxes[route.arrow.source].bottom
        parts = [f"M{route.xs[0]:.1f} {y:.1f}"]
        steps = list(zip(route.rows, route.xs, strict=True))
        for (upper, from_x), (lower, to_x) in pairwise(steps):
            start, end = self.bands[upper][1], self.bands[lower][0]
            half = (start + end) / 2
            parts.append(f"V{start:.1f}C{from_x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {end:.1f}")
        parts.append(f"V{self.boxes[route.arrow.target].top - head_px:.1f}")
        return "".join(parts)

    def _order_rows(self, arrows: list[Arrow]) -> None:
        """Try the orders of one row after the other, until no row gets better."""
        best = self._cost(arrows)
        improved = True
        while improved:
            improved = False
            for index, row in enumerate(self.rows):
                for order in permutations(row):
                    before, self.rows[index] = self.rows[index], list(order)
                    cost = self._cost(arrows)
                    if cost < best - 1e-6:
                        best, improved = cost, True
                    else:
                        self.rows[index] = before
        self._place_in_rows()

    def _place_in_rows(self) -> None:
        """Spread the boxes of each row over the width, with equal gaps."""
        for row in self.rows:
            gap = (self.width - sum(box.width for box in row)) / (len(row) + 1)
            x = self.left + gap
            for box in row:
                box.left = x
                x += box.width + gap

    def _cost(self, arrows: list[Arrow]) -> float:
        """Horizontal travel and crossings of the arrows, with the boxes in their present order."""
        self._place_in_rows()
        self.boxes = {box.name: box for row in self.rows for box in row}
        channels: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for route in self._routes(arrows):
            for row, ends in zip(route.rows, pairwise(route.xs), strict=False):
                channels[row].append(ends)
        crossings = sum(
            (a[0] - b[0]) * (a[1] - b[1]) < 0
            for ends in channels.values()
            for i, a in enumerate(ends)
            for b in ends[:i]
        )
        return CROSSING_PX * crossings + sum(abs(a - b) for ends in channels.values() for a, b in ends)

    def _routes(self, arrows: list[Arrow]) -> list[Route]:
        """A route for every arrow: through the gaps first, then its ends along the edges of its boxes."""
        row_of = {box.name: index for index, row in enumerate(self.rows) for box in row}
        routes = []
        for arrow in arrows:
            first, last = row_of[arrow.source], row_of[arrow.target]
            if first >= last:
                raise SystemExit(
                    f"{arrow.source} imports {arrow.target}; expected imports to point down only"
                )
            start, end = self.boxes[arrow.source].middle, self.boxes[arrow.target].middle
            steps = range(last - first + 1)
            straight = [start + (end - start) * step / (last - first) for step in steps]
            passed = [self._nearest_gap(first + step, straight[step]) for step in steps[1:-1]]
            routes.append(Route(arrow, range(first, last + 1), [start, *passed, end]))
        self._spread_in_gaps(routes)
        self._spread_ends(routes)
        return routes

    def _gaps(self, row: int) -> list[tuple[float, float]]:
        """The free stretches of a row, from left to right."""
        boxes = self.rows[row]
        edges = [self.left, *(x for box in boxes for x in (box.left, box.right)), self.left + self.width]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def _nearest_gap(self, row: int, x: float) -> float:
        """The free x of a row that is nearest to `x`."""
        free = [min(max(x, low + LANE_PX), high - LANE_PX) for low, high in self._gaps(row)]
        return min(free, key=lambda place: abs(place - x))

    def _spread_in_gaps(self, routes: list[Route]) -> None:
        """Give each arrow that shares a gap its own lane, in the order of where they go."""
        sharing: dict[tuple[int, int], list[tuple[Route, int]]] = defaultdict(list)
        for route in routes:
            for step in range(1, len(route.xs) - 1):
                row = route.rows[step]
                gap = next(
                    i for i, (low, high) in enumerate(self._gaps(row)) if low <= route.xs[step] <= high
                )
                sharing[row, gap].append((route, step))
        for (row, gap), passing in sharing.items():
            low, high = self._gaps(row)[gap]
            passing.sort(key=lambda item: (item[0].xs[item[1] - 1] + item[0].xs[item[1] + 1], item[1]))
            lane = min(LANE_PX, (high - low) / (len(passing) + 1))
            middle = sum(route.xs[step] for route, step in passing) / len(passing)
            half = lane * (len(passing) - 1) / 2
            middle = min(max(middle, low + lane + half), high - lane - half)
            for number, (route, step) in enumerate(passing):
                route.xs[step] = middle - half + lane * number

    def _spread_ends(self, routes: list[Route]) -> None:
        """Spread the arrows that leave a box along its lower edge, those that come along its upper one."""
        for end, neighbour in ((0, 1), (-1, -2)):
            by_box: dict[str, list[Route]] = defaultdict(list)
            for route in routes:
                by_box[route.arrow.source if end == 0 else route.arrow.target].append(route)
            for name, meeting in by_box.items():
                box = self.boxes[name]
                meeting.sort(key=lambda route: route.xs[neighbour])
                port = min(PORT_PX, box.width / (len(meeting) + 1))
                for number, route in enumerate(meeting):
                    route.xs[end] = box.middle + port * (number - (len(meeting) - 1) / 2)
