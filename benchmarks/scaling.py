"""Weak and strong scaling over 1 to N ranks of this machine, and a model of it for 1 to 64 GPUs.

Every step is one of `alphazero bench training`. The model adds its parts: a step of one rank, the wait for
the slowest one, the all-reduce of the gradients. Where the ranks are GPUs, or with `--steps-of FILE` (of
`alphazero bench gpu`), it goes on to 64 GPUs.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path, write_json
from alphazero.games.registry import get_spec
from alphazero.machine.machine import find_free_port
from alphazero.network.model.precision import choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.flags import Parser, count
from alphazero.settings.sections import NetworkConfig
from benchmarks import training
from benchmarks.gpu import FORMAT as GPU_FORMAT
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.page import markdown_table, percent, put_into_page, read_document, shown

FORMAT = 2
BYTES_OF_A_GRADIENT = 4
# Speed-ups that other AlphaZero programs state for 2, 4 and 8 GPUs, without saying how they scale the batch.
PUBLISHED = {2: "1.7-1.9", 4: "3.1-3.8", 8: "5.0-7.0"}
GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)
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


def links(gpus_per_host: int) -> list[Link]:
    """NVLink among all, and hosts joined by one network interface each."""
    rates = {f"{gigabits} Gb/s": NETWORK_SHARE * gigabits * 1e9 / 8 for gigabits in (400, 100)}
    networks = [Link(name, rate, gpus_per_host, 20e-6) for name, rate in rates.items()]
    return [Link("NVLink", NVLINK_RATE, max(GPU_COUNTS), 5e-6), *networks]


@dataclass(frozen=True)
class OwnSteps:
    """Steps of one rank that exchanges nothing: seconds by positions, and their spread as a share."""

    seconds_by_positions: Mapping[int, float]
    spread: float

    def seconds(self, positions: float) -> float:
        """Of a step of so many positions."""
        sizes = sorted(self.seconds_by_positions)
        times = [self.seconds_by_positions[size] for size in sizes]
        if positions <= sizes[0]:
            return times[0]
        if positions >= sizes[-1]:
            return times[-1] * positions / sizes[-1]
        right = bisect_left(sizes, positions)
        share = (positions - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
        return times[right - 1] + share * (times[right] - times[right - 1])

    def step_s(self, positions: float, ranks: int, exchange_s: float) -> float:
        """Of `ranks` ranks with so many positions each: the slowest one's (Blom 1958), and the exchange."""
        score = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
        return self.seconds(positions) * (1 + self.spread * score) + exchange_s


def forecast(
    own: OwnSteps, gradient_bytes: int, weak: int, strong: int, per_host: int
) -> list[dict[str, Any]]:
    """Speed-ups over one GPU. weak: positions of each GPU; strong: of all together."""
    found = []
    for link in links(per_host):
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
    training.configure(parser)
    parser.set_defaults(gpus=0, batch=1024, blocks=20, filters=256, precision="bf16")
    parser.add_argument("--gpus-per-host", type=count, default=8, help="of the model")
    parser.add_argument("--steps-of", default="", help="model GPUs by this document of bench gpu")
    parser.add_argument("--out", default="", help="file for the document")
    parser.add_argument("--table", default="", help="measure nothing: write the tables of this document")
    parser.add_argument("--into", default="", help="with --table: put them into this page of docs/")
    args = parser.parse_args(arguments)
    if args.into and not args.table:
        raise ConfigError("--into: expected --table FILE with it")
    if args.table:
        found = read_document(given_path(args.table, "--table"), "scaling", FORMAT)
        if args.into:
            put_into_page(given_path(args.into, "--into"), "scaling", text(found))
        return found
    gpu = read_document(given_path(args.steps_of, "--steps-of"), "gpu", GPU_FORMAT) if args.steps_of else None
    device = choose_device(args.device, 0, os.environ)
    counts = rank_counts(args, device)
    settings = {**vars(args), "device": device.type}
    names = ("blocks", "filters", "precision", "batch")
    document: dict[str, Any] = {
        "format": FORMAT,
        "machine": describe_machine(device.type),
        "job": {name: settings[name] for name in names},
        "scaling": (measured := Measured(settings, counts)).rows(),
    }
    document |= model(measured, args, gpu)
    if args.out:
        write_json(given_path(args.out, "--out"), {"bench": "scaling", **document})
    return document


def rank_counts(args: argparse.Namespace, device: torch.device) -> list[int]:
    """1, 2, 4, ... to the most ranks. Raises ConfigError for more than the device has, or an uneven batch."""
    most = torch.cuda.device_count() if device.type == "cuda" else len(os.sched_getaffinity(0))
    if args.gpus > most:
        raise ConfigError(f"--gpus {args.gpus}: expected at most {most}, the GPUs or cores of this machine")
    counts = [1 << power for power in range((args.gpus or most).bit_length())]
    if args.batch % counts[-1]:
        raise ConfigError(f"--batch {args.batch}: expected a batch that {counts[-1]} ranks share evenly")
    return counts


class Measured:
    """Steps of this machine: whole ones by ranks and batch, and the parts of the model."""

    def __init__(self, settings: Mapping[str, Any], counts: Sequence[int]) -> None:
        self.settings, self.counts = settings, counts
        network = NetworkConfig(blocks=settings["blocks"], filters=settings["filters"])
        with torch.device("meta"):
            self.gradient_bytes = (
                BYTES_OF_A_GRADIENT * AlphaZeroNet(network, get_spec("chess")).parameter_count()
            )
        batch = settings["batch"]
        lone = {size: self._lengths(1, size) for size in sorted({batch // ranks for ranks in counts})}
        medians = {size: statistics.median(lengths) for size, lengths in lone.items()}
        self.own = OwnSteps(medians, training.spread(lone[batch]))

    def _lengths(self, ranks: int, batch: int) -> list[float]:
        """Seconds of steps. One CPU rank has one core, as it has among others."""
        cores = os.sched_getaffinity(0)
        if self.settings["device"] == "cpu":
            os.sched_setaffinity(0, set(sorted(cores)[:ranks]))
        try:
            with tempfile.TemporaryDirectory() as directory:
                trained = training.train({**self.settings, "gpus": ranks, "batch": batch}, Path(directory))
        finally:
            os.sched_setaffinity(0, cores)
        return [batch / line["samples_per_s"] for line in trained.speeds]

    def rows(self) -> list[dict[str, Any]]:
        """Weak and strong steps: measured, and predicted from the parts."""
        found: list[dict[str, Any]] = []
        batch = self.settings["batch"]
        for ranks in self.counts:
            exchange_s = all_reduce_s(self.settings["device"], ranks, self.gradient_bytes)
            for kind, whole in (("weak", batch * ranks), ("strong", batch)):
                own = (
                    self.own.seconds(whole) if ranks == 1 else statistics.median(self._lengths(ranks, whole))
                )
                row = {"kind": kind, "ranks": ranks, "positions_per_rank": whole // ranks, "measured_s": own}
                row["predicted_s"] = self.own.step_s(whole // ranks, ranks, exchange_s)
                for speedup, step in (("speedup", "measured_s"), ("predicted_speedup", "predicted_s")):
                    row[speedup] = whole / row[step] * self.own.seconds(batch) / batch
                found.append(row)
        return found


def all_reduce_s(device: str, ranks: int, num_bytes: int) -> float:
    """Seconds of one all-reduce among ranks of this machine; the median of some."""
    if ranks == 1:
        return 0.0
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "seconds"
        arguments = (device, ranks, num_bytes, find_free_port(), str(answer))
        multiprocessing.spawn(_reduce, arguments, nprocs=ranks)  # type: ignore[no-untyped-call]
        return float(answer.read_text())


def _reduce(rank: int, device: str, ranks: int, num_bytes: int, port: int, answer: str) -> None:
    place, backend = (
        torch.device(device, rank if device == "cuda" else 0),
        "nccl" if device == "cuda" else "gloo",
    )
    if device == "cpu":
        torch.set_num_threads(1)
        place = torch.device("cpu")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        torch.cuda.set_device(place)
    method = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(backend, init_method=method, world_size=ranks, rank=rank)
    tensor, times = torch.zeros(num_bytes // BYTES_OF_A_GRADIENT, device=place), []
    for _ in range(7):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if device == "cuda":
            torch.cuda.synchronize(place)
        times.append(time.perf_counter() - begin)
    if rank == 0:
        Path(answer).write_text(str(statistics.median(times[2:])))
    dist.barrier()
    dist.destroy_process_group()


def model(measured: Measured, args: argparse.Namespace, gpu: dict[str, Any] | None) -> dict[str, Any]:
    """The forecast for many GPUs, where steps of a GPU are known."""
    if gpu is not None:
        own, source = steps_of_gpu_bench(gpu, Path(args.steps_of)), str(gpu["machine"]["device_name"])
    elif measured.settings["device"] == "cuda":
        own, source = measured.own, "this machine"
    else:
        return {"no_model": "No GPU: its steps were not measured, and none are modelled (--steps-of FILE)."}
    strong = max(own.seconds_by_positions)
    weak = min(1024, strong)
    basis = {"source": source, "weak": weak, "strong": strong, "gradient_bytes": measured.gradient_bytes}
    found = forecast(own, measured.gradient_bytes, weak, strong, args.gpus_per_host)
    return {"model_basis": basis, "model": found}


def steps_of_gpu_bench(document: Mapping[str, Any], path: Path) -> OwnSteps:
    """Steps by batch in bf16 at ZeRO 0. Raises ConfigError where none was measured."""
    steps = {}
    for row in document["rows"]:
        words = row["name"].split()
        if "figures" in row and words[:3] == ["training", "bf16", "zero0"] and len(words) == 4:
            steps[int(words[3])] = row["figures"]["step_ms"] / 1000
    if document["rehearsal"] or not steps:
        raise ConfigError(f"{path}: expected measured steps in bf16 at ZeRO 0, got a rehearsal or none")
    return OwnSteps(steps, 0.0)


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
