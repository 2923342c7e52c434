"""TensorBoard: curves, settings with final figures, and texts of a run; each point once after resumes.

The event files are in the run's directory, because TensorBoard names a run by the directory of its events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import Field, MetricWriter
from alphazero.show.curves import GROUPS, SELF_PLAY, TRAIN, VALIDATION, points_of

Setting = str | bool | int | float

FLUSH_S = 10  # until a point is on disk where no checkpoint asks for it earlier
# TensorBoard sorts groups by name and offers no other order in its first tab, so a number leads each name.
NUMBERED = {group: f"{number}_{group}" for number, group in enumerate(GROUPS, start=1)}
FINAL_FIGURES = (
    (VALIDATION, "policy_top1"),
    (VALIDATION, "policy_loss"),
    (VALIDATION, "value_loss"),
    (VALIDATION, "move_error"),
    (TRAIN, "policy_loss"),
    (TRAIN, "value_loss"),
    (SELF_PLAY, "games"),
)


class TensorBoardViewer(MetricWriter):
    """Writes event files; a start hides the points that will be repeated.

    Of several points of a curve at one step the first is shown. A curve begins in each start with its first
    value other than zero, so that what is always zero has no curve.
    """

    def __init__(self, run: RunDirectory, first_step: int, settings: Mapping[str, Setting]) -> None:
        """first_step: of the checkpoint that the run resumes from, else 0."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        # Points after the checkpoint are repeated, so they are hidden; without one, all are.
        kept = first_step + 1 if first_step else 0
        self._shown_before = kept - 1
        self._last_steps: dict[str, int] = {}  # by curve, of the newest point
        writer: Any = SummaryWriter
        self._writer = writer(str(run.path), purge_step=kept, flush_secs=FLUSH_S)
        self._file = self._writer.file_writer
        # The row of this run among the hyper-parameters; its figures are the last points of curves.
        figures = {f"{NUMBERED[group]}/{name}": 0.0 for group, name in FINAL_FIGURES}
        *beginning, self._end = hparams(dict(settings), figures)  # type: ignore[no-untyped-call]
        for summary in beginning:
            self._file.add_summary(summary, 0)  # always at step 0, so that no resume hides it

    def write(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Add the figures that are curves; an event is a text, a line for each field."""
        figures = {name: value for name, value in fields.items() if not isinstance(value, str)}
        if len(figures) < len(fields):
            lines = (f"**{name}**: {value}" for name, value in fields.items() if name != "time_s")
            self._writer.add_text(kind, "  \n".join(lines), step)
            return
        for point in points_of(kind, step, figures):
            name = f"{NUMBERED[point.group]}/{point.name}"
            if point.step <= self._last_steps.get(name, self._shown_before):
                continue
            if point.value or name in self._last_steps:
                self._last_steps[name] = point.step
                self._writer.add_scalar(name, point.value, point.step)

    def flush(self) -> None:
        """Write everything to disk."""
        self._writer.flush()

    def rewind(self, step: int) -> None:
        """Hide the points after `step`, which are expected once more."""
        self._last_steps = {name: min(last, step) for name, last in self._last_steps.items()}
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        log = SessionLog(status=SessionLog.START)
        self._file.add_event(Event(step=step + 1, session_log=log))

    def close(self, failed: bool = False) -> None:
        """Flush and close. TensorBoard keeps the first end it reads, and a failed run may be resumed."""
        if not failed:
            self._file.add_summary(self._end, 0)
        self._writer.close()
