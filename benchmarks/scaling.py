"""Weak and strong scaling over 1 to N ranks of this machine, and a model of it for 1 to 64 GPUs.

`alphazero bench scaling [--gpus N] [--blocks N --filters N] [--batch N] [--json] [--out FILE]`. The model is
made from parts that are measured one by one; where the ranks are GPUs, or with `--steps-of FILE` (of
`alphazero bench gpu`), it goes on to 64 GPUs. `--table FILE [--into PAGE]` writes the tables of an earlier
document.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

import torch

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path, write_json
from alphazero.games.registry import get_spec
from alphazero.network.model.precision import choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads, whole
from alphazero.settings.sections import NetworkConfig
from benchmarks.gpu_rows.document import FORMAT as GPU_FORMAT
from benchmarks.measuring.page import put_into_page, read_document
from benchmarks.scaling_parts import table
from benchmarks.scaling_parts.measured import BYTES_OF_A_GRADIENT, Job, measure
from benchmarks.scaling_parts.model import ASSUMPTIONS, OwnSteps, forecast, links
from benchmarks.scaling_parts.start import Local

FORMAT = 1
# A spread that `bench gpu` cannot tell: it waits for its steps together.
NO_SPREAD = 0.0
USUAL_POSITIONS = 1024  # of a GPU in weak scaling


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--gpus", type=count, default=0, help="most ranks; all GPUs, or the cores, if absent")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where it runs")
    parser.add_argument("--blocks", type=whole(1, 256), default=20, help="residual blocks")
    parser.add_argument("--filters", type=whole(1, 4096), default=256, help="channels of the tower")
    parser.add_argument("--batch", type=batch_size, default=1024, help="positions a rank or in all")
    parser.add_argument("--micro-batch", type=batch_size, default=1024, help="most positions per pass")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--steps", type=count, default=10, help="steps of one measurement")
    parser.add_argument("--rounds", type=count, default=3, help="turns of parts and steps; medians count")
    parser.add_argument("--threads", type=threads, default=1, help="CPU threads of a rank")
    parser.add_argument("--limit", type=seconds(1), default=600.0, help="seconds for one group of ranks")
    parser.add_argument("--gpus-per-host", type=count, default=8, help="of the model")
    parser.add_argument("--steps-of", default="", help="model GPUs by this document of bench gpu")
    parser.add_argument("--out", default="", help="file for the document")
    parser.add_argument("--table", default="", help="measure nothing: write the tables of this document")
    parser.add_argument("--into", default="", help="with --table: put them into this page of docs/")


def run(arguments: list[str]) -> dict[str, object]:
    """The document, measured or read."""
    parser = Parser(prog="alphazero bench scaling", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    if args.into and not args.table:
        raise ConfigError("--into: expected --table FILE with it")
    if args.table:
        found = read_document(given_path(args.table, "--table"), "scaling", FORMAT)
        if args.into:
            put_into_page(given_path(args.into, "--into"), "scaling", table.text(found))
        return found
    gpu_document = read_gpu_document(args.steps_of)
    device = choose_device(args.device, 0, os.environ).type
    counts = rank_counts(args.gpus, device)
    job = make_job(args, counts)
    document: dict[str, Any] = {"format": FORMAT, "job": dataclasses.asdict(job), "assumptions": told(args)}
    document |= measure(job, device, counts, Local(device, args.limit))
    document |= model(args, job, device, document, gpu_document)
    if args.out:
        write_json(given_path(args.out, "--out"), {"bench": "scaling", **document})
    return document


def text(figures: dict[str, object]) -> str:
    """The document as tables."""
    return table.text(figures)


def rank_counts(most: int, device: str) -> list[int]:
    """1, 2, 4, ... to the most ranks. Raises ConfigError for more than there are GPUs."""
    there = torch.cuda.device_count() if device == "cuda" else len(os.sched_getaffinity(0))
    if device == "cuda" and most > there:
        raise ConfigError(f"--gpus {most}: expected at most {there}, the GPUs of this machine")
    most = most or there
    return sorted({most, *(1 << power for power in range(most.bit_length()) if 1 << power <= most)})


def make_job(args: argparse.Namespace, counts: list[int]) -> Job:
    """Raises ConfigError where the batch cannot be shared out over so many ranks."""
    for ranks in (*counts, 2 * counts[-1]):
        if args.batch % ranks or (args.batch // ranks) % min(args.micro_batch, args.batch // ranks):
            raise ConfigError(
                f"--batch {args.batch} --micro-batch {args.micro_batch}: expected a batch that {ranks} ranks "
                "share evenly in whole micro-batches"
            )
    return Job(
        blocks=args.blocks,
        filters=args.filters,
        precision=args.precision,
        positions=args.batch,
        micro_batch=args.micro_batch,
        steps=args.steps,
        rounds=args.rounds,
        threads=args.threads,
        num_parameters=parameter_count(args.blocks, args.filters),
    )


def parameter_count(blocks: int, filters: int) -> int:
    """Of the chess network."""
    with torch.device("meta"):
        network = AlphaZeroNet(NetworkConfig(blocks=blocks, filters=filters), get_spec("chess"))
    return sum(parameter.numel() for parameter in network.parameters())


def read_gpu_document(path: str) -> dict[str, Any] | None:
    """The document of `bench gpu` to model GPUs by; None where none was named."""
    return read_document(given_path(path, "--steps-of"), "gpu", GPU_FORMAT) if path else None


def told(args: argparse.Namespace) -> list[str]:
    """The assumptions, with those about links."""
    return [*ASSUMPTIONS, *(f"{link.name}: {link.source}." for link in links(args.gpus_per_host))]


def model(
    args: argparse.Namespace,
    job: Job,
    device: str,
    document: dict[str, Any],
    gpu_document: dict[str, Any] | None,
) -> dict[str, Any]:
    """The forecast for many GPUs, where steps of a GPU are known."""
    if gpu_document is not None:
        own, sizes = steps_of_gpu_bench(gpu_document, Path(args.steps_of))
        gradient_bytes = BYTES_OF_A_GRADIENT * parameter_count(sizes["blocks"], sizes["filters"])
        source = f"{gpu_document['machine']['device_name']} ({gpu_document['machine']['commit']})"
    elif device == "cuda":
        single = document["parts"][0]
        own = OwnSteps({int(size): s for size, s in single["own_steps_s"].items()}, single["spread"])
        gradient_bytes, source = job.gradient_bytes, str(document["machine"]["device_name"])
    else:
        return {"no_model": "No GPU: its steps were not measured, and none are modelled (--steps-of FILE)."}
    largest = max(own.seconds_by_positions)
    weak = min(USUAL_POSITIONS, largest)
    forecasts = forecast(own, gradient_bytes, weak, largest, args.gpus_per_host)
    return {
        "model_basis": {
            "source": source,
            "weak_positions": weak,
            "strong_positions": largest,
            "gradient_bytes": gradient_bytes,
        },
        "model": [dataclasses.asdict(one) for one in forecasts],
    }


def steps_of_gpu_bench(document: dict[str, Any], path: Path) -> tuple[OwnSteps, dict[str, Any]]:
    """The fastest steps by batch in bf16 at ZeRO 0. Raises ConfigError where none was measured."""
    steps: dict[int, float] = {}
    for row in document["rows"]:
        settings = row["settings"]
        is_wanted = row["kind"] == "training" and row["figures"] and not settings["micro_batch"]
        if is_wanted and (settings["precision"], settings["zero_stage"]) == ("bf16", 0):
            seconds = row["figures"]["step_ms"] / 1000
            steps[settings["batch"]] = min(seconds, steps.get(settings["batch"], seconds))
    if document["rehearsal"] or not steps:
        raise ConfigError(f"{path}: expected measured steps in bf16 at ZeRO 0, got a rehearsal or none")
    return OwnSteps(steps, NO_SPREAD), document["sizes"]
