"""Panels of the games that a run plays against itself."""

from __future__ import annotations

from collections.abc import Sequence

from alphazero.report.panels.curves import CurvePanel, Figure
from alphazero.report.panels.figures import RunFigures
from alphazero.report.panels.panel import Panel

GROUP = "Self-play"
NO_GAMES = "This run plays no games of its own: it learns from given ones (--mode supervised)."


def _figure(name: str, label: str) -> Figure:
    return Figure("self_play", name, label)


PANELS = (
    CurvePanel(
        "plies", GROUP, "Length of games", "plies", (_figure("plies", "mean of a generation"),), NO_GAMES
    ),
    CurvePanel(
        "results",
        GROUP,
        "Results",
        "share",
        (
            _figure("first_player_wins", "first player wins"),
            _figure("draws", "drawn"),
            _figure("too_long", "cut off as too long"),
        ),
        NO_GAMES,
        compared=(_figure("first_player_wins", "first player wins"), _figure("draws", "drawn")),
        note="The rest is won by the second player.",
        is_share=True,
    ),
    CurvePanel(
        "policy_entropy",
        GROUP,
        "Entropy of the policy targets",
        "nats",
        (_figure("policy_entropy", "mean of a generation"),),
        NO_GAMES,
        note="How undecided the search is. A fall to nearly nothing early on: it no longer explores.",
    ),
    CurvePanel(
        "resignations",
        GROUP,
        "Resignations",
        "share",
        (_figure("resigned", "games resigned"), _figure("wrong_resignations", "wrong, of those played on")),
        NO_GAMES,
        note="Some games are played on although one side would have resigned: how often it did not lose.",
        is_share=True,
    ),
    CurvePanel(
        "window",
        GROUP,
        "Positions trained on",
        "positions",
        (_figure("window_positions", "in the window"), _figure("positions", "new in a generation")),
        NO_GAMES,
        compared=(_figure("window_positions", "in the window"),),
    ),
)


def self_play_panels(runs: Sequence[RunFigures]) -> list[Panel]:
    """Lengths, results, entropy, resignations, the window; none of them where no run plays games."""
    if not any(len(run.of("self_play").step) for run in runs):
        return [Panel("plies", GROUP, "Self-play", "", (), NO_GAMES)]
    return [panel.of(runs) for panel in PANELS]
