"""TensorBoard: curves and texts of a run; each point once after resumes.

The event files are in a directory with the run's name, because TensorBoard names a run by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import Field, MetricWriter
from alphazero.settings.sections import RunConfig

FLUSH_S = 10  # until a point is on disk where no checkpoint asks for it earlier
# What the name of a curve begins with, by the kind of its figures. TensorBoard sorts groups by name and has
# no other order in its first tab, so a number leads each name.
PREFIXES = {
    "step": "1_train/",
    "epoch": "1_train/epoch_",
    "validation": "2_validation/",
    "self_play": "3_selfplay/",
    "speed": "4_speed/",
    "time_share": "4_speed/share_of_time/",
    "gpu": "5_system/",
    "health": "5_system/",
}
# Of a generation: the devices while it was played.
GPU_PREFIX, GPUS_OF_SELF_PLAY = "gpu/", "5_system/selfplay_"
# Names and axes rather than figures.
NO_CURVES = {"sample_id_sum", "slowest_rank", "generation", "minutes", "num_positions", "ended_in_step"}


def points_of(kind: str, step: int, figures: Mapping[str, float]) -> Iterator[tuple[str, int, float]]:
    """Curve, step and value of the figures that are curves; metrics.jsonl has every figure (docs/runs.md).

    An epoch stands at the step that ended it, not at its number. A generation stands at the first step that
    trains on it: a run that resumes from the checkpoint of `step` plays it again, and a point at `step`
    could not be distinguished from those before that checkpoint.
    """
    if kind not in PREFIXES:
        return
    at = step + 1 if kind == "self_play" else step
    if kind == "epoch":
        at = int(figures.get("ended_in_step", step))
    for name, value in figures.items():
        if kind == "self_play" and name.startswith(GPU_PREFIX):
            yield GPUS_OF_SELF_PLAY + name.removeprefix(GPU_PREFIX), at, value
        elif name not in NO_CURVES:
            yield PREFIXES[kind] + name, at, value


def events_directory(run: RunDirectory, config: RunConfig) -> Path:
    """Where the run's event files are: in its own directory, or in the one of its name in tensorboard_dir."""
    return Path(config.tensorboard_dir) / run.path.name if config.tensorboard_dir else run.path


class TensorBoardViewer(MetricWriter):
    """Writes event files; a start hides the points that will be repeated.

    Of several points of a curve at one step the first is shown. A curve begins in each start with its first
    value other than zero, so that what is always zero has no curve.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        """first_step: of the checkpoint that the run resumes from, else 0."""
        from torch.utils.tensorboard import SummaryWriter

        # Points after the checkpoint are repeated, so they are hidden; without one, all are.
        kept = first_step + 1 if first_step else 0
        self._shown_before = kept - 1
        self._last_steps: dict[str, int] = {}  # by curve, of the newest point
        writer: Any = SummaryWriter
        self._writer = writer(str(directory), purge_step=kept, flush_secs=FLUSH_S)

    def write(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Add the figures that are curves; an event is a text, a line for each field."""
        figures = {name: value for name, value in fields.items() if not isinstance(value, str)}
        if len(figures) < len(fields):
            lines = (f"**{name}**: {value}" for name, value in fields.items() if name != "time_s")
            self._writer.add_text(kind, "  \n".join(lines), step)
            return
        for name, at, value in points_of(kind, step, figures):
            if at > self._last_steps.get(name, self._shown_before) and (value or name in self._last_steps):
                self._last_steps[name] = at
                self._writer.add_scalar(name, value, at)

    def flush(self) -> None:
        """Write everything to disk."""
        self._writer.flush()

    def rewind(self, step: int) -> None:
        """Hide the points after `step`, which are expected once more."""
        self._last_steps = {name: min(last, step) for name, last in self._last_steps.items()}
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        log = SessionLog(status=SessionLog.START)
        self._writer.file_writer.add_event(Event(step=step + 1, session_log=log))

    def close(self, failed: bool = False) -> None:
        """Flush and close."""
        self._writer.close()
