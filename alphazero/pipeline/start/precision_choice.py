"""Which precision `--precision auto` is: timed on CPUs, on GPUs what they have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from alphazero.config import TrainingConfig
from alphazero.network.precision import fast_precisions
from alphazero.training.batch.precision_probe import fastest_precision, slowest_seconds
from alphazero.training.exchange import Exchange

# Times a pass in each of the precisions named, on this rank.
TimePasses = Callable[[Sequence[str]], dict[str, float]]

AS_SAVED = "auto: as in the checkpoint"


@dataclass(frozen=True)
class PrecisionChoice:
    """The settings with a precision in place of `auto`; why it is that one ("" where it was asked for)."""

    training: TrainingConfig
    reason: str = ""
    notices: tuple[str, ...] = ()


def choose_precision(
    training: TrainingConfig,
    switched_off: Collection[str],
    device: torch.device,
    saved: str,
    time_passes: TimePasses,
    exchange: Exchange,
    *,
    keep_saved: bool = False,
) -> PrecisionChoice:
    """`auto` becomes the fastest precision for all ranks' devices that is not switched off. Collective.

    switched_off: by ds_config.json. saved: the precision of the checkpoint that the run goes on from, "" for
    none: CPU ranks keep it, others with keep_saved, where nobody asked for `auto` at this start. time_passes:
    called on every rank at the same moment, or on none.
    """
    if training.precision != "auto":
        return PrecisionChoice(training)
    by_rank = exchange.gather({"device": device.type, "fast": fast_precisions(device)})
    common = [name for name in by_rank[0]["fast"] if all(name in rank["fast"] for rank in by_rank)]
    allowed = [name for name in common if name not in switched_off]
    notices: tuple[str, ...] = ()
    chosen, reason = allowed[0], ""
    if all(rank["device"] == "cpu" for rank in by_rank):
        chosen, reason = _on_cpus(allowed, saved, time_passes, exchange)
    elif keep_saved and saved in allowed:
        chosen, reason = saved, AS_SAVED
    if "bf16" not in common:
        notices = (f"a device of this job has no fast bf16: training in {chosen}",)
    return PrecisionChoice(dataclasses.replace(training, precision=chosen), reason, notices)


def _on_cpus(
    allowed: Sequence[str], saved: str, time_passes: TimePasses, exchange: Exchange
) -> tuple[str, str]:
    """The precision and why: the checkpoint's, the only one, or the fastest on the slowest rank."""
    if saved in allowed:
        return saved, AS_SAVED
    if len(allowed) == 1:
        return allowed[0], ""
    exchange.barrier()
    seconds_by_rank = exchange.gather(time_passes(allowed))
    chosen = fastest_precision(seconds_by_rank)
    milliseconds = {name: 1000 * value for name, value in slowest_seconds(seconds_by_rank).items()}
    others = "".join(f"; {name} {value:.0f} ms" for name, value in milliseconds.items() if name != chosen)
    return chosen, f"auto: {milliseconds[chosen]:.0f} ms per pass{others}"
