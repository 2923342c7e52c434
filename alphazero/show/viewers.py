"""Opens all writers of a run's figures: its own file, TensorBoard, and what Weights & Biases reads of that.

Training makes this one call and names no writer itself.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters, JsonLinesWriter, MetricWriter
from alphazero.settings.load import Config, to_table
from alphazero.show.tensorboard import Setting, TensorBoardViewer
from alphazero.show.weights_and_biases import start_wandb

SHOWN = (
    *("network.game", "self_play.mode", "network.body", "network.blocks", "network.filters"),
    *("network.se_ratio", "optimizer.optimizer", "optimizer.learning_rate", "optimizer.lr_schedule"),
    *("optimizer.weight_decay", "training.batch_size", "training.precision", "training.ema_decay"),
    *("loss.value_weight", "training.seed"),
)
SHOWN_OF_SELF_PLAY = ("search.simulations", "self_play.lanes", "self_play.reuse", "training.value_q_ratio")


def open_writers(
    run: RunDirectory, config: Config, first_step: int, world_size: int, say: Callable[[str], None]
) -> AllWriters:
    """The writers of rank 0. first_step: of the checkpoint that the run resumes from, else 0."""
    finish = start_wandb(run, config.run, to_table(config), say) if config.run.wandb else None
    writers: list[MetricWriter] = [JsonLinesWriter(run, first_step)]
    if config.run.tensorboard:
        writers.append(TensorBoardViewer(run, first_step, shown_settings(config, world_size)))
    return AllWriters(writers, first_step, finish)


def shown_settings(config: Config, world_size: int) -> dict[str, Setting]:
    """The settings by which runs are compared; config.json of the run has all."""
    shown: dict[str, Setting] = {name.rpartition(".")[2]: attrgetter(name)(config) for name in SHOWN}
    shown["ranks"] = world_size
    if config.self_play.mode != "supervised":
        shown["search"] = config.search.algorithm
        shown |= {name.rpartition(".")[2]: attrgetter(name)(config) for name in SHOWN_OF_SELF_PLAY}
    return shown
