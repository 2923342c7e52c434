"""Batches, as `alphazero launch` looks at them before ranks start: how many CPU ranks suit, what idles."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.cluster.plan.launch_plan import ClusterPlan
from alphazero.config import Config
from alphazero.errors import AlphaZeroError, ConfigError
from alphazero.training.batch.batch_numbers import SavedBatch, batch_over, fix_batch, implied_ranks

if TYPE_CHECKING:
    from alphazero.cluster.plan.cpu_ranks import CpuRanks


def cpu_ranks_for(num_cores: int, config: Config, *, fresh_start: bool) -> CpuRanks:
    """How many ranks this machine gets where it has no GPU and nobody gave a number."""
    from alphazero.cluster.plan.cpu_ranks import CpuRanks, choose_cpu_ranks
    from alphazero.host.memory import HostMemory
    from alphazero.training.batch_plan import LEAST_MICRO_BATCH, plan_batches

    config, saved = _as_resumed(config, fresh_start=fresh_start)
    implied = 0 if saved else implied_ranks(config)
    if 0 < implied <= num_cores:
        return CpuRanks(implied, "as many as batch, micro-batch and accumulation ask for")

    def ranks_at_work(num_ranks: int) -> float:
        try:
            fixed, _ = fix_batch(config, num_ranks, saved)
            training = fixed.training
            plan = plan_batches(training.batch_size, training.micro_batch_size, [1.0] * num_ranks, "cpu")
        except ConfigError:  # no such plan; where there is none at all, the trainer says why
            return 0.0
        return num_ranks * (1 - plan.idle_share)

    batch_size = saved.batch_size if saved else batch_over(config, num_cores)
    named = config.training.micro_batch_size
    least = LEAST_MICRO_BATCH["cpu"]
    least = min(least, named) if named > 0 else least
    available = HostMemory().check().available_bytes
    return choose_cpu_ranks(num_cores, batch_size, least, config.network, available, ranks_at_work)


def _as_resumed(config: Config, *, fresh_start: bool) -> tuple[Config, SavedBatch | None]:
    """For a run that goes on: `config` with what its newest checkpoint says, and the batch of that."""
    from alphazero.pipeline.start.kept_settings import kept_settings
    from alphazero.training.checkpoint.files import STATE, checkpoints_in, read_json

    if fresh_start:
        return config, None
    run = Path(config.run.runs_dir) / (config.run.run_name or config.preset or "run")
    for path in reversed(checkpoints_in(run / "checkpoints")):
        with contextlib.suppress(AlphaZeroError):
            state = read_json(path / STATE)
            batch, in_use = state.get("batch_size"), state.get("micro_batch_size")
            if type(batch) is not int or type(in_use) is not int or min(batch, in_use) < 1:
                continue
            saved = state.get("config")
            kept = kept_settings(saved, in_use, config).config if isinstance(saved, dict) else config
            training = kept.training
            if training.micro_batch_size <= 0 and training.batch_size == batch:
                training = dataclasses.replace(training, micro_batch_size=in_use)
            return dataclasses.replace(kept, training=training), SavedBatch(batch, in_use)
    return config, None


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
    named = config.training.micro_batch_size
    config, saved = _as_resumed(config, fresh_start=fresh_start)
    weights = [host.weight for host, count in zip(plan.hosts, ranks, strict=True) for _ in range(count or 0)]
    device = "cpu" if plan.device == "cpu" else "cuda"
    config, _ = fix_batch(config, len(weights), saved, places)
    training = config.training
    batches = plan_batches(
        training.batch_size,
        training.micro_batch_size,
        weights,
        device,
        equal_passes=training.zero_stage >= 2,
    )
    notice = idle_notice(batches, device, max(named, 0))
    return (notice,) if notice else ()
