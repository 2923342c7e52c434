"""Batches, as `alphazero launch` looks at them before ranks start: how many CPU ranks suit, what idles."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.cluster.plan.launch_plan import ClusterPlan
from alphazero.config import Config
from alphazero.errors import CheckpointError, ConfigError
from alphazero.training.batch.batch_numbers import SavedBatch, batch_over, fix_batch, implied_ranks

if TYPE_CHECKING:
    from alphazero.cluster.plan.cpu_ranks import CpuRanks


def cpu_ranks_for(num_cores: int, config: Config, *, fresh_start: bool) -> CpuRanks:
    """How many ranks this machine gets where it has no GPU and nobody gave a number."""
    from alphazero.cluster.plan.cpu_ranks import CpuRanks, choose_cpu_ranks
    from alphazero.host.memory import HostMemory
    from alphazero.training.batch_plan import LEAST_MICRO_BATCH, plan_batches

    saved = _saved(config, fresh_start=fresh_start)
    implied = 0 if saved else implied_ranks(config)
    if 0 < implied <= num_cores:
        return CpuRanks(implied, "as many as batch, micro-batch and accumulation ask for")

    def ranks_at_work(num_ranks: int) -> float:
        try:
            fixed, _ = fix_batch(config, num_ranks, saved)
            micro = _micro_batch_size(fixed, saved)
            plan = plan_batches(fixed.training.batch_size, micro, [1.0] * num_ranks, "cpu")
        except ConfigError:  # no such plan; where there is none at all, the trainer says why
            return 0.0
        return num_ranks * (1 - plan.idle_share)

    batch_size = saved.batch_size if saved else batch_over(config, num_cores)
    named = _micro_batch_size(config, saved)
    least = LEAST_MICRO_BATCH["cpu"]
    least = min(least, named) if named > 0 else least
    available = HostMemory().check().available_bytes
    return choose_cpu_ranks(num_cores, batch_size, least, config.network, available, ranks_at_work)


def _saved(config: Config, *, fresh_start: bool) -> SavedBatch | None:
    """The batch of the run that goes on; None where one begins, or its checkpoints cannot be read."""
    from alphazero.training.checkpoint.files import STATE, checkpoints_in, read_json

    if fresh_start:
        return None
    run = Path(config.run.runs_dir) / (config.run.run_name or config.preset or "run")
    for path in reversed(checkpoints_in(run / "checkpoints")):
        with contextlib.suppress(CheckpointError):
            state = read_json(path / STATE)
            batch, micro = state.get("batch_size"), state.get("micro_batch_size")
            if type(batch) is int and type(micro) is int and min(batch, micro) > 0:
                return SavedBatch(batch, micro)
    return None


def _micro_batch_size(config: Config, saved: SavedBatch | None) -> int:
    """The micro-batch that was named, else that of the run that goes on; 0 or AUTO where none is chosen."""
    named = config.training.micro_batch_size
    if named > 0 or saved is None or saved.batch_size != config.training.batch_size:
        return named
    return saved.micro_batch_size


def check_batches(
    plan: ClusterPlan, config: Config, places: Mapping[str, str], *, fresh_start: bool
) -> tuple[str, ...]:
    """Batch arithmetic: a slip is one line here, not one per rank after seconds; a line about idle ranks."""
    from alphazero.training.batch_plan import idle_notice, plan_batches

    ranks = [host.num_processes for host in plan.hosts]
    if plan.node is not None:
        ranks = [count or plan.node.num_processes for count in ranks]
    if None in ranks:
        return ()  # the hosts will say
    weights = [host.weight for host, count in zip(plan.hosts, ranks, strict=True) for _ in range(count or 0)]
    device = "cpu" if plan.device == "cpu" else "cuda"
    saved = _saved(config, fresh_start=fresh_start)
    config, _ = fix_batch(config, len(weights), saved, places)
    training = config.training
    batches = plan_batches(
        training.batch_size,
        _micro_batch_size(config, saved),
        weights,
        device,
        equal_passes=training.zero_stage >= 2,
    )
    notice = idle_notice(batches, device, max(training.micro_batch_size, 0))
    return (notice,) if notice else ()
