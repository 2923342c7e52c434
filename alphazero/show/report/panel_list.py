"""Panels of learning: losses, accuracies, the learning rate; exact truth and ratings.

Panels of machines: GPUs while training and while playing, memory and load of the first rank's host.

Panels of the games that a run plays against itself.

Panels of speed: positions a second, and what the wall time goes into.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alphazero.show.report.figures import Column, RunFigures
from alphazero.show.report.panel import Best, Curve, CurvePanel, Figure, Kind, Panel, curve, thin

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


DEVICES_GROUP = "Machines"
NO_GPU = "No GPU took part, or none was watched (--health-interval 0): ranks on a CPU have no such figures."
NO_WATCH = "The host was not watched (--health-interval 0), or the run has only begun."
_GPU = (
    ("utilisation_percent", "gpu_utilisation", "GPU utilisation", "percent"),
    ("memory_used_gib", "gpu_memory", "GPU memory in use", "GiB"),
)
_GPU_IF_KNOWN = (
    ("temperature_c", "gpu_temperature", "GPU temperature", "degrees Celsius"),
    ("power_w", "gpu_power", "GPU power", "W"),
)
_HOST = (
    CurvePanel(
        "host_memory",
        DEVICES_GROUP,
        "Memory of the host",
        "GiB",
        (
            Figure("health", "host/memory_available_gib", "available"),
            Figure("health", "host/swap_used_gib", "swap in use"),
        ),
        NO_WATCH,
        is_from_zero=True,
    ),
    CurvePanel(
        "host_load",
        DEVICES_GROUP,
        "Load of the host",
        "processes",
        (Figure("health", "host/load", "load"),),
        NO_WATCH,
        is_from_zero=True,
    ),
    CurvePanel(
        "disk_free",
        DEVICES_GROUP,
        "Free disk space",
        "GiB",
        (Figure("health", "host/disk_free_gib", "free"),),
        NO_WATCH,
        is_from_zero=True,
    ),
)


def device_panels(runs: Sequence[RunFigures]) -> list[Panel]:
    """GPUs of all hosts, then the host of rank 0."""
    panels = [_gpu_panel(runs, *entry) for entry in _GPU]
    panels += [panel for entry in _GPU_IF_KNOWN if (panel := _gpu_panel(runs, *entry)).marks]
    return panels + [panel.of(runs) for panel in _HOST]


def _gpu_panel(runs: Sequence[RunFigures], figure: str, name: str, title: str, unit: str) -> Panel:
    """The figure of every GPU, a curve each for training and for self-play."""
    curves: list[Curve] = []
    for number, run in enumerate(runs):
        place = 0
        for kind, prefix, while_ in (("gpu", "", ""), ("self_play", "gpu/", " in self-play")):
            lines = run.of(kind)
            for column in sorted(lines.columns):
                if column.startswith(prefix) and column.endswith(f"/{figure}"):
                    device = column[len(prefix) : -len(figure) - 1].replace("/", " ")
                    found = curve(f"{device}{while_}", number, place, run, lines.known(column))
                    curves += [found] if found else []
                    place += 1
    return Panel(name, DEVICES_GROUP, title, unit, tuple(curves), NO_GPU, is_from_zero=True)


SELF_PLAY_GROUP = "Self-play"
NO_GAMES = "This run plays no games of its own: it learns from given ones (--mode supervised)."


def _figure(name: str, label: str) -> Figure:
    return Figure("self_play", name, label)


PANELS = (
    CurvePanel(
        "plies",
        SELF_PLAY_GROUP,
        "Length of games",
        "plies",
        (_figure("plies", "mean of a generation"),),
        NO_GAMES,
    ),
    CurvePanel(
        "results",
        SELF_PLAY_GROUP,
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
        SELF_PLAY_GROUP,
        "Entropy of the policy targets",
        "nats",
        (_figure("policy_entropy", "mean of a generation"),),
        NO_GAMES,
        note="How undecided the search is. A fall to nearly nothing early on: it no longer explores.",
    ),
    CurvePanel(
        "resignations",
        SELF_PLAY_GROUP,
        "Resignations",
        "share",
        (_figure("resigned", "games resigned"), _figure("wrong_resignations", "wrong, of those played on")),
        NO_GAMES,
        note="Some games are played on although one side would have resigned: how often it did not lose.",
        is_share=True,
    ),
    CurvePanel(
        "window",
        SELF_PLAY_GROUP,
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
        return [Panel("plies", SELF_PLAY_GROUP, "Self-play", "", (), NO_GAMES)]
    return [panel.of(runs) for panel in PANELS]


SPEED_GROUP = "Speed"
THROUGHPUT = CurvePanel(
    "throughput",
    SPEED_GROUP,
    "Training throughput",
    "positions/s",
    (Figure("speed", "samples_per_s", "all ranks"), Figure("speed", "samples_per_s_per_rank", "per rank")),
    "No log interval has ended yet.",
    compared=(Figure("speed", "samples_per_s", "all ranks"),),
    note="While training: validation, self-play and checkpoints are left out.",
    is_from_zero=True,
)
PLAYING = CurvePanel(
    "self_play_speed",
    SPEED_GROUP,
    "Self-play throughput",
    "1/s",
    (
        Figure("self_play", "evaluations_per_s", "evaluations"),
        Figure("self_play", "simulations_per_s", "simulations"),
        Figure("self_play", "moves_per_s", "moves"),
    ),
    "This run plays no games of its own.",
    compared=(Figure("self_play", "evaluations_per_s", "evaluations"),),
    is_log=True,
)
PARTS = {
    "compute": "compute",
    "data_wait": "data",
    "communication": "communication",
    "checkpoint": "checkpoint",
    "host_overhead": "host",
}
SELF_PLAY = "self-play"


def speed_panels(runs: Sequence[RunFigures], configs: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Throughput, and the shares of time of each run."""
    shares = [
        _shares(number, run, config, len(runs))
        for number, (run, config) in enumerate(zip(runs, configs, strict=True))
    ]
    is_alone = all(_has_one_rank(run) for run in runs)  # whose curve would hide the other
    throughput = dataclasses.replace(THROUGHPUT, figures=THROUGHPUT.figures[:1]) if is_alone else THROUGHPUT
    return [throughput.of(runs), PLAYING.of(runs), *shares]


def _has_one_rank(run: RunFigures) -> bool:
    lines = run.of("speed")
    return np.array_equal(lines.known("samples_per_s"), lines.known("samples_per_s_per_rank"))


def _shares(number: int, run: RunFigures, config: Mapping[str, Any], num_runs: int) -> Panel:
    """Where the time of one run goes, self-play among it."""
    lines = run.of("time_share")
    training, playing = _seconds(run, lines.step, config)
    parts = {
        label: np.nan_to_num(lines.columns[name]) * training
        for name, label in PARTS.items()
        if lines.has(name)
    }
    step = lines.step
    if parts and np.any(playing):
        parts[SELF_PLAY] = playing
        # Together with the training on its games, else games and training would take turns in the picture.
        begin = np.union1d([0], np.flatnonzero(playing))
        parts = {label: np.add.reduceat(part, begin) for label, part in parts.items()}
        step = step[np.append(begin[1:], len(step)) - 1]
    total = np.maximum(sum(parts.values(), np.zeros(len(step))), 1e-9)
    curves = [
        _mean_curve(label, number, place, run, step, part / total)
        for place, (label, part) in enumerate(parts.items())
    ]
    return Panel(
        f"time_shares_{number}",
        SPEED_GROUP,
        "Where the time goes" + (f": {run.name}" if num_runs > 1 else ""),
        "share",
        tuple(curves),
        "No log interval has ended yet, or the run was made before shares of time were measured.",
        kind=Kind.SHARES,
        note="Means over ranks between log lines, without validation and the time before the first step.",
        is_share=True,
    )


def _mean_curve(label: str, number: int, place: int, run: RunFigures, step: Column, value: Column) -> Curve:
    step, value, _, _ = thin(step, value)
    return Curve(label, number, place, step, run.minutes(step), value)


def _seconds(run: RunFigures, step: Column, config: Mapping[str, Any]) -> tuple[Column, Column]:
    """Seconds of training and of self-play before each of these log lines; (1, 0) where not known."""
    speed_step, speed = run.of("speed").known("samples_per_s")
    played_step, played_s = run.of("self_play").known("seconds")
    batch_size = (config.get("training") or {}).get("batch_size")
    if not len(played_step) or not len(speed_step) or not isinstance(batch_size, int):
        return np.ones(len(step)), np.zeros(len(step))
    before = np.concatenate([[0.0], step[:-1]])
    at = np.clip(np.searchsorted(speed_step, step), 0, len(speed_step) - 1)
    training = (step - before) * batch_size / np.maximum(speed[at], 1e-9)
    # A generation of step s is played before step s + 1: it belongs to the first log line after s.
    line = np.searchsorted(step, played_step, side="right")
    playing = np.bincount(line, weights=played_s, minlength=len(step) + 1)[: len(step)]
    return training, playing.astype(np.float64)
