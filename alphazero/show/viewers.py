"""Writes a run's figures to TensorBoard and Weights & Biases, as points of curves and as texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from alphazero.base.files import complete_lines
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters, Field, JsonLinesWriter, MetricWriter
from alphazero.settings.load import Config, to_table
from alphazero.show.curves import Curves, Point
from alphazero.show.tensorboard import Setting, TensorBoardViewer
from alphazero.show.weights_and_biases import WandbViewer


class Viewer(Protocol):
    """A program in which people look at a run."""

    def points(self, points: Sequence[Point]) -> None:
        """Show points of curves."""

    def text(self, name: str, step: int, text: str) -> None:
        """Show a text in Markdown."""

    def flush(self) -> None:
        """Write everything to disk."""

    def rewind(self, step: int) -> None:
        """Expect points after `step` once more."""

    def close(self, failed: bool = False) -> None:
        """Flush and release."""


class ViewerWriter:
    """A metric writer for one viewer of curves."""

    def __init__(self, viewer: Viewer, curves: Curves) -> None:
        self._viewer = viewer
        self._curves = curves

    def write(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Show the figures that are curves."""
        if points := self._curves.take(kind, step, figures):
            self._viewer.points(points)

    def event(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Show its fields as a text, a line each."""
        lines = (f"**{name}**: {value}" for name, value in fields.items() if name != "time_s")
        self.note(kind, step, "  \n".join(lines))

    def note(self, name: str, step: int, text: str) -> None:
        """Show a text."""
        self._viewer.text(name, step, text)

    def flush(self) -> None:
        """Have all on disk."""
        self._viewer.flush()

    def rewind(self, step: int) -> None:
        """Expect points after `step` once more."""
        self._curves.rewind(step)
        self._viewer.rewind(step)

    def close(self, failed: bool = False) -> None:
        """Close it."""
        self._viewer.close(failed)


def open_writers(
    run: RunDirectory, config: Config, first_step: int, world_size: int, say: Callable[[str], None]
) -> AllWriters:
    """The writers of rank 0. first_step: of the checkpoint that the run resumes from, else 0."""
    absent = frozenset() if config.network.moves_left else frozenset({"moves_left_loss"})
    earlier = complete_lines(run.metrics) if first_step else []
    writers: list[MetricWriter] = [JsonLinesWriter(run)]
    if config.run.tensorboard:
        board = TensorBoardViewer(run, first_step, shown_settings(config, world_size))
        curves = Curves(absent, hides_zeros=True)
        curves.restore(earlier, first_step)
        writers.append(ViewerWriter(board, curves))
    if config.run.wandb:
        wandb = WandbViewer(run, config.run, to_table(config), say)
        curves = Curves(absent)
        # Points up to their last step were sent.
        unsent = curves.restore(earlier, first_step, after=wandb.last_step)
        wandb.points(sorted(unsent, key=lambda point: point.step))
        writers.append(ViewerWriter(wandb, curves))
    return AllWriters(writers, first_step)


def shown_settings(config: Config, world_size: int) -> dict[str, Setting]:
    """The settings by which runs are compared; config.json of the run has all."""
    network, optimizer, training = config.network, config.optimizer, config.training
    shown: dict[str, Setting] = {
        "game": network.game,
        "mode": config.self_play.mode,
        "body": network.body,
        "blocks": network.blocks,
        "filters": network.filters,
        "se_ratio": network.se_ratio,
        "optimizer": optimizer.optimizer,
        "learning_rate": optimizer.learning_rate,
        "lr_schedule": optimizer.lr_schedule,
        "weight_decay": optimizer.weight_decay,
        "batch_size": training.batch_size,
        "precision": training.precision,
        "ema_decay": training.ema_decay,
        "value_weight": config.loss.value_weight,
        "seed": training.seed,
        "ranks": world_size,
    }
    if config.self_play.mode != "supervised":
        own: dict[str, Any] = {
            "search": config.search.algorithm,
            "simulations": config.search.simulations,
            "lanes": config.self_play.lanes,
            "reuse": config.self_play.reuse,
            "value_q_ratio": config.self_play.value_q_ratio,
        }
        shown |= own
    return shown
