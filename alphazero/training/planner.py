"""Chooses how a job's batch is cut: settings, checkpoint, unlike hosts and the memory of the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alphazero.config import AUTO, TrainingConfig
from alphazero.errors import ConfigError, TrainingError
from alphazero.games.spec import GameSpec
from alphazero.network.resnet import AlphaZeroNet
from alphazero.training import memory_probe
from alphazero.training.batch_plan import BatchPlan, plan_batches
from alphazero.training.exchange import Exchange
from alphazero.training.job import Job

# What a launcher tells the ranks of a host whose hostfile line has a weight.
WEIGHT_VARIABLE = "ALPHAZERO_HOST_WEIGHT"


def host_weight(config: TrainingConfig, host: str, environment: Mapping[str, str]) -> float:
    """The static share of this host's ranks, 1 where nobody gave one.

    From --host-weights or the hostfile (through the environment); ConfigError where they contradict.
    """
    by_flag: dict[str, float] = {}
    for entry in config.host_weights:
        name, _, number = entry.partition("=")
        by_flag[name] = float(number)
        if not by_flag[name]:
            raise ConfigError(f"--host-weights {entry}: wanted a weight above 0")
    told = environment.get(WEIGHT_VARIABLE)
    if told is None:
        return by_flag.get(host, 1.0)
    try:
        weight = float(told)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ConfigError(f"{WEIGHT_VARIABLE}={told!r}: wanted a number above 0")
    if by_flag.get(host, weight) != weight:
        raise ConfigError(
            f"--host-weights {host}={by_flag[host]:g} contradicts weight={told} of the hostfile: "
            f"wanted one of them"
        )
    return weight


def choose_plan(
    job: Job,
    network: AlphaZeroNet,
    spec: GameSpec,
    saved_size: int,
    weights: Sequence[float],
    exchange: Exchange,
) -> tuple[BatchPlan, tuple[str, ...]]:
    """The plan all ranks agree on, and what people must be told of it. Collective.

    saved_size: micro-batch size of the checkpoint, 0 without one. weights: of every rank.
    """
    training, device = job.config.training, job.runtime.device
    plan = plan_batches(
        training.batch_size,
        saved_size if training.micro_batch_size in (0, AUTO) else training.micro_batch_size,
        weights,
        device.type,
        equal_passes=training.zero_stage >= 2,
    )
    is_to_be_found = training.micro_batch_size == AUTO and not saved_size
    if not is_to_be_found and device.type == "cpu":
        return plan, ()
    sizes = memory_probe.candidates(training.batch_size, len(weights))
    probe = memory_probe.MemoryProbe(network, spec, job.config, job.runtime)
    if is_to_be_found:
        size = _agreed(probe.largest(sizes), exchange)
        return plan.with_micro_batch_size(size), (f"micro-batch size {size} found: the most that fit",)
    fits = all(exchange.numbers(int(probe.fits(plan.micro_batch_size))))
    if fits:
        return plan, ()
    smaller = [size for size in sizes if size < plan.micro_batch_size]
    size = _agreed(probe.largest(smaller), exchange)
    notice = (
        f"changed arithmetic: micro-batches of {plan.micro_batch_size} do not fit into device memory, "
        f"{size} do; the global batch stays {plan.batch_size}"
    )
    return plan.with_micro_batch_size(size), (notice,)


def _agreed(size: int | None, exchange: Exchange) -> int:
    """The smallest of all ranks' sizes; TrainingError where one found none that fits."""
    sizes = exchange.numbers(size or 0)
    if not min(sizes):
        rank = sizes.index(0)
        error = TrainingError(f"rank {rank}: not even one position fits into device memory")
        error.found_by_all_ranks = True
        raise error
    return min(sizes)
