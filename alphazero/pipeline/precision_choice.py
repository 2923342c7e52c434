"""Which precision `--precision auto` is."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import torch

from alphazero.config import TrainingConfig
from alphazero.network.precision import fast_precisions
from alphazero.training.exchange import Exchange


def choose_precision(
    training: TrainingConfig, switched_off: Collection[str], device: torch.device, exchange: Exchange
) -> tuple[TrainingConfig, tuple[str, ...]]:
    """`auto` becomes the fastest precision of all ranks' devices that is not switched off. Collective.

    switched_off: by ds_config.json. Also gives lines for the banner.
    """
    if training.precision != "auto":
        return training, ()
    by_rank = exchange.gather(fast_precisions(device))
    common = [name for name in by_rank[0] if all(name in names for names in by_rank)]
    allowed = [name for name in common if name not in switched_off]
    chosen = dataclasses.replace(training, precision=allowed[0])
    notices: tuple[str, ...] = ()
    if "bf16" not in common:
        notices = (f"a device of this job has no fast bf16: training in {chosen.precision}",)
    return chosen, notices
