"""The loader of a rank, from the settings and the plan."""

from __future__ import annotations

import torch

from alphazero.config import DataConfig
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Mixture, Window
from alphazero.games.spec import GameSpec
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.runtime import Runtime


def make_loader(
    window: Window,
    spec: GameSpec,
    plan: BatchPlan,
    runtime: Runtime,
    data: DataConfig,
    seed: int,
    *,
    value_q_ratio: float = 0.0,
    curve: ValueCurve | None = None,
    mixture: Mixture | None = None,
) -> Loader:
    """This rank's micro-batches of a window. value_q_ratio, curve, mixture: as Loader has them."""
    return Loader(
        window,
        spec,
        seed=seed,
        batch_size=plan.batch_size,
        micro_batch_size=plan.micro_batch_size,
        passes=plan.passes_of(runtime.rank),
        num_threads=loader_threads(data, runtime),
        history_fill=data.history_fill,
        symmetries=data.mirror if spec.name == "chess" else data.symmetries,
        value_q_ratio=value_q_ratio,
        curve=curve,
        mixture=mixture,
    )


def loader_threads(data: DataConfig, runtime: Runtime) -> int:
    """Threads that encode positions: as asked, else one per rank on a CPU, a share of the cores on a GPU."""
    if data.num_workers >= 0:
        return max(1, data.num_workers)
    if runtime.device.type == "cpu":
        return 1
    return max(1, min(8, torch.get_num_threads() // 2))
