"""What all ranks choose together before training: micro-batches, precision, kernels."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence

import torch

from alphazero.base.errors import ConfigError, TrainingError
from alphazero.base.text import counted
from alphazero.machine.machine import HOST_WEIGHT_VARIABLE
from alphazero.network.inference.kernels import (
    ATTENTION_KERNELS,
    OPERATORS,
    evaluation_passes,
    kernels_of,
    trial,
    use_kernels,
)
from alphazero.network.model.attention import AttentionBody
from alphazero.network.model.layers import TRITON, SqueezeExcitation
from alphazero.network.model.precision import DTYPES, evaluation_precision, fast_precisions
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import TrainingState
from alphazero.settings.load import Config
from alphazero.settings.sections import AUTO, TrainingConfig
from alphazero.training.engine.deepspeed_config import deepspeed_stage
from alphazero.training.engine.probe import (
    attention_passes,
    fits,
    largest_that_fits,
    reserve_bytes,
    squeeze_passes,
)
from alphazero.training.ranks.batch import BatchPlan, idle_notice, micro_batch_sizes, plan_batches
from alphazero.training.ranks.exchange import Exchange, Json
from alphazero.training.ranks.runtime import Runtime


def host_weight(config: TrainingConfig, host: str, environment: Mapping[str, str]) -> float:
    """The static share of this host's ranks, by default 1.

    From --host-weights or the hostfile (through the environment); ConfigError where they contradict.
    """
    by_flag: dict[str, float] = {}
    for entry in config.host_weights:
        name, _, number = entry.partition("=")
        by_flag[name] = float(number)
        if not by_flag[name]:
            raise ConfigError(f"--host-weights {entry}: expected a weight above 0")
    given = environment.get(HOST_WEIGHT_VARIABLE)
    if given is None:
        return by_flag.get(host, 1.0)
    try:
        weight = float(given)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ConfigError(f"{HOST_WEIGHT_VARIABLE}={given!r}: expected a number above 0")
    if by_flag.get(host, weight) != weight:
        raise ConfigError(
            f"--host-weights {host}={by_flag[host]:g} contradicts weight={given} of the hostfile: "
            f"expected one of them"
        )
    return weight


def choose_plan(
    config: Config,
    runtime: Runtime,
    network: AlphaZeroNet,
    saved: TrainingState | None,
    exchange: Exchange,
) -> tuple[BatchPlan, tuple[str, ...]]:
    """The plan all ranks agree on, and lines for the banner. Collective.

    saved: of the checkpoint that the run resumes from. Raises ConfigError or TrainingError on all ranks
    alike.
    """
    training = config.training
    weights = exchange.gather(exchange.on_each(lambda: host_weight(training, runtime.host, os.environ)))
    size = training.micro_batch_size
    if saved and size in (0, AUTO):
        size = saved.micro_batch_size
    if size == AUTO and runtime.device.type == "cpu":
        size = 0  # larger ones are no faster there
    notices: tuple[str, ...] = ()
    plan = exchange.on_each(
        lambda: plan_batches(
            training.batch_size,
            size,
            weights,
            runtime.device.type,
            equal_passes=deepspeed_stage(config) >= 2,
        )
    )
    if runtime.device.type != "cpu":  # there the host has virtual memory: nothing would show
        before = plan.micro_batch_size
        plan = plan.with_micro_batch_size(_largest_fitting(before, config, runtime, network, exchange))
        if size == AUTO:
            why = "fits into memory" if plan.micro_batch_size < before else "keeps all ranks busy"
            notices = (f"micro-batch size {plan.micro_batch_size}: the largest that {why}",)
        elif plan.micro_batch_size < before:
            notices = (
                f"changed arithmetic: micro-batches of {before} do not fit into device memory, "
                f"{plan.micro_batch_size} do; the global batch stays {plan.batch_size}",
            )
    changes = _changes(plan, training, saved, runtime.device) if saved else []
    idle = idle_notice(plan, max(training.micro_batch_size, 0), batch_is_fixed=saved is not None)
    return plan, (*notices, *changes, *filter(None, [idle]))


def _largest_fitting(
    most: int, config: Config, runtime: Runtime, network: AlphaZeroNet, exchange: Exchange
) -> int:
    """The largest micro-batch, of at most so many positions, that every rank's GPU can hold. Collective."""
    reserve = reserve_bytes(network, config, runtime.world_size)
    sizes = [size for size in micro_batch_sizes(config.training.batch_size) if size <= most]

    def fits_here(size: int) -> bool:
        return fits(network, config, runtime.device, size, reserve)

    def largest() -> int:
        size = sizes[-1] if fits_here(sizes[-1]) else largest_that_fits(sizes[:-1], fits_here)
        if not size:
            raise TrainingError(
                f"{runtime.host} {runtime.device}: micro-batches of {counted(sizes[0], 'position')} do not "
                "fit; expected a smaller network, a GPU with more memory, or --zero-stage 1 or higher"
            )
        return size

    return min(exchange.numbers(exchange.on_each(largest)))


def _changes(
    plan: BatchPlan, training: TrainingConfig, saved: TrainingState, device: torch.device
) -> list[str]:
    """What is computed in another way than before the checkpoint."""
    changes, num_threads = [], torch.get_num_threads()
    if device.type == "cpu" and saved.num_threads != num_threads:
        changes.append(
            f"changed: threads per rank {saved.num_threads} -> {num_threads}; "
            "sums in fp32 differ in their last digits"
        )
    if saved.micro_batch_size != plan.micro_batch_size:
        changes.append(
            f"changed arithmetic: micro-batches of {plan.micro_batch_size}, were {saved.micro_batch_size}"
        )
    if saved.precision != training.precision:
        changes.append(f"changed arithmetic: {training.precision}, was {saved.precision}")
    return changes


def choose_precision(
    config: Config, device: torch.device, saved: str, exchange: Exchange
) -> tuple[str, tuple[str, ...]]:
    """The precision of training, and lines for the banner. Collective.

    `auto` becomes the fastest one for all ranks' devices that ds_config.json does not switch off; a run that
    continues keeps that of its checkpoint, `saved`, where it can and this start requests none.
    """
    if config.training.precision != "auto":
        return config.training.precision, ()
    by_rank = exchange.gather(fast_precisions(device))
    common = [name for name in by_rank[0] if all(name in names for names in by_rank)]
    allowed = [name for name in common if name not in config.deepspeed.precisions_off]
    chosen = saved if saved in allowed and "precision" not in config.asked else allowed[0]
    return chosen, () if "bf16" in common else (
        f"a device of this job has no fast bf16: training in {chosen}",
    )


def choose_kernels(
    config: Config, device: torch.device, saved: TrainingState | None, exchange: Exchange
) -> list[str]:
    """Choose kernels for the evaluations of all ranks on GPUs, for this process too; lines for the banner.

    saved: of the checkpoint that the run continues from, whose kernels are kept where every device has them:
    games differ with the kernels. Collective.
    """
    network, own = config.network, config.self_play
    if own.mode == "supervised":
        return []
    precision = exchange.on_each(
        lambda: evaluation_precision(
            own.evaluation_precision, config.training.precision, device, network.body, network.game
        )
    )
    kept = saved.kernels if saved else ""
    on_gpu = device.type == "cuda"
    if not any(exchange.numbers(int(on_gpu))):
        use_kernels(kept)  # for a return to GPUs
        said = f"changed arithmetic: evaluations on CPUs, were by {kept} kernels: games will differ"
        return [said] if kept else []
    names = kernels_of(network)
    how = None
    if on_gpu and len(names) > 1:
        passes = evaluation_passes(network, device, own.evaluation_batch)
        how = functools.partial(trial, passes, DTYPES.get(precision, torch.float32), device)
    in_order = config.training.deterministic
    chosen, lines = _fastest("evaluations", names, kept, how, exchange, in_order=in_order)
    use_kernels(chosen)
    if kept and chosen != kept:
        lines[-1] += ": games will differ"
    return lines


def choose_training_kernels(
    config: Config, device: torch.device, saved: TrainingState | None, exchange: Exchange
) -> list[str]:
    """Choose what trains squeeze-excitation or an attention body on the GPUs of all ranks; lines.

    saved: as above; where it names nothing, PyTorch's operators have trained it. `compile` leaves no choice,
    and to an attention body `--no-compile` leaves none either. Collective.
    """
    network, is_attention = config.network, config.network.body == "attention"
    names: tuple[str, ...] = ATTENTION_KERNELS if is_attention else (OPERATORS, TRITON)
    part: type[AttentionBody] | type[SqueezeExcitation] = AttentionBody if is_attention else SqueezeExcitation
    kept = (saved.attention if is_attention else saved.squeeze) if saved else ""
    is_settled = config.training.compile or (is_attention and "compile" in config.asked)
    on_gpu = device.type == "cuda"
    part.trained_by = "" if is_settled or on_gpu else kept  # for a return to GPUs
    has_choice = (is_attention or network.se_ratio > 0) and not is_settled
    if not has_choice or not all(exchange.numbers(int(on_gpu))):
        return []
    kept = kept or (OPERATORS if saved else "")
    make_pass = (attention_passes if is_attention else squeeze_passes)(config, device)
    how = functools.partial(trial, make_pass, DTYPES[config.training.precision], device)
    what = f"{'attention' if is_attention else 'squeeze-excitation'} in training"
    chosen, lines = _fastest(what, names, kept, how, exchange, in_order=config.training.deterministic)
    part.trained_by = chosen
    return lines


def _fastest(
    what: str,
    names: Sequence[str],
    kept: str,
    how: Callable[[str], Json] | None,
    exchange: Exchange,
    *,
    in_order: bool,
) -> tuple[str, list[str]]:
    """The kernels kept, else those that take least on the slowest rank, and lines.

    how: a trial, None on a CPU. in_order: instead the first that are right, the same ones at every start.
    """
    lines, times = [], {}
    for name in dict.fromkeys((*([kept] if kept else ()), *names)):
        answers = exchange.gather(how(name) if how else ("", 0.0))
        fault = next((f"rank {rank}: {text}" for rank, (text, _) in enumerate(answers) if text), "")
        if fault:
            lines.append(f"no {name} kernels for {what}: {fault}")
        else:
            times[name] = max(seconds for _, seconds in answers)
        if times and (in_order or name == kept):
            break
    chosen = min(times, key=times.__getitem__, default=OPERATORS)
    each = ", ".join(f"{name} {1000 * seconds:.3g} ms" for name, seconds in times.items())
    lines.append(f"{what} by {chosen} kernels" + (f" ({each})" if len(times) > 1 else ""))
    if kept and chosen != kept:
        lines.append(f"changed arithmetic: {what} by {chosen} kernels, were {kept}")
    return chosen, lines
