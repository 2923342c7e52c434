"""A search as text and as JSON, and the terminal's style: Unicode or ASCII, with or without colours."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from alphazero.base.text import counted, table
from alphazero.games.drawing import Style
from alphazero.search.snapshot import MoveReport, Snapshot

if TYPE_CHECKING:
    from alphazero.play.net import Evaluation

LONGEST_PV = 10  # moves of a line of play that a row has room for


def value_text(value: float, mate: int | None) -> str:
    """'+0.123', or 'wins in 3' and 'loses in 2' where it is proven."""
    if mate is not None:
        return f"{'wins' if mate > 0 else 'loses'} in {abs(mate)}"
    return f"{value:+.3f}"


def chances_text(wdl: tuple[float, float, float]) -> str:
    """'win 40.1%  draw 30.2%  loss 29.7%'."""
    return "  ".join(f"{name} {share:.1%}" for name, share in zip(("win", "draw", "loss"), wdl, strict=True))


def lines_text(snapshot: Snapshot, count: int) -> list[str]:
    """A row for each of the best `count` moves: visits, chances of the side to move, line of play.

    A move that was not looked at has dashes for its chances.
    """
    rows: list[tuple[str, ...]] = [
        ("move", "visits", "share", "win", "draw", "loss", "value", "line of play")
    ]
    for report in snapshot.moves[:count]:
        chances = [*(f"{chance:.1%}" for chance in report.wdl), value_text(report.q, report.mate)]
        rows.append(
            (
                report.san,
                f"{report.visits:,}",
                f"{report.share:.1%}",
                *(chances if report.is_looked_at else "----"),
                " ".join(report.pv_san[:LONGEST_PV]),
            )
        )
    return [f"  {row}" for row in table(rows, "lrrrrrr")]


def effort_text(snapshot: Snapshot) -> str:
    """'800 visits in 1.2 s, 610 evaluations, depth 5 to 12'."""
    return (
        f"{counted(snapshot.nodes, 'visit')} in {snapshot.seconds:.1f} s, "
        f"{counted(snapshot.evaluations, 'evaluation')}, depth {snapshot.depth} to {snapshot.seldepth}"
    )


def analysis_json(alone: Evaluation, snapshot: Snapshot | None, count: int) -> dict[str, Any]:
    """An analysis: policy, wdl, value, position; moves_left and search where there are any.

    Values and chances are those of the side to move.
    """
    body: dict[str, Any] = {name: getattr(alone, name) for name in ("position", "policy", "wdl", "value")}
    if alone.moves_left is not None:
        body["moves_left"] = alone.moves_left
    if snapshot is not None:
        body["search"] = {
            "nodes": snapshot.nodes,
            "evaluations": snapshot.evaluations,
            "seconds": round(snapshot.seconds, 3),
            "value": snapshot.q,
            "wdl": list(snapshot.wdl),
            "mate": snapshot.mate,
            "lines": [_line_json(report) for report in snapshot.moves[:count]],
        }
    return body


def _line_json(report: MoveReport) -> dict[str, Any]:
    return {
        "move": report.text,
        "san": report.san,
        "visits": report.visits,
        "share": report.share,
        "prior": report.prior,
        "value": report.q if report.is_looked_at else None,
        "wdl": list(report.wdl) if report.is_looked_at else None,
        "mate": report.mate,
        "pv": list(report.pv_texts),
        "pv_san": report.pv_san,
    }


def style_of_terminal(*, ascii_only: bool = False) -> Style:
    """The style for stdout: Unicode as its encoding has it, colours on a terminal without NO_COLOR."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Style(
        unicode=not ascii_only and encoding.startswith("utf"), colours=sys.stdout.isatty() and not is_plain
    )
