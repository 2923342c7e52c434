"""Panels of learning: losses, accuracies, the learning rate; exact truth and ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alphazero.report.panels.curves import CurvePanel, Figure
from alphazero.report.panels.figures import RunFigures
from alphazero.report.panels.panel import Best, Curve, Panel

GROUP = "Learning"
STRENGTH = "Strength"
NO_STEPS = "No step has been logged yet."
CLASSES = ("end-easy", "middle-easy", "middle-medium", "begin-easy", "begin-medium", "begin-hard")


def _both(figure: str, best: Best) -> tuple[Figure, ...]:
    return Figure("step", figure, "training", is_noisy=True), Figure("validation", figure, "validation", best)


LEARNING = (
    CurvePanel(
        "policy_loss",
        GROUP,
        "Policy loss",
        "nats",
        _both("policy_loss", Best.LOWEST),
        NO_STEPS,
        note="Cross-entropy of the moves. Lower is better.",
        is_log=True,
    ),
    CurvePanel(
        "value_loss",
        GROUP,
        "Value loss",
        "nats",
        _both("value_loss", Best.LOWEST),
        NO_STEPS,
        note="Cross-entropy of win, draw and loss. Validation rising while training falls is overfitting.",
        is_log=True,
    ),
    CurvePanel(
        "accuracy",
        GROUP,
        "Moves predicted",
        "share",
        (
            Figure("step", "policy_top1", "training, first move", is_noisy=True),
            Figure("validation", "policy_top1", "validation, first move", Best.HIGHEST),
            Figure("validation", "policy_top5", "validation, first five", Best.HIGHEST),
        ),
        NO_STEPS,
        compared=_both("policy_top1", Best.HIGHEST),
        note="How often the target's move is the network's first, or among its first five.",
        is_share=True,
    ),
    CurvePanel(
        "value_mse",
        GROUP,
        "Value error",
        "(W - L - result) squared",
        _both("value_mse", Best.LOWEST),
        NO_STEPS,
        note="Mean squared error of the value; always saying 'even' would cost 1 where no game is drawn.",
        is_log=True,
    ),
    CurvePanel(
        "learning_rate",
        GROUP,
        "Learning rate",
        "per step",
        (Figure("step", "learning_rate", "learning rate"),),
        NO_STEPS,
        is_log=True,
    ),
)
# Drawn only where a run has them: most have not, and miss nothing.
OCCASIONAL = (
    CurvePanel(
        "moves_left_loss",
        GROUP,
        "Moves-left loss",
        "Huber loss",
        _both("moves_left_loss", Best.LOWEST),
        "",
        is_log=True,
    ),
    CurvePanel(
        "loss_scale",
        GROUP,
        "Loss scale (fp16)",
        "",
        (Figure("step", "loss_scale", "scale"),),
        "",
        is_log=True,
    ),
)
EXACT_TRUTH = CurvePanel(
    "exact_truth",
    STRENGTH,
    "Moves that err against exact truth",
    "share",
    tuple(
        Figure("validation", f"move_error_{name.replace('-', '_')}", name, Best.LOWEST) for name in CLASSES
    ),
    "Exact truth is known of Connect Four alone, and measured at each validation of a run that plays it.",
    compared=(Figure("validation", "move_error", "all classes", Best.LOWEST),),
    note="The network's first move, without a search, on positions that the solver knows.",
    is_share=True,
)


@dataclass(frozen=True)
class Rating:
    """The Elo of a checkpoint with its 95 % interval."""

    step: int
    elo: float
    low: float
    high: float


def learning_panels(runs: Sequence[RunFigures]) -> list[Panel]:
    """Losses, accuracies and the rate."""
    panels = [entry.of(runs) for entry in LEARNING]
    for entry in OCCASIONAL:
        panel = entry.of(runs)
        if any(isinstance(mark, Curve) and np.any(mark.value) for mark in panel.marks):
            panels.append(panel)
    return panels


def rating_panel(runs: Sequence[RunFigures], ratings: Sequence[Sequence[Rating]]) -> Panel:
    """Elo over checkpoints. ratings: of each run, by step."""
    curves = []
    for number, (run, rated) in enumerate(zip(runs, ratings, strict=True)):
        if rated:
            step, elo, low, high = np.array([[one.step, one.elo, one.low, one.high] for one in rated]).T
            curves.append(Curve("Elo", number, 0, step, run.minutes(step), elo, low, high))
    return Panel(
        "elo",
        STRENGTH,
        "Elo over checkpoints",
        "Elo",
        tuple(curves),
        "No checkpoint has been rated: `alphazero rate --checkpoints RUN` plays games against the ladder of "
        "known opponents (chess only) and keeps the ratings in the run.",
        note="On the ladder's own scale; the band is the 95 % interval.",
    )
