"""Ranks that are forks of a process, have a thread each and talk over gloo."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def on_ranks(world_size: int, work: Callable[[int], object]) -> list[Any]:
    """What work(rank) returns on each rank, which must fit into JSON."""
    with tempfile.TemporaryDirectory() as text:
        results = [Path(text, str(rank)) for rank in range(world_size)]
        children = []
        for rank, result in enumerate(results):
            pid = os.fork()
            if pid == 0:
                torch.set_num_threads(1)
                store = f"file://{text}/store"
                dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
                result.write_text(json.dumps(work(rank)))
                dist.barrier()
                os._exit(0)
            children.append(pid)
        statuses = [os.waitpid(pid, 0)[1] for pid in children]
        assert statuses == [0] * world_size, statuses
        return [json.loads(result.read_text()) for result in results]
