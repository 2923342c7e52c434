"""Where figures go: metrics.jsonl, TensorBoard, Weights & Biases. Rank 0 only."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from alphazero.config import RunConfig
from alphazero.errors import ConfigError
from alphazero.files import cut_unfinished_line
from alphazero.run.run_directory import RunDirectory

# Of an event: text for people, or a number.
Field = str | float

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class MetricWriter(Protocol):
    """Takes figures of one step; docs/metrics.md lists the kinds and their figures."""

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Record `figures`."""

    def event(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Record something that happened, told in text as well as in figures."""

    def close(self) -> None:
        """Flush and release."""


class JsonLinesWriter:
    """One JSON object a line; floats keep all their digits."""

    def __init__(self, run: RunDirectory) -> None:
        # Else the first line written now would end the one that a killed run began.
        cut_unfinished_line(run.metrics)
        self._file = run.metrics.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Append one line."""
        self._append({"kind": kind, "step": step, **figures})

    def event(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Append one line."""
        self._append({"kind": kind, "step": step, **fields})

    def _append(self, line: Mapping[str, Field]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardWriter:
    """Scalars named kind/figure."""

    def __init__(self, run: RunDirectory, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Points a resumed run makes again are hidden by purge_step.
        self._writer: SummaryWriter = SummaryWriter(str(run.tensorboard), purge_step=first_step)

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Add one point a figure."""
        for name, value in figures.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def event(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Add a text of Markdown: a field a line."""
        lines = (f"**{name}**: {value}" for name, value in fields.items() if name != "time_s")
        self._writer.add_text(kind, "  \n".join(lines), step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbWriter:
    """Weights & Biases, resumed under the run's own name."""

    def __init__(self, run: RunDirectory, config: RunConfig, settings: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("--wandb: the package is not installed; expected pip install wandb") from error
        self._run: Any = wandb.init(
            project=config.wandb_project,
            entity=config.wandb_team or None,
            group=config.wandb_group or None,
            name=run.path.name,
            id=run.path.name,
            resume="allow",
            config=dict(settings),
        )

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Log one step."""
        self._run.log({f"{kind}/{name}": value for name, value in figures.items()}, step=step)

    def event(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Log the fields."""
        self._run.log({f"{kind}/{name}": value for name, value in fields.items()}, step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class AllWriters:
    """The writers a run asked for, as one; any thread may call."""

    def __init__(self, writers: list[MetricWriter], first_step: int = 0) -> None:
        self._writers = writers
        self._step = first_step
        self._lock = threading.Lock()

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Pass on to each."""
        with self._lock:
            self._step = max(self._step, step)  # epochs are counted apart
            for writer in self._writers:
                writer.write(kind, step, figures)

    def write_beside(self, kind: str, figures: Mapping[str, float]) -> None:
        """Figures of no step of their own go to the step that was written last; none after close."""
        with self._lock:
            for writer in self._writers:
                writer.write(kind, self._step, figures)

    def event(self, kind: str, fields: Mapping[str, Field]) -> None:
        """Record what happened now, at the step that was written last; any thread may call, none after close.

        fields: text and numbers. `time_s` is put in where it is not given: seconds of the wall clock.
        """
        with self._lock:
            timed = {"time_s": round(time.time(), 3), **fields}
            for writer in self._writers:
                writer.event(kind, self._step, timed)

    def close(self) -> None:
        """Close each."""
        with self._lock:
            writers, self._writers = self._writers, []
            for writer in writers:
                writer.close()


def open_writers(
    run: RunDirectory, config: RunConfig, settings: Mapping[str, Any], first_step: int
) -> AllWriters:
    """The writers of rank 0. settings: all of the run's, by section."""
    writers: list[MetricWriter] = [JsonLinesWriter(run)]
    if config.tensorboard:
        writers.append(TensorBoardWriter(run, first_step))
    if config.wandb:
        writers.append(WandbWriter(run, config, settings))
    return AllWriters(writers, first_step)
