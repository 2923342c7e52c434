"""What a machine can do: its environment, its disk, and the speed of presets in short runs of the program.

A preset is measured by two commands that people use as well. `alphazero launch` trains until it is stopped
after some seconds; its metrics.jsonl has the speed of training. `alphazero selfplay`, one process for each
rank, then plays with the untrained network of that run.

This module as a program examines a host of a hostfile (launch/plan/programs.py): a request as
JSON on stdin, the examined host as a marked line of JSON on stdout.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alphazero.base.errors import TrainingError
from alphazero.base.files import nearest_existing
from alphazero.base.records import from_json, from_output, to_json
from alphazero.launch.head.compare import explain
from alphazero.launch.head.remote import run_everywhere
from alphazero.launch.plan import programs
from alphazero.launch.plan.hostfile import Host
from alphazero.launch.plan.launch_plan import Remote, SshOptions
from alphazero.machine.environment import environment
from alphazero.machine.machine import list_devices
from alphazero.machine.memory import HostMemory, count_cores
from alphazero.machine.nvml import open_nvml
from alphazero.measure.short_run import RUN_NAME, ShortCommand, last_lines, train_for, visible_gpus
from alphazero.settings.load import Config, load_config, preset_names

MARK = "alphazero-doctor "  # before the JSON of a host: login scripts may print other things
MILLION = 1_000_000
JOULES_PER_KWH = 3.6e6
# `make demo`: the preset connect4 with fewer generations.
DEMO_PRESET, DEMO_GENERATIONS = "connect4", 22
CHESS_POSITIONS = 100 * MILLION

DISK_BYTES, CHUNK_BYTES = 64 << 20, 4 << 20

# On a CPU a step of more positions can take minutes; smaller ones differ by the optimizer's step alone.
LARGEST_CPU_BATCH, SMALLER_CPU_BATCH = 512, 256
# Operations of a step on a CPU or on each GPU, above which no short run is tried: chess_20x256 takes 2.4e12
# there, chess_bt4 2.0e14 on one GPU.
MOST_STEP_FLOP = {"cpu": 4e12, "cuda": 4e14}
# Of the memory, what weights, gradients and optimizer state may take beside activations and libraries.
MEMORY_SHARE = 0.8
# Operations a second of bf16 and fp16 products, without sparsity, by what NVML's names begin with (NVIDIA's
# data sheets).
GPU_PEAKS = {
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100": 312e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L4": 121e12,
}
PRODUCT_SIZE, PRODUCT_S = 1024, 0.3  # of the product that is a CPU's peak, and how long it is measured
# Self-play before the steps is short: its games only feed them.
SHORT_GENERATION = (
    *("--generations", "1", "--steps-per-generation", "1000000", "--reuse", "1000000"),
    *("--lanes", "64", "--simulations-per-round", "128", "--simulations", "2"),
)


@dataclass(frozen=True)
class Examination:
    """What to examine on a host.

    presets: none for all that this host trains in a short run. runs: the directory whose disk is measured.
    seconds: for training and again for self-play of each preset; 0 measures nothing. ranks: 0 for as many as
    `alphazero launch` chooses.
    """

    presets: tuple[str, ...]
    runs: str
    device: str
    seconds: float
    ranks: int = 0


@dataclass(frozen=True)
class DiskSpeed:
    """In bytes per second; directory: the nearest existing one above the directory of the runs."""

    directory: str
    write: float
    read: float


@dataclass(frozen=True)
class PresetSpeed:
    """Rates per second over all ranks; watts by processor or GPU.

    batch_size: of the measured steps. memory_bytes: of a rank while it trains, on its GPU where it has one.
    plays: positions to train on that self-play makes. step_flop: operations of a position in a step. peak: of
    all devices of the run per second; 0 where unknown. fault: why the preset could not be measured; the rest
    then means nothing.
    """

    preset: str
    game: str = ""
    network: str = ""
    mode: str = ""
    ranks: int = 0
    device: str = ""
    precision: str = ""
    batch_size: int = 0
    trains: float = 0.0
    memory_bytes: int = 0
    plays: float = 0.0
    evaluations: float = 0.0
    watts: dict[str, float] = field(default_factory=dict)
    step_flop: int = 0
    peak: float = 0.0
    fault: str = ""

    @property
    def share_of_peak(self) -> float | None:
        """What training reaches of the devices' largest number of operations; None where that is unknown."""
        return self.trains * self.step_flop / self.peak if self.peak else None

    def hours(self, positions: float) -> float | None:
        """To train on so many positions; None where the speed was not measured."""
        return positions / self.trains / 3600 if self.trains else None

    def kwh(self, hours: float | None) -> float | None:
        """At the power measured while the preset trained; None where it was not measured."""
        return sum(self.watts.values()) * hours * 3600 / JOULES_PER_KWH if hours and self.watts else None


@dataclass(frozen=True)
class JobEstimate:
    """How long a job takes; hours and kwh are None where what they need was not measured."""

    job: str
    preset: str
    hours: float | None
    kwh: float | None


@dataclass(frozen=True)
class ExaminedHost:
    """disk: None where it was not measured. left_out: a line for each preset that was not even tried.

    fault: why the host could not be examined, else "".
    """

    host: str
    environment: dict[str, Any]
    disk: DiskSpeed | None = None
    disk_fault: str = ""
    presets: tuple[PresetSpeed, ...] = ()
    left_out: tuple[str, ...] = ()
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """With the hours and the energy that follow from the measured speeds."""
        table = dataclasses.asdict(self)
        for one, speed in zip(table["presets"], self.presets, strict=True):
            one["hours_per_million"] = speed.hours(MILLION)
            one["kwh_per_million"] = speed.kwh(speed.hours(MILLION))
            one["share_of_peak"] = speed.share_of_peak
        return {**table, "estimates": [dataclasses.asdict(one) for one in estimates(self.presets)]}


def estimates(measured: Sequence[PresetSpeed]) -> list[JobEstimate]:
    """The Connect Four demo, and 100 million positions of chess with each preset of chess."""
    found = []
    for one in measured:
        if one.preset == DEMO_PRESET:
            job = f"the Connect Four demo (make demo: {DEMO_GENERATIONS} generations)"
            hours = _self_play_hours(one, DEMO_GENERATIONS)
            found.append(JobEstimate(job, one.preset, hours, one.kwh(hours)))
        if one.game == "chess":
            hours = one.hours(CHESS_POSITIONS)
            job = f"{CHESS_POSITIONS // MILLION} million positions of chess"
            found.append(JobEstimate(job, one.preset, hours, one.kwh(hours)))
    return found


def _self_play_hours(speed: PresetSpeed, generations: int) -> float | None:
    """Playing and training take turns in a run that learns from its own games."""
    if not speed.plays or not speed.trains:
        return None
    config = load_config(speed.preset, {})
    trained = generations * config.self_play.steps_per_generation * config.training.batch_size
    return (trained / speed.trains + trained / config.self_play.reuse / speed.plays) / 3600


def examine_this_host(asked: Examination, say: Callable[[str], None] = lambda text: None) -> ExaminedHost:
    """Describe this host, and measure its disk and the presets, each announced by `say`."""
    if not asked.seconds:
        return ExaminedHost(platform.node(), environment())
    disk, disk_fault = None, ""
    try:
        disk = measure_disk(Path(asked.runs))
    except OSError as error:
        disk_fault = f"{asked.runs}: cannot be written: {error.strerror}"
    left_out: dict[str, str] = {}
    if not asked.presets:
        left_out = {name: why for name in preset_names() if (why := why_left_out(name, asked))}
    presets = [name for name in asked.presets or preset_names() if name not in left_out]
    measured = []
    for number, preset in enumerate(presets, 1):
        say(f"{number} of {len(presets)}: {preset}")
        measured.append(measure_preset(preset, asked))
    lines = tuple(f"{name}: left out: {why}" for name, why in left_out.items())
    return ExaminedHost(platform.node(), environment(), disk, disk_fault, tuple(measured), lines)


def why_left_out(preset: str, asked: Examination) -> str:
    """Why no short run here trains the preset; "" where one does."""
    from alphazero.measure.sizes import PASSES_OF_STEP, forward_flops, on_meta_device, rank_bytes

    config, gpus = load_config(preset, {}), visible_gpus(asked.device)
    ranks = asked.ranks or len(gpus) or 1
    positions = batch_size_of(config, on_gpu=bool(gpus)) / (ranks if gpus else 1)
    step = PASSES_OF_STEP * forward_flops(config.network) * positions
    if step > MOST_STEP_FLOP["cuda" if gpus else "cpu"]:
        return f"a step takes {step:.1e} operations" + (" on each GPU" if gpus else ", too many for a CPU")
    network = on_meta_device(config.network)
    moments = 2 * network.parameter_count()  # at most
    needed = rank_bytes(network, moments, config.training.zero_stage, ranks) * (1 if gpus else ranks)
    memory = _smallest_gpu_bytes() if gpus else HostMemory().check().available_bytes
    if memory and needed > MEMORY_SHARE * memory:
        return f"its weights, gradients and optimizer state take {needed:,} bytes, of {memory:,} here"
    return ""


def _smallest_gpu_bytes() -> int:
    """0 where NVML does not tell."""
    with open_nvml() as nvml:
        return min((gpu.memory_total_bytes or 0 for gpu in nvml.gpus()), default=0)


def examine_hosts(
    hosts: Sequence[Host], ssh: SshOptions, asked: Examination, limit_s: float
) -> list[ExaminedHost]:
    """All hosts at once, each with as many ranks as it has slots; in the order of the hosts."""
    remotes = [Remote(host.address, host.name, ssh=ssh) for host in hosts]
    lines = [to_json(dataclasses.replace(asked, ranks=host.slots)) + "\n" for host in hosts]
    found = []
    for answer in run_everywhere(remotes, programs.words_of(programs.DOCTOR), lines, limit_s):
        host = from_output(ExaminedHost, MARK, answer.output) if answer.status == 0 else None
        fault = explain(answer, limit_s)
        found.append(host or ExaminedHost(answer.remote.name, {}, fault=fault))
    return found


def measure_disk(directory: Path, size_bytes: int = DISK_BYTES) -> DiskSpeed:
    """Write a temporary file, flush it to the disk, and read it with the page cache dropped.

    Raises OSError where nothing can be written.
    """
    existing = nearest_existing(directory)
    chunk = os.urandom(CHUNK_BYTES)
    with tempfile.TemporaryFile(dir=existing, buffering=0) as file:
        started = time.perf_counter()
        for _ in range(max(1, size_bytes // CHUNK_BYTES)):
            file.write(chunk)
        os.fsync(file.fileno())
        written = time.perf_counter()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        size = file.seek(0, os.SEEK_CUR)
        file.seek(0)
        reading = time.perf_counter()
        while file.read(CHUNK_BYTES):
            pass
        ended = time.perf_counter()
    return DiskSpeed(str(existing), size / (written - started), size / (ended - reading))


def measure_preset(preset: str, asked: Examination) -> PresetSpeed:
    """A short training run and a short self-play of one preset."""
    config = load_config(preset, {})
    with tempfile.TemporaryDirectory(prefix="alphazero-doctor-") as directory:
        try:
            speed = _train(preset, config, asked, Path(directory))
            evaluations = _play(speed, config, asked, Path(directory))
        except TrainingError as error:
            return PresetSpeed(preset, fault=str(error))
    plays = evaluations / evaluations_per_position(config)
    return dataclasses.replace(speed, evaluations=evaluations, plays=plays)


def evaluations_per_position(config: Config) -> float:
    """Evaluations for each position to train on: the simulations of all moves over the moves kept."""
    share, simulations = config.self_play.full_search_share, config.search.simulations
    return (share * simulations + (1 - share) * config.self_play.fast_simulations) / share


def batch_size_of(config: Config, *, on_gpu: bool) -> int:
    """Positions of the measured steps."""
    batch_size = config.training.batch_size
    return SMALLER_CPU_BATCH if not on_gpu and batch_size > LARGEST_CPU_BATCH else batch_size


def _train(preset: str, config: Config, asked: Examination, directory: Path) -> PresetSpeed:
    """The preset as `alphazero launch` trains it. Raises TrainingError."""
    from alphazero.measure.sizes import PASSES_OF_STEP, forward_flops

    on_gpu = bool(visible_gpus(asked.device))
    batch_size = batch_size_of(config, on_gpu=on_gpu)
    flags = ["--config", preset, "--device", asked.device, "--batch-size", str(batch_size)]
    flags += ["--log-interval", "10" if on_gpu else "1"]
    flags += ["--gpus", str(asked.ranks)] if asked.ranks else []
    flags += SHORT_GENERATION if config.self_play.mode != "supervised" else ()
    trained = train_for(flags, asked.seconds, directory)
    return PresetSpeed(
        preset,
        game=config.network.game,
        network=f"{config.network.blocks}x{config.network.filters}",
        mode=config.self_play.mode,
        ranks=trained.ranks,
        device="cuda" if on_gpu else "cpu",
        precision=trained.precision,
        batch_size=batch_size,
        trains=trained.samples_per_s,
        memory_bytes=trained.memory_bytes,
        watts=dict(trained.watts),
        step_flop=PASSES_OF_STEP * forward_flops(config.network),
        peak=trained.ranks * gpu_peak(trained.precision) if on_gpu else cpu_peak(trained.precision),
    )


def gpu_peak(precision: str) -> float:
    """Operations a second of this host's first GPU; 0 where they are not known."""
    devices = list_devices(files_present=True) if precision in ("bf16", "fp16") else ()
    names = [name for name in GPU_PEAKS if devices and devices[0].name.startswith(name)]
    return GPU_PEAKS[names[0]] if names else 0.0


def cpu_peak(precision: str) -> float:
    """Operations a second of a square product on all cores, the fastest that was seen."""
    import torch

    from alphazero.network.model.precision import DTYPES

    chance = torch.Generator().manual_seed(1)
    left, right = (
        torch.randn(PRODUCT_SIZE, PRODUCT_SIZE, generator=chance).to(DTYPES[precision]) for _ in range(2)
    )
    shortest, end = float("inf"), time.perf_counter() + PRODUCT_S
    while (began := time.perf_counter()) < end:
        torch.mm(left, right)
        shortest = min(shortest, time.perf_counter() - began)
    return 2 * PRODUCT_SIZE**3 / shortest


def _play(speed: PresetSpeed, config: Config, asked: Examination, directory: Path) -> float:
    """Evaluations per second of `alphazero selfplay`, once for each rank of the run. Raises TrainingError."""
    import torch

    from alphazero.network.model.precision import evaluation_precision

    own = config.self_play
    precision = evaluation_precision(
        own.evaluation_precision,
        speed.precision,
        torch.device(speed.device),
        config.network.body,
        config.network.game,
    )
    gpus, threads = visible_gpus(asked.device), max(1, count_cores() // speed.ranks)
    arguments = ["selfplay", "--config", speed.preset, "--weights", str(directory / RUN_NAME), "--json"]
    arguments += ["--device", speed.device, "--precision", precision, "--seconds", str(asked.seconds)]
    arguments += ["--games", "1000000", "--lanes", str(max(1, own.lanes // speed.ranks))]
    each = []
    for rank in range(speed.ranks):
        variables = {"OMP_NUM_THREADS": str(threads)}
        variables |= {"CUDA_VISIBLE_DEVICES": gpus[rank]} if gpus else {}
        out = ["--out", str(directory / f"games-{rank}"), "--seed", str(rank)]
        each.append(ShortCommand([*arguments, *out], variables))
    return sum(float(json.loads(output)["evaluations_per_s"]) for output in last_lines(each, directory))


def main() -> int:
    """Examine this host as requested on stdin."""
    print(MARK + to_json(examine_this_host(from_json(Examination, sys.stdin.readline()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
