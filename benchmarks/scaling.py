"""Weak and strong scaling over 1 to N ranks of this machine, and a model of it for 1 to 64 GPUs.

Every step is one of `alphazero bench training`, which gets all other flags. The model adds its parts: a step
of one rank, the wait for the slowest one, the all-reduce of the gradients. Where the ranks are GPUs, or with
`--steps-of FILE` (of `alphazero bench gpu`), it extends to 64 GPUs.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path
from alphazero.network.model.precision import choose_device
from alphazero.network.model.sizes import on_meta_device
from alphazero.settings.flags import Parser, batch_size, count, seconds
from alphazero.settings.sections import NetworkConfig
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime
from benchmarks import training
from benchmarks.measuring.clock import on_cores, pass_times
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.page import configure, document_of, markdown_table, percent, read_document, shown
from benchmarks.measuring.ranks import on_ranks

WITHOUT_PRESET = ("--blocks", "20", "--filters", "256", "--precision", "bf16")
BYTES_OF_A_GRADIENT = 4
# Speed-ups that other AlphaZero programs state for 2, 4 and 8 GPUs, without saying how they scale the batch.
PUBLISHED = {2: "1.7-1.9", 4: "3.1-3.8", 8: "5.0-7.0"}
GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)
GPUS_PER_HOST = 8
# The best all-reduce bus bandwidth of 8 H100s in public nccl-tests logs; networks at 80 % of line rate.
NVLINK_RATE, NETWORK_SHARE = 275e9, 0.8
ASSUMPTIONS = (
    "Gradients are fp32 and cross in one all-reduce after the last backward pass; nothing overlaps.",
    "Step times of ranks are independent and normal: the slowest of N is later than the mean by their spread "
    "times Blom's normal score ((N - 0.375) / (N + 0.25)).",
    "Between measured sizes a step's time is linear in its positions; below the smallest it stays as it is "
    "there (launches), above the largest it grows in proportion.",
    "GPUs of a host share NVLink (275 GB/s); an all-reduce over hosts reduces within the host, crosses as a "
    "ring over hosts at 80 % of the line rate, and spreads within the host, one after the other.",
    "Ranks of one host do not slow each other down; loader, checkpoints and validation cost nothing.",
)


@dataclass(frozen=True)
class Link:
    """What joins GPUs. Rates in bytes/s: inside a host per GPU, across hosts per host; latency of a hop."""

    name: str
    across_rate: float
    gpus_per_host: int
    latency_s: float
    inside_rate: float = NVLINK_RATE

    def all_reduce_s(self, num_bytes: int, ranks: int) -> float:
        """Rings within hosts and over hosts, and 2 log2(ranks) hops."""
        if ranks == 1:
            return 0.0
        inside, hosts = min(ranks, self.gpus_per_host), math.ceil(ranks / self.gpus_per_host)
        seconds = 2 * (inside - 1) / inside * num_bytes / self.inside_rate
        seconds += 2 * (hosts - 1) / hosts * num_bytes / self.across_rate
        return seconds + 2 * math.ceil(math.log2(ranks)) * self.latency_s


# NVLink among all, and hosts joined by one network interface each.
LINKS = (
    Link("NVLink", NVLINK_RATE, max(GPU_COUNTS), 5e-6),
    *(Link(f"{gbit} Gb/s", NETWORK_SHARE * gbit * 1e9 / 8, GPUS_PER_HOST, 20e-6) for gbit in (400, 100)),
)


@dataclass(frozen=True)
class OwnSteps:
    """Steps of one rank that exchanges nothing: seconds by positions, and their spread as a share."""

    seconds_by_positions: Mapping[int, float]
    spread: float

    def seconds(self, positions: float) -> float:
        """Of a step of so many positions."""
        sizes, times = zip(*sorted(self.seconds_by_positions.items()), strict=True)
        return float(np.interp(positions, sizes, times) * max(1.0, positions / sizes[-1]))

    def step_s(self, positions: float, ranks: int, exchange_s: float) -> float:
        """Of `ranks` ranks with so many positions each: the slowest one's (Blom 1958), and the exchange."""
        score = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
        return self.seconds(positions) * (1 + self.spread * score) + exchange_s


def forecast(own: OwnSteps, gradient_bytes: int, weak: int, strong: int) -> list[dict[str, Any]]:
    """Speed-ups over one GPU. weak: positions of each GPU; strong: of all together."""
    found = []
    for link in LINKS:
        for gpus in GPU_COUNTS:
            exchange_s = link.all_reduce_s(gradient_bytes, gpus)
            weak_s = own.step_s(weak, gpus, exchange_s)
            speedups = {
                "weak": gpus * own.seconds(weak) / weak_s,
                "strong": own.seconds(strong) / own.step_s(strong / gpus, gpus, exchange_s),
            }
            found.append({"gpus": gpus, "link": link.name, **speedups, "exchange_share": exchange_s / weak_s})
    return found


def run(arguments: list[str]) -> dict[str, object]:
    """The document, measured or read."""
    parser = Parser(prog="alphazero bench scaling", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--gpus", type=count, default=0, help="ranks at most (default: GPUs or cores)")
    parser.add_argument("--batch-size", type=batch_size, default=1024, help="weak: of a rank; strong: of all")
    parser.add_argument("--seconds", type=seconds(), default=4.0, help="of measured steps")
    parser.add_argument("--steps-of", default="", help="model GPUs by this document of bench gpu")
    configure(parser)
    args, flags = parser.parse_known_args(arguments)
    return document_of("scaling", args, documents(args, flags), text)


def documents(args: argparse.Namespace, flags: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The document, once it is measured with these flags of `alphazero launch`."""
    gpu = read_document(given_path(args.steps_of, "--steps-of"), "gpu") if args.steps_of else None
    device, batch = choose_device(args.device, 0, os.environ).type, args.batch_size
    counts = rank_counts(args, device)

    def trained(ranks: int, batch: int) -> tuple[list[float], dict[str, Any]]:
        sizes = ("--device", device, "--gpus", str(ranks), "--batch-size", str(batch))
        # One CPU rank has one core, as it has among others.
        with on_cores(ranks if device == "cpu" else None):
            preset = () if training.names_preset(flags) else WITHOUT_PRESET
            found, settings = training.train((*preset, *flags, *sizes), args.seconds)
        return training.step_lengths(found, settings), settings

    lone = {size: trained(1, size) for size in sorted({batch // ranks for ranks in counts})}
    medians = {size: statistics.median(lengths) for size, (lengths, _) in lone.items()}
    lengths, settings = lone[batch]
    own, network = OwnSteps(medians, training.spread(lengths)), NetworkConfig(**settings["network"])
    parameters = on_meta_device(network).parameter_count()
    job = {"blocks": network.blocks, "filters": network.filters, "batch": batch}
    rows: list[dict[str, Any]] = []
    for ranks in counts:
        exchange_s = on_ranks(all_reduce_s, ranks, device, parameters) if ranks > 1 else 0.0
        for kind, whole in (("weak", batch * ranks), ("strong", batch)):
            step_s = statistics.median(trained(ranks, whole)[0]) if ranks > 1 else medians[whole]
            row = {"kind": kind, "ranks": ranks, "positions_per_rank": whole // ranks, "measured_s": step_s}
            row["predicted_s"] = own.step_s(whole // ranks, ranks, exchange_s)
            for speedup, step in (("speedup", "measured_s"), ("predicted_speedup", "predicted_s")):
                row[speedup] = whole / row[step] * own.seconds(batch) / batch
            rows.append(row)
    yield {
        "machine": describe_machine(device),
        "job": {**job, "precision": settings["training"]["precision"]},
        "scaling": rows,
        **model(own if device == "cuda" else None, BYTES_OF_A_GRADIENT * parameters, gpu, args.steps_of),
    }


def rank_counts(args: argparse.Namespace, device: str) -> list[int]:
    """1, 2, 4, ... to the most ranks. Raises ConfigError for more than the device has, or an uneven batch."""
    most = torch.cuda.device_count() if device == "cuda" else len(os.sched_getaffinity(0))
    if args.gpus > most:
        raise ConfigError(f"--gpus {args.gpus}: expected at most {most}, the GPUs or cores of this machine")
    counts = [1 << power for power in range((args.gpus or most).bit_length())]
    if args.batch_size % counts[-1]:
        raise ConfigError(
            f"--batch-size {args.batch_size}: expected a batch that {counts[-1]} ranks share evenly"
        )
    return counts


def all_reduce_s(runtime: Runtime, exchange: Exchange, num_parameters: int) -> float:
    """Seconds of one all-reduce of gradients among these ranks, the median of some."""
    tensor = torch.zeros(num_parameters, device=runtime.device)
    exchange.barrier()  # without a time of its own: all ranks need as many passes
    return statistics.median(pass_times(lambda: dist.all_reduce(tensor), runtime.device, 0.0))


def model(
    own: OwnSteps | None, gradient_bytes: int, gpu: dict[str, Any] | None, steps_of: str
) -> dict[str, Any]:
    """The forecast for many GPUs by their document or this machine's own steps, where one of them exists."""
    if gpu is not None:
        own, gradient_bytes = steps_of_gpu_bench(gpu, Path(steps_of))
    if own is None:
        return {"no_model": "No GPU: its steps were not measured, and none are modelled (--steps-of FILE)."}
    source = "this machine" if gpu is None else str(gpu["machine"]["device_name"])
    strong = max(own.seconds_by_positions)
    weak = min(1024, strong)
    basis = {"source": source, "weak": weak, "strong": strong, "gradient_bytes": gradient_bytes}
    return {"model_basis": basis, "model": forecast(own, gradient_bytes, weak, strong)}


def steps_of_gpu_bench(document: Mapping[str, Any], path: Path) -> tuple[OwnSteps, int]:
    """Steps by batch in bf16 at ZeRO 0, and the bytes of the network's gradients.

    Raises ConfigError where they were not measured.
    """
    steps, gradient_bytes = {}, 0
    for row in document["rows"]:
        words, figures = row["name"].split(), row.get("figures", {})
        gradient_bytes = gradient_bytes or BYTES_OF_A_GRADIENT * figures.get("parameters", 0)
        if figures and words[:3] == ["training", "bf16", "zero0"] and len(words) == 4:
            steps[int(words[3])] = figures["step_ms"] / 1000
    if document["rehearsal"] or not (steps and gradient_bytes):
        raise ConfigError(
            f"{path}: expected measured passes, and steps in bf16 at ZeRO 0, got a rehearsal or none"
        )
    return OwnSteps(steps, 0.0), gradient_bytes


def text(document: dict[str, Any]) -> str:
    """The tables in Markdown, and what the model assumes."""
    machine, job = document["machine"], document["job"]
    place = (
        f"{machine['device_name']}, torch {machine['versions']['torch']}; commit {machine['commit']}. "
        f"{job['blocks']}x{job['filters']} in {job['precision']}, {job['batch']} positions a rank (weak) or "
        "in all (strong)."
    )
    cells = [
        [
            row["kind"],
            str(row["ranks"]),
            str(row["positions_per_rank"]),
            shown(1000 * row["measured_s"]),
            shown(1000 * row["predicted_s"]),
            f"{row['measured_s'] / row['predicted_s']:.2f}",
            f"{row['speedup']:.2f}",
            f"{row['predicted_speedup']:.2f}",
        ]
        for row in sorted(document["scaling"], key=lambda row: (row["kind"] == "strong", row["ranks"]))
    ]
    header = ["scaling", "ranks", "positions a rank", "step, ms", "predicted, ms", "measured / predicted"]
    lines = [place, markdown_table([*header, "speed-up", "predicted"], cells)]
    lines += [modelled(document) if "model" in document else str(document["no_model"])]
    return "\n\n".join([*lines, "The model assumes:\n\n" + "\n".join(f"- {line}" for line in ASSUMPTIONS)])


def modelled(document: Mapping[str, Any]) -> str:
    """The model for many GPUs, beside what others published."""
    by_count: dict[int, list[str]] = {}
    for row in document["model"]:
        cell = f"{row['weak']:.2f}, {row['strong']:.2f} ({percent(row['exchange_share'])})"
        by_count.setdefault(row["gpus"], []).append(cell)
    names = dict.fromkeys(row["link"] for row in document["model"])
    header = ["GPUs", *(f"{name}: weak, strong (exchange)" for name in names), "published"]
    cells = [[str(gpus), *found, PUBLISHED.get(gpus, "-")] for gpus, found in by_count.items()]
    basis = document["model_basis"]
    place = (
        f"Modelled from the steps of {basis['source']}: {basis['weak']} positions a GPU (weak), "
        f"{basis['strong']} in all (strong); {shown(basis['gradient_bytes'] / 1e6)} MB exchanged."
    )
    return f"{place}\n\n{markdown_table(header, cells)}"
