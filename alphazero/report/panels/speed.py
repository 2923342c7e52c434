"""Panels of speed: positions a second, and what the wall time goes into."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alphazero.report.panels.curves import CurvePanel, Figure
from alphazero.report.panels.figures import Column, RunFigures
from alphazero.report.panels.panel import Curve, Kind, Panel, thin

GROUP = "Speed"
THROUGHPUT = CurvePanel(
    "throughput",
    GROUP,
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
    GROUP,
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
        GROUP,
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
