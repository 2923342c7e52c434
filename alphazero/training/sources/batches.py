"""Training batches to iterate over: the positions of stores, drawn in the order that training has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy.typing as npt
import torch

from alphazero.base.errors import ConfigError
from alphazero.data.open import Store, open_store
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.value_curve import curve_of
from alphazero.data.sampling.window import Window
from alphazero.games.batch import Batch
from alphazero.games.registry import GameSpec, get_spec
from alphazero.machine.memory import count_processors
from alphazero.network.model.planes import dense_target, expand_planes, legal_mask, to_device

# Shapes: B positions, C x H x W input planes, A policy indices.

Array = TypeVar("Array", npt.NDArray[Any], torch.Tensor)


@dataclass(frozen=True)
class TrainingBatch(Generic[Array]):
    """B positions as the network sees them and what is to be learned, all for the side to move.

    planes: float32 [B, C, H, W]. policy: float32 [B, A], the target's share of each move, which sum to 1.
    legal: bool [B, A]. wdl: float32 [B, 3], target of win, draw, loss. moves_left: float32 [B], plies to the
    end of the game. sample_id: int64 [B], the position's number among those of the data.
    """

    planes: Array
    policy: Array
    legal: Array
    wdl: Array
    moves_left: Array
    sample_id: Array

    def __len__(self) -> int:
        return len(self.sample_id)


class Batches:
    """The batches of one pass over the data, or of so many steps; iterating again gives the same ones.

    Step s holds what step s of a training run with this seed and batch size holds. len() counts steps.
    """

    def __init__(
        self,
        *data: Store | str | Path,
        batch_size: int = 256,
        seed: int = 0,
        first_step: int = 0,
        steps: int | None = None,
        as_torch: bool = False,
        num_threads: int = 0,
        value_q_ratio: float = 0.0,
    ) -> None:
        """data: stores, or what open_store takes. steps: by default as many as a pass over the data has.

        as_torch: tensors on the CPU instead of numpy arrays. num_threads: that encode positions, 0 for one
        per core. value_q_ratio: share of the search's value in `wdl`, or else of that of evaluations in
        comments, by the curve of these games. Raises ConfigError and DataError.
        """
        if not data:
            raise ConfigError("Batches: no data; expected stores or paths")
        if batch_size < 1 or first_step < 0 or (steps is not None and steps < 0):
            raise ConfigError(
                f"Batches: batch_size {batch_size}, first_step {first_step}, steps {steps}: "
                "expected at least 1, 0 and 0"
            )
        stores = [source if isinstance(source, Store) else open_store(source) for source in data]
        window = Window.of_stores([store.store for store in stores])
        self.spec: GameSpec = get_spec(window.game_name)
        self.num_positions = window.num_samples
        self._steps = max(1, window.num_samples // batch_size) if steps is None else steps
        self._first_step, self._as_torch = first_step, as_torch
        window_curve = curve_of(window) if value_q_ratio > 0 else None
        self._loader = Loader(
            window,
            self.spec,
            seed=seed,
            batch_size=batch_size,
            micro_batch_size=batch_size,
            num_threads=num_threads or count_processors(),
            value_q_ratio=value_q_ratio,
            curve=window_curve.curve if window_curve else None,
        )

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[TrainingBatch[Any]]:
        for (micro_batch,) in self._loader.iterate(self._first_step, self._first_step + self._steps):
            batch = dense(micro_batch.batch, self.spec)
            arrays = (getattr(batch, entry.name) for entry in fields(batch))
            yield batch if self._as_torch else TrainingBatch(*(array.numpy() for array in arrays))


def dense(batch: Batch, spec: GameSpec) -> TrainingBatch[torch.Tensor]:
    """A loader's batch with planes in full and a policy over all indices."""
    whole = to_device(batch, torch.device("cpu"))
    return TrainingBatch(
        planes=expand_planes(whole.packed_BN, spec).contiguous(),
        policy=dense_target(whole, spec.policy_size),
        legal=legal_mask(whole, spec.policy_size),
        wdl=torch.as_tensor(batch.wdl),
        moves_left=torch.as_tensor(batch.moves_left),
        sample_id=torch.as_tensor(batch.sample_id),
    )
