"""Keys of a ds_config.json that DeepSpeed cannot take together."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.training.deepspeed_json.settings import DeepSpeedSettings


@dataclass(frozen=True)
class Contradiction:
    """A key whose value cannot go with the rest."""

    path: str
    value: object
    wanted: str


def contradiction(settings: DeepSpeedSettings, stage: int | None) -> Contradiction | None:
    """What cannot stand together at a ZeRO stage; at a stage of None what holds at every stage."""
    options, passed_on = settings.zero_options, settings.passed_on
    divided = passed_on.get("gradient_predivide_factor", 1) != 1
    prescaled = passed_on.get("prescale_gradients", False)
    if divided and prescaled:
        wanted = "remove it: prescale_gradients divides by the ranks, and by nothing else"
        return Contradiction("gradient_predivide_factor", passed_on["gradient_predivide_factor"], wanted)
    if options.get("overlap_comm") and options.get("contiguous_gradients") is False and stage in (None, 2, 3):
        wanted = "expected contiguous_gradients true or absent: overlapping needs its two buffers"
        return Contradiction("zero_optimization.overlap_comm", True, wanted)
    if (divided or prescaled) and stage in (2, 3) and options.get("reduce_scatter", True):
        key = "prescale_gradients" if prescaled else "gradient_predivide_factor"
        wanted = f"remove it, or zero_optimization.reduce_scatter false, at ZeRO stage {stage}"
        return Contradiction(key, passed_on[key], wanted)
    return None
