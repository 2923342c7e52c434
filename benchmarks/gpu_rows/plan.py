"""The rows of `bench gpu`, the most important first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from alphazero.settings.sections import TrainingConfig
from benchmarks.gpu_rows.row import Row

PRECISIONS = ("bf16", "fp16", "tf32", "fp32")
STAGES = (0, 1, 2, 3)
# The switches of TrainingConfig that each way of running the network turns on; it turns the others off. A way
# whose switches are not there has no rows.
MODES: Mapping[str, frozenset[str]] = {
    "eager": frozenset(),
    "graphed": frozenset({"cuda_graphs"}),
    "compiled": frozenset({"compile"}),
}
GRAPHED_STAGES = (0,)


@dataclass(frozen=True)
class Sizes:
    """How large everything is: FULL on a GPU, TINY where the same code is only rehearsed."""

    blocks: int
    filters: int
    batches: tuple[int, ...]
    usual_batch: int  # in which precisions, stages and modes are compared first
    seconds: float  # of one measurement
    least_steps: int
    matmul: int
    evaluator_batches: tuple[int, ...]
    selfplay_batch: int
    simulations: int
    selfplay_seconds: float
    checkpoint_steps: int
    loader_batch: int
    duration: float  # of a row beside what is expected of it on an H100


FULL = Sizes(
    blocks=20,
    filters=256,
    batches=(256, 512, 1024, 2048, 4096),
    usual_batch=1024,
    seconds=2.0,
    least_steps=8,
    matmul=8192,
    evaluator_batches=(256, 1024, 64),
    selfplay_batch=512,
    simulations=64,
    selfplay_seconds=4.0,
    checkpoint_steps=400,  # several seconds apart: one is written before the next begins
    loader_batch=1024,
    duration=1.0,
)
TINY = Sizes(
    blocks=1,
    filters=8,
    batches=(8,),
    usual_batch=8,
    seconds=0.01,
    least_steps=2,
    matmul=64,
    evaluator_batches=(4,),
    selfplay_batch=4,
    simulations=2,
    selfplay_seconds=0.02,
    checkpoint_steps=8,
    loader_batch=16,
    duration=0.1,
)


def modes(without: Iterable[str] = ()) -> dict[str, Mapping[str, bool]]:
    """The ways to run the network that this version has, as settings of training."""
    known = {field.name for field in dataclasses.fields(TrainingConfig)}
    switches = sorted(known & frozenset().union(*MODES.values()))
    left_out = set(without)
    return {
        name: {switch: switch in on for switch in switches}
        for name, on in MODES.items()
        if on <= known and name not in left_out
    }


def rows(sizes: Sizes, device: str, without: Iterable[str] = ()) -> list[Row]:
    """All rows, each once, in order of importance."""
    available = modes(without)
    ordered = [
        *ceilings(sizes, device),
        *speed_by_batch(sizes, device, available),
        *self_play(sizes, device),
        *around_training(sizes, device),
        *comparisons(sizes, device, available),
        *everything(sizes, device, available),
    ]
    once: dict[str, Row] = {}
    for row in ordered:
        once.setdefault(row.name, dataclasses.replace(row, expected_s=row.expected_s * sizes.duration))
    return list(once.values())


def ceilings(sizes: Sizes, device: str) -> Iterator[Row]:
    """What the device can do at best, without which no share can be told."""
    for precision in PRECISIONS:
        settings = {"device": device, "precision": precision, "size": sizes.matmul, "seconds": sizes.seconds}
        yield Row("matmul", f"matmul {precision}", settings, 4)
        if precision != "bf16":
            continue
        for batch in reversed(sizes.batches):
            shape = {"batch": batch, "channels": sizes.filters, "depth": sizes.blocks}
            settings = {"device": device, "precision": precision, **shape, "seconds": sizes.seconds / 2}
            yield Row("convolutions", f"convolutions {precision} {batch}", settings, 5)


def speed_by_batch(sizes: Sizes, device: str, available: Mapping[str, object]) -> Iterator[Row]:
    """The figures of the aim: bf16 without ZeRO by batch size; small ones as graphs too."""
    for batch in sorted(sizes.batches, key=lambda batch: (batch != sizes.usual_batch, -batch)):
        yield training(sizes, device, batch, "bf16", 0, "eager")
    if "graphed" in available:
        for batch in sizes.batches:
            yield training(sizes, device, batch, "bf16", 0, "graphed")
    largest = max(sizes.batches)
    for micro_batch in (largest, largest // 2):
        yield training(sizes, device, largest, "bf16", 0, "eager", micro_batch)


def self_play(sizes: Sizes, device: str) -> Iterator[Row]:
    """Self-play against the bare network, and the evaluator by itself."""
    tower = {"blocks": sizes.blocks, "filters": sizes.filters, "device": device}
    settings = {
        **tower,
        "se_ratio": 0,
        "batch": sizes.selfplay_batch,
        "simulations": sizes.simulations,
        "precision": "bf16",
        "seconds": sizes.selfplay_seconds,
        "rounds": 1,
    }
    yield Row("selfplay", f"selfplay bf16 {sizes.selfplay_batch}", settings, 40)
    for batch in sizes.evaluator_batches:
        yield evaluator(sizes, device, batch, "bf16")


def around_training(sizes: Sizes, device: str) -> Iterator[Row]:
    """A checkpoint beside training, and what feeds it."""
    settings = {
        **training(sizes, device, sizes.usual_batch, "bf16", 0, "eager").settings,
        "steps": sizes.checkpoint_steps,
    }
    yield Row("checkpoint", f"checkpoint bf16 {sizes.usual_batch}", settings, 35)
    settings = {"batch_size": sizes.loader_batch, "seconds": sizes.seconds / 2, "repeats": 3}
    yield Row("loader", f"loader {sizes.loader_batch}", settings, 20)


def comparisons(sizes: Sizes, device: str, available: Mapping[str, object]) -> Iterator[Row]:
    """Every precision, stage and mode once, at the usual batch."""
    usual = sizes.usual_batch
    for stage in STAGES[1:]:
        yield training(sizes, device, usual, "bf16", stage, "eager")
    for precision in PRECISIONS[1:]:
        yield training(sizes, device, usual, precision, 0, "eager")
    for batch in sizes.evaluator_batches[:1]:
        for precision in ("fp16", "fp32"):
            yield evaluator(sizes, device, batch, precision)
    if "compiled" in available:
        yield training(sizes, device, usual, "bf16", 0, "compiled")
        yield training(sizes, device, max(sizes.batches), "bf16", 0, "compiled")
        if device == "cuda":  # the CPU has fused convolutions instead
            yield evaluator(sizes, device, sizes.evaluator_batches[0], "bf16", compiled=True)


def everything(sizes: Sizes, device: str, available: Mapping[str, object]) -> Iterator[Row]:
    """The whole table, as far as the time suffices: what compiles comes last."""
    by_cost = sorted(available, key=lambda mode: mode == "compiled")
    for mode in by_cost:
        for precision in PRECISIONS:
            for stage in GRAPHED_STAGES if mode == "graphed" else STAGES:
                for batch in sorted(sizes.batches, reverse=True):
                    yield training(sizes, device, batch, precision, stage, mode)


def training(
    sizes: Sizes, device: str, batch: int, precision: str, stage: int, mode: str, micro_batch: int = 0
) -> Row:
    """One of the table; micro_batch 0: as training chooses it unasked."""
    settings = {
        "device": device,
        "blocks": sizes.blocks,
        "filters": sizes.filters,
        "batch": batch,
        "micro_batch": micro_batch,
        "precision": precision,
        "zero_stage": stage,
        "mode": modes()[mode],
        "seconds": sizes.seconds,
        "least_steps": sizes.least_steps,
    }
    name = f"training {precision} zero{stage} {mode} {batch}" + (f"/{micro_batch}" if micro_batch else "")
    pace = f"training {precision} {mode}" if precision == "fp32" else f"training {mode}"
    return Row("training", name, settings, {"compiled": 60, "graphed": 10}.get(mode, 8), pace)


def evaluator(sizes: Sizes, device: str, batch: int, precision: str, *, compiled: bool = False) -> Row:
    """Batched inference."""
    settings = {
        "blocks": sizes.blocks,
        "filters": sizes.filters,
        "batch": batch,
        "precision": precision,
        "device": device,
        "compile": compiled,
        "turns": 3,
        "seconds": sizes.seconds / 4,
    }
    name = f"evaluator {precision} {batch}" + (" compiled" if compiled else "")
    return Row("evaluator", name, settings, 60 if compiled else 10, "compiled" if compiled else "")
