"""Opens all writers of a run's figures: its own file, TensorBoard, and what Weights & Biases reads of that.

Training makes this one call and names no writer itself.
"""

from __future__ import annotations

from collections.abc import Callable

from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters, JsonLinesWriter, MetricWriter
from alphazero.settings.load import Config, to_table
from alphazero.show.tensorboard import TensorBoardViewer, events_directory
from alphazero.show.weights_and_biases import start_wandb


def open_writers(
    run: RunDirectory, config: Config, first_step: int, say: Callable[[str], None]
) -> AllWriters:
    """The writers of rank 0. first_step: of the checkpoint that the run resumes from, else 0."""
    finish = start_wandb(run, config.run, to_table(config), say) if config.run.wandb else None
    writers: list[MetricWriter] = [JsonLinesWriter(run, first_step)]
    if config.run.tensorboard:
        writers.append(TensorBoardViewer(events_directory(run, config.run), first_step))
    return AllWriters(writers, first_step, finish)
