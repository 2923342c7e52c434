"""The page of `alphazero play --browser`: the report's board, with controls for a game."""

from __future__ import annotations

import json
from collections.abc import Sequence

from alphazero.search.tree_search import SearchLimits
from alphazero.show.report.page import asset, html_page

SHARED = ("dom.js", "boards.js")
WATCH = "watch"  # no side: both are played by networks


def play_page(
    game: str,
    networks: Sequence[str],
    side: str,
    limits: SearchLimits,
    start: str | None = None,
    moves: Sequence[str] = (),
) -> bytes:
    """The page for networks of these names. side: the person's, first or second, or WATCH."""
    effort = {"simulations": limits.nodes} if limits.seconds is None else {"seconds": limits.seconds}
    about = {
        "game": game,
        "networks": list(networks),
        "side": side,
        "effort": effort,
        "start": start,
        "moves": list(moves),
    }
    own = "alphazero.show.play_page"
    page = html_page(
        f"{' - '.join(networks)} - alphazero play",
        json.dumps(about),
        f"{asset('style.css')}\n{asset('play.css', own)}",
        (*(asset(name) for name in SHARED), asset("play.js", own)),
        connects=True,
    )
    return page.encode()
