"""Work on several ranks of this machine, each a process, without the launcher."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing

from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.ranks.meeting import lone_process_environment
from alphazero.training.ranks.runtime import default_threads, read_runtime


def on_ranks(work: Callable[..., object], num_ranks: int, device: str, *arguments: object) -> Any:  # noqa: ANN401
    """What `work(runtime, exchange, *arguments)` returns on rank 0, which must fit into JSON."""
    shared = {**lone_process_environment(), "WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)}
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory, "answer.json")
        passed = (work, shared, device, answer, arguments)
        multiprocessing.spawn(_run_rank, passed, nprocs=num_ranks)  # type: ignore[no-untyped-call]
        return json.loads(answer.read_text(encoding="utf-8"))


def _run_rank(
    rank: int,
    work: Callable[..., object],
    shared: dict[str, str],
    device: str,
    answer: Path,
    arguments: tuple[object, ...],
) -> None:
    os.environ.update({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    runtime = read_runtime(os.environ, device)
    torch.set_num_threads(default_threads(runtime.world_size))
    exchange = start_process_group(runtime)
    try:
        found = work(runtime, exchange, *arguments)
        if rank == 0:
            answer.write_text(json.dumps(found), encoding="utf-8")
        exchange.barrier()
    finally:
        end_process_group()
