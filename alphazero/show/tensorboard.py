"""TensorBoard: curves, settings with final figures, and texts of a run; each point once after resumes.

The event files are in the run's directory, because TensorBoard names a run by the directory of its events.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import Field, MetricWriter
from alphazero.show.curves import GROUPS, SELF_PLAY, TRAIN, VALIDATION, Curves

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

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
# Python's type of a setting -> the plugin's name for it, and the field of a value that holds it.
_HPARAM_KINDS = {
    bool: ("DATA_TYPE_BOOL", "bool_value"),
    int: ("DATA_TYPE_FLOAT64", "number_value"),
    float: ("DATA_TYPE_FLOAT64", "number_value"),
    str: ("DATA_TYPE_STRING", "string_value"),
}


class TensorBoardViewer(MetricWriter):
    """Writes event files; a start hides the points that will be repeated."""

    def __init__(
        self, run: RunDirectory, first_step: int, settings: Mapping[str, Setting], curves: Curves
    ) -> None:
        """first_step: of the checkpoint that the run resumes from, else 0."""
        from torch.utils.tensorboard import SummaryWriter

        self._curves = curves
        # Points after the checkpoint are repeated, so they are hidden; without one, all are.
        kept = first_step + 1 if first_step else 0
        self._writer: SummaryWriter = SummaryWriter(str(run.path), purge_step=kept, flush_secs=FLUSH_S)
        self._file: Any = self._writer.file_writer
        self._add_settings(settings)

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures that are curves."""
        for point in self._curves.take(kind, step, figures):
            self._writer.add_scalar(f"{NUMBERED[point.group]}/{point.name}", point.value, point.step)

    def event(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Show its fields as a text, a line each."""
        lines = (f"**{name}**: {value}" for name, value in fields.items() if name != "time_s")
        self._writer.add_text(kind, "  \n".join(lines), step)

    def flush(self) -> None:
        """Write everything to disk."""
        self._writer.flush()

    def rewind(self, step: int) -> None:
        """Hide the points after `step`, which are expected once more."""
        self._curves.rewind(step)
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        log = SessionLog(status=SessionLog.START)
        self._file.add_event(Event(step=step + 1, session_log=log))

    def close(self, failed: bool = False) -> None:
        """Flush and close. TensorBoard keeps the first end it reads, and a failed run may be resumed."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        if not failed:
            status = api_pb2.STATUS_SUCCESS
            end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
            self._add_hparams(metadata.SESSION_END_INFO_TAG, session_end_info=end)
        self._writer.close()

    def _add_settings(self, settings: Mapping[str, Setting]) -> None:
        """The row of this run among the hyper-parameters; its figures are the last points of curves."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        start = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
        infos = []
        for name, value in settings.items():
            kind, place = _HPARAM_KINDS[type(value)]
            infos.append(api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(kind)))
            setattr(start.hparams[name], place, value)
        figures = [
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(tag=f"{NUMBERED[group]}/{name}"), display_name=f"{group} {name}"
            )
            for group, name in FINAL_FIGURES
        ]
        experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=figures)
        self._add_hparams(metadata.EXPERIMENT_TAG, experiment=experiment)
        self._add_hparams(metadata.SESSION_START_INFO_TAG, session_start_info=start)

    def _add_hparams(self, tag: str, **content: object) -> None:
        """Write a message of the plugin, always at step 0, so that no resume hides it."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2

        described = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(**content))
        value = Summary.Value(tag=tag, metadata=described, tensor=metadata.NULL_TENSOR)
        self._file.add_summary(Summary(value=[value]), 0)
