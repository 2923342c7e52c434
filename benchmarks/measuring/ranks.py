"""Work on several ranks of this machine, each a process, without the launcher."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import multiprocessing

from alphazero.launch.node.store import lone_process_environment
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.ranks.runtime import default_threads, read_runtime


def on_ranks(work: Callable[..., object], num_ranks: int, device: str, *arguments: object) -> Any:  # noqa: ANN401
    """What `work(runtime, exchange, *arguments)` returns on rank 0, which must be small."""
    shared = {**lone_process_environment(), "WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)}
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    passed = (work, shared, device, answers, arguments)
    multiprocessing.spawn(_run_rank, passed, nprocs=num_ranks)  # type: ignore[no-untyped-call]
    return answers.get()


def _run_rank(
    rank: int,
    work: Callable[..., object],
    shared: dict[str, str],
    device: str,
    answers: multiprocessing.SimpleQueue[object],
    arguments: tuple[object, ...],
) -> None:
    os.environ.update({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    runtime = read_runtime(os.environ, device)
    torch.set_num_threads(default_threads(runtime.world_size))
    exchange = start_process_group(runtime)
    try:
        found = work(runtime, exchange, *arguments)
        if rank == 0:
            answers.put(found)
        exchange.barrier()
    finally:
        end_process_group()
