"""Chooses how a job's batch is cut, by settings, checkpoint, host weights and the memory of the devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import torch

from alphazero.config import AUTO, Config, TrainingConfig
from alphazero.errors import ConfigError, TrainingError
from alphazero.host.machine import HOST_WEIGHT_VARIABLE
from alphazero.host.memory import HostMemory
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.text import counted
from alphazero.training.batch.batch_numbers import SavedBatch
from alphazero.training.batch.memory_probe import (
    candidates,
    find_micro_batch_size,
    fits,
    largest_that_fits,
    reserve_bytes,
)
from alphazero.training.batch_plan import BatchPlan, idle_notice, plan_batches, share_notice
from alphazero.training.checkpoint.checkpoint import TrainingState
from alphazero.training.deepspeed_json.settings import DeepSpeedSettings
from alphazero.training.exchange import Exchange
from alphazero.training.runtime import Runtime


def host_weight(config: TrainingConfig, host: str, environment: Mapping[str, str]) -> float:
    """The static share of this host's ranks, 1 where nobody gave one.

    From --host-weights or the hostfile (through the environment); ConfigError where they contradict.
    """
    by_flag: dict[str, float] = {}
    for entry in config.host_weights:
        name, _, number = entry.partition("=")
        by_flag[name] = float(number)
        if not by_flag[name]:
            raise ConfigError(f"--host-weights {entry}: expected a weight above 0")
    told = environment.get(HOST_WEIGHT_VARIABLE)
    if told is None:
        return by_flag.get(host, 1.0)
    try:
        weight = float(told)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ConfigError(f"{HOST_WEIGHT_VARIABLE}={told!r}: expected a number above 0")
    if by_flag.get(host, weight) != weight:
        raise ConfigError(
            f"--host-weights {host}={by_flag[host]:g} contradicts weight={told} of the hostfile: "
            f"expected one of them"
        )
    return weight


def saved_batch(saved: TrainingState | None) -> SavedBatch | None:
    """How the batch was cut at the checkpoint that a run goes on from."""
    return SavedBatch(saved.batch_size, saved.micro_batch_size) if saved else None


def choose_plan(
    config: Config,
    runtime: Runtime,
    network: AlphaZeroNet,
    settings: DeepSpeedSettings,
    saved: TrainingState | None,
    exchange: Exchange,
) -> tuple[BatchPlan, tuple[str, ...]]:
    """The plan all ranks agree on, and what people must be told of it. Collective.

    saved: of the checkpoint that the run goes on from. Raises ConfigError or TrainingError on all ranks
    alike.
    """
    training = config.training
    weights = exchange.gather(exchange.on_each(lambda: host_weight(training, runtime.host, os.environ)))
    saved_size = saved.micro_batch_size if saved else 0
    notices: tuple[str, ...] = ()
    is_to_be_found = training.micro_batch_size == AUTO and not saved_size
    plan = exchange.on_each(
        lambda: plan_batches(
            training.batch_size,
            (saved_size if training.micro_batch_size in (0, AUTO) else 0) or training.micro_batch_size,
            weights,
            runtime.device.type,
            equal_passes=training.zero_stage >= 2,
        )
    )
    if is_to_be_found:
        memory = HostMemory(host=runtime.host)
        size = _smallest(
            lambda: find_micro_batch_size(
                network, network.spec, training, config.optimizer, config.loss, settings, runtime, memory
            ),
            exchange,
        )
        plan = plan.with_micro_batch_size(size)
        notices = (f"micro-batch size {size}: the most that fit into memory",)
    elif runtime.device.type != "cpu":  # there the host has virtual memory: nothing would show
        plan, notices = _cut_to_fit(plan, config, runtime, network, settings, exchange)
    if runtime.device.type == "cpu":
        notices += _changed_threads(torch.get_num_threads(), saved)
    named = max(training.micro_batch_size, 0)
    is_fixed = saved is not None
    idle = idle_notice(plan, runtime.device.type, named, batch_is_fixed=is_fixed)
    small = share_notice(plan, runtime.device.type, batch_is_fixed=is_fixed)
    return plan, (*notices, *_changes(plan, training, saved), *filter(None, [idle, small]))


def _cut_to_fit(
    plan: BatchPlan,
    config: Config,
    runtime: Runtime,
    network: AlphaZeroNet,
    settings: DeepSpeedSettings,
    exchange: Exchange,
) -> tuple[BatchPlan, tuple[str, ...]]:
    """The plan with micro-batches that fit into the memory of every rank's GPU. Collective."""
    reserve = reserve_bytes(network, config.training, config.optimizer, plan.world_size, settings)
    sizes = [size for size in candidates(plan.batch_size, plan.world_size) if size <= plan.micro_batch_size]

    def fits_here(size: int) -> bool:
        return fits(network, network.spec, config.training, config.loss, runtime.device, size, reserve)

    def largest() -> int:
        found = sizes[-1] if fits_here(sizes[-1]) else largest_that_fits(sizes[:-1], fits_here)
        if not found:
            raise TrainingError(
                f"{runtime.host} {runtime.device}: micro-batches of {counted(sizes[0], 'position')} do not "
                "fit; expected a smaller network or a GPU with more memory"
            )
        return found

    size = _smallest(largest, exchange)
    if size == plan.micro_batch_size:
        return plan, ()
    notice = (
        f"changed arithmetic: micro-batches of {plan.micro_batch_size} do not fit into device memory, "
        f"{size} do; the global batch stays {plan.batch_size}"
    )
    return plan.with_micro_batch_size(size), (notice,)


def _changes(plan: BatchPlan, training: TrainingConfig, saved: TrainingState | None) -> list[str]:
    """What is computed in another way than before the checkpoint."""
    changes = []
    if saved and saved.micro_batch_size != plan.micro_batch_size:
        changes.append(
            f"changed arithmetic: micro-batches of {plan.micro_batch_size}, were {saved.micro_batch_size}"
        )
    if saved and saved.precision != training.precision:
        changes.append(f"changed arithmetic: {training.precision}, was {saved.precision}")
    return changes


def _changed_threads(num_threads: int, saved: TrainingState | None) -> tuple[str, ...]:
    """A line where a CPU rank no longer computes with as many threads as before the checkpoint."""
    if saved is None or saved.num_threads in (0, num_threads):
        return ()
    return (
        f"changed: threads per rank {saved.num_threads} -> {num_threads}; "
        "sums in fp32 differ in their last digits",
    )


def _smallest(find: Callable[[], int], exchange: Exchange) -> int:
    """The smallest of all ranks' sizes, so that every rank can hold it. Collective."""
    return min(exchange.numbers(exchange.on_each(find)))
