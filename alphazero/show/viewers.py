"""Writes a run's figures to TensorBoard and Weights & Biases, as points of curves and as texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alphazero.base.files import complete_lines
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters, JsonLinesWriter, MetricWriter
from alphazero.settings.load import Config, to_table
from alphazero.show.curves import Curves
from alphazero.show.tensorboard import Setting, TensorBoardViewer
from alphazero.show.weights_and_biases import WandbViewer


def open_writers(
    run: RunDirectory, config: Config, first_step: int, world_size: int, say: Callable[[str], None]
) -> AllWriters:
    """The writers of rank 0. first_step: of the checkpoint that the run resumes from, else 0."""
    absent = frozenset() if config.network.moves_left else frozenset({"moves_left_loss"})
    earlier = complete_lines(run.metrics) if first_step else []
    writers: list[MetricWriter] = [JsonLinesWriter(run)]
    if config.run.tensorboard:
        curves = Curves(absent, hides_zeros=True)
        curves.restore(earlier, first_step)
        writers.append(TensorBoardViewer(run, first_step, shown_settings(config, world_size), curves))
    if config.run.wandb:
        curves = Curves(absent)
        wandb = WandbViewer(run, config.run, to_table(config), curves, say)
        # Points up to their last step were sent.
        unsent = curves.restore(earlier, first_step, after=wandb.last_step)
        wandb.points(sorted(unsent, key=lambda point: point.step))
        writers.append(wandb)
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
