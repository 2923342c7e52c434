"""The panels of a report in the order of the page; those among them that are no curves by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from alphazero.run.figures import Column, RunFigures
from alphazero.show.report.calibration import calibration_panels
from alphazero.show.report.overview import ReadRun
from alphazero.show.report.panel import Mark, Panel, curve, curve_mark, table_panels, thin

NO_RATINGS = (
    "No checkpoint has been rated: `alphazero rate RUN --checkpoints` plays games against the ladder of "
    "opponents and keeps the ratings in the run."
)
NO_GAMES = "This run plays no games: it learns from given ones (--mode supervised)."
NO_GPU = "No GPU took part, or none was watched (--health-interval 0): ranks on a CPU have no such figures."
NO_TIMES = "No log interval has ended yet, or the run was made before shares of time were measured."
# The figure, the panel's name, title and unit; and whether it is left out where no GPU has the figure.
GPU_PANELS = (
    ("utilisation_percent", "gpu_utilisation", "GPU utilisation", "percent", False),
    ("memory_used_gib", "gpu_memory", "GPU memory in use", "GiB", False),
    ("temperature_c", "gpu_temperature", "GPU temperature", "degrees Celsius", True),
    ("power_w", "gpu_power", "GPU power", "W", True),
)
# What the wall time of training goes into, by its figure.
TIMES = {
    "compute": "compute",
    "data_wait": "data",
    "communication": "communication",
    "checkpoint": "checkpoint",
    "host_overhead": "host",
}


def all_panels(runs: Sequence[ReadRun]) -> list[Panel]:
    """The panels of several runs."""
    figures = [run.figures for run in runs]
    return [
        *table_panels("Learning", figures),
        *calibration_panels(runs),
        *table_panels("Strength", figures),
        rating_panel(runs),
        *self_play_panels(figures),
        *speed_panels(runs),
        *gpu_panels(figures),
        *table_panels("Machines", figures),
    ]


def rating_panel(runs: Sequence[ReadRun]) -> Panel:
    """Elo over checkpoints."""
    marks = []
    for number, run in enumerate(runs):
        if run.ratings:
            step = np.array(sorted(run.ratings), np.float64)
            elo, low, high = np.array([run.ratings[int(checkpoint)] for checkpoint in step]).T
            marks.append(curve_mark("Elo", number, 0, step, run.figures.minutes(step), elo, low, high))
    note = "On the ladder's own scale; the band is the 95 % interval."
    return Panel("elo", "Strength", "Elo over checkpoints", "Elo", marks, NO_RATINGS, note=note)


def self_play_panels(runs: Sequence[RunFigures]) -> list[Panel]:
    """Lengths, results, entropy, resignations, the window; one empty panel where no run plays games."""
    if not any(len(run.of("self_play").step) for run in runs):
        return [Panel("plies", "Self-play", "Self-play", "", [], NO_GAMES)]
    return table_panels("Self-play", runs)


def gpu_panels(runs: Sequence[RunFigures]) -> list[Panel]:
    """A panel for each figure, with a curve for every GPU in training and one in self-play."""
    panels = []
    for figure, name, title, unit, is_optional in GPU_PANELS:
        marks: list[Mark] = []
        for number, run in enumerate(runs):
            slot = 0
            for kind, prefix, when in (("gpu", "", ""), ("self_play", "gpu/", " in self-play")):
                lines = run.of(kind)
                for column in sorted(lines.columns):
                    if column.startswith(prefix) and column.endswith(f"/{figure}"):
                        device = column[len(prefix) : -len(figure) - 1].replace("/", " ")
                        marks += curve(f"{device}{when}", number, slot, run, lines.known(column))
                        slot += 1
        if marks or not is_optional:
            panels.append(Panel(name, "Machines", title, unit, marks, NO_GPU, from_zero=True))
    return panels


def speed_panels(runs: Sequence[ReadRun]) -> list[Panel]:
    """Throughput, and the shares of time of each run."""
    throughput, *others = table_panels("Speed", [run.figures for run in runs])
    of_speed = [run.figures.of("speed") for run in runs]
    if all(
        np.array_equal(lines.known("samples_per_s"), lines.known("samples_per_s_per_rank"))
        for lines in of_speed
    ):  # one rank, whose curve would hide the other
        marks = [mark for mark in throughput.marks if mark["place"] == 0]
        throughput = dataclasses.replace(throughput, marks=marks)
    return [throughput, *others, *(_time_shares(number, run, len(runs)) for number, run in enumerate(runs))]


def _time_shares(number: int, run: ReadRun, num_runs: int) -> Panel:
    """Where the time of one run goes, self-play among it."""
    lines = run.figures.of("time_share")
    training, playing = _seconds(run, lines.step)
    parts = {
        label: np.nan_to_num(lines.columns[name]) * training
        for name, label in TIMES.items()
        if len(lines.known(name)[0])
    }
    step = lines.step
    if parts and np.any(playing):
        parts["self-play"] = playing
        # Together with the training on its games, else games and training would take turns in the picture.
        begin = np.union1d([0], np.flatnonzero(playing))
        parts = {label: np.add.reduceat(part, begin) for label, part in parts.items()}
        step = step[np.append(begin[1:], len(step)) - 1]
    total = np.maximum(sum(parts.values(), np.zeros(len(step))), 1e-9)
    marks = []
    for slot, (label, part) in enumerate(parts.items()):
        at, share, _, _ = thin(step, part / total)
        marks.append(curve_mark(label, number, slot, at, run.figures.minutes(at), share))
    title = "Where the time goes" + (f": {run.figures.name}" if num_runs > 1 else "")
    note = "Means over ranks between log lines, without validation and the time before the first step."
    return Panel(
        f"time_shares_{number}", "Speed", title, "share", marks, NO_TIMES, "shares", note, share=True
    )


def _seconds(run: ReadRun, step: Column) -> tuple[Column, Column]:
    """Seconds of training and of self-play before each of these log lines; (1, 0) where not known."""
    speed_step, speed = run.figures.of("speed").known("samples_per_s")
    played_step, played_s = run.figures.of("self_play").known("seconds")
    if not len(played_step) or not len(speed_step) or not run.batch_size:
        return np.ones(len(step)), np.zeros(len(step))
    before = np.concatenate([[0.0], step[:-1]])
    at = np.clip(np.searchsorted(speed_step, step), 0, len(speed_step) - 1)
    training = (step - before) * run.batch_size / np.maximum(speed[at], 1e-9)
    # A generation of step s is played before step s + 1: it belongs to the first log line after s.
    line = np.searchsorted(step, played_step, side="right")
    playing = np.bincount(line, weights=played_s, minlength=len(step) + 1)[: len(step)]
    return training, playing.astype(np.float64)
