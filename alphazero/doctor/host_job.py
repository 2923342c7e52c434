"""The doctor's job on this host: as many ranks as training would have, which measure presets together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.cluster.plan.node import choose_cpu_ranks
from alphazero.doctor.figures import PresetFigures, figures_from_json
from alphazero.machine.die_with_parent import guarded
from alphazero.machine.machine import find_free_port, look_at_this_machine, visible_devices
from alphazero.machine.memory import HostMemory, count_cores
from alphazero.settings.load import Config, load_config
from alphazero.training.ranks.batch import LEAST_MICRO_BATCH, batch_over, fix_batch, plan_batches

PROGRAM = "alphazero.doctor.rank"
# Beyond what the ranks are told to take: their start, and steps that take longer than was thought.
START_S = 240.0
TIMES_LONGER = 10


def ranks_for(preset: str, device: str) -> int:
    """As `alphazero launch` chooses: one per GPU that can be seen, else by cores, batch and memory."""
    if device != "cpu":
        machine = look_at_this_machine(device)
        if machine.devices:
            return max(1, len(visible_devices(machine.devices, os.environ.get("CUDA_VISIBLE_DEVICES"))))
    config, cores = load_config(preset, {}), count_cores()
    available = HostMemory().check().available_bytes
    least, batch = LEAST_MICRO_BATCH["cpu"], batch_over(config, cores)

    def at_work(num_ranks: int) -> float:
        return _ranks_at_work(config, num_ranks)

    return choose_cpu_ranks(cores, batch, least, config.network, available, at_work).num_ranks


def _ranks_at_work(config: Config, num_ranks: int) -> float:
    try:
        fixed, _ = fix_batch(config, num_ranks, None)
        training = fixed.training
        plan = plan_batches(training.batch_size, training.micro_batch_size, [1.0] * num_ranks, "cpu")
    except ConfigError:
        return 0.0
    return num_ranks * (1 - plan.idle_share)


def measure_presets(
    presets: Sequence[str], device: str, seconds: float, ranks: int = 0
) -> list[PresetFigures]:
    """Each preset for about twice `seconds`. ranks: 0 for as many as training would have."""
    by_ranks: dict[int, list[str]] = {}
    for preset in presets:
        by_ranks.setdefault(ranks or ranks_for(preset, device), []).append(preset)
    found = [one for count, named in by_ranks.items() for one in _run_job(named, count, device, seconds)]
    return sorted(found, key=lambda one: presets.index(one.preset))


def _run_job(presets: Sequence[str], ranks: int, device: str, seconds: float) -> list[PresetFigures]:
    limit_s = START_S + TIMES_LONGER * 2 * seconds * len(presets)
    with tempfile.TemporaryDirectory(prefix="alphazero-doctor-") as directory:
        order, result = Path(directory, "order.json"), Path(directory, "result.json")
        told = {"presets": list(presets), "device": device, "seconds": seconds, "plays": True}
        order.write_text(json.dumps(told), encoding="utf-8")
        fault = _run_ranks([PROGRAM, str(order), str(result)], ranks, Path(directory), limit_s)
        found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else []
    figures = [figures_from_json(one) for one in found]
    missing = presets[len(figures) :]
    return [*figures, *(PresetFigures(preset, fault=fault or "it said nothing") for preset in missing)]


def _run_ranks(module: Sequence[str], ranks: int, directory: Path, limit_s: float) -> str:
    """Run the ranks to their end; "" or what the first one that failed said last."""
    port = find_free_port()
    processes = []
    try:
        for rank in range(ranks):
            with Path(directory, f"rank-{rank}.txt").open("wb") as output:
                processes.append(
                    subprocess.Popen(
                        guarded((sys.executable, "-m", *module)),
                        env=_environment(rank, ranks, port),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        return _wait(processes, directory, limit_s)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _wait(processes: Sequence[subprocess.Popen[bytes]], directory: Path, limit_s: float) -> str:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for rank, process in enumerate(processes):
            if process.poll():
                return _last_words(directory / f"rank-{rank}.txt", rank, process.returncode)
        if all(process.poll() == 0 for process in processes):
            return ""
        time.sleep(0.1)
    return f"did not end within {limit_s:.0f} s"


def _last_words(path: Path, rank: int, status: int) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"rank {rank} ended with status {status}: {lines[-1] if lines else 'it said nothing'}"


def _environment(rank: int, ranks: int, port: int) -> Mapping[str, str]:
    """Of a launcher for ranks of one host, which talk over the loopback."""
    local = {name: os.environ.get(name, "lo") for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
    world = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
    place = {"RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    checkout = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (checkout, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **local, **world, **place, "PYTHONPATH": path}
