"""The checkpoint of a moment of training, in memory of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alphazero.config import to_table
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint.checkpoint import Checkpoint, Tensors, TrainingState
from alphazero.training.loop.data_source import SourceState
from alphazero.training.loop.job import Job
from alphazero.training.loop.position import Position


def snapshot(
    state: TrainingState,
    weights: Tensors,
    optimizer: Tensors,
    averaged: Tensors | None,
    source: SourceState,
) -> Checkpoint:
    """A checkpoint that training does not change as it goes on."""
    return Checkpoint(
        state,
        _copies(weights),
        _copies(optimizer),
        averaged and _copies(averaged),
        source.lanes,
        source.champion,
    )


def training_state(
    job: Job,
    plan: BatchPlan,
    position: Position,
    source: SourceState,
    *,
    loss_scale: dict[str, float],
    elapsed_s: float,
    figures: Mapping[str, float],
) -> TrainingState:
    """All but the tensors. elapsed_s: of the whole run; figures: of the validation at this step, if any."""
    training = job.config.training
    return TrainingState(
        step=position.step,
        num_steps=job.num_steps,
        seed=training.seed,
        batch_size=job.batch_size,
        micro_batch_size=plan.micro_batch_size,
        window_id=source.window_id,
        world_size=plan.world_size,
        config=to_table(job.config),
        zero_stage=training.zero_stage,
        precision=training.precision,
        data_offset=position.data_offset,
        skipped_steps=position.skipped_steps,
        loss_scale=loss_scale,
        elapsed_s=elapsed_s,
        figures=dict(figures),
        self_play=source.self_play,
        num_threads=torch.get_num_threads(),
    )


def _copies(tensors: Tensors) -> Tensors:
    """The same on the same device in memory of their own: training changes the originals."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
