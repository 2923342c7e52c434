"""Keeps the rank of a GPU on processors near it, and reports them."""

from __future__ import annotations

import os
from itertools import groupby

import torch

from alphazero.machine import machine
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime


def pin_ranks(runtime: Runtime, exchange: Exchange, *, enabled: bool) -> list[str]:
    """Bind this rank to processors near its GPU, within what it was given; a line per host. Collective.

    Compute threads are cut to the processors that are left. Ranks on CPUs stay as they are.
    """
    own = _pin(runtime, enabled=enabled) if runtime.device.type == "cuda" else ""
    pinned = [one for one in exchange.gather([runtime.host, runtime.rank, own]) if one[2]]
    lines = []
    for host, ranks in groupby(pinned, key=lambda one: str(one[0])):
        by_rank = [(int(rank), str(text)) for _, rank, text in ranks]
        is_alike = len({text for _, text in by_rank}) == 1
        texts = [by_rank[0][1]] if is_alike else [f"rank {rank} {text}" for rank, text in by_rank]
        lines.append(f"processors on {host}: {'; '.join(texts)}")
    return lines


def _pin(runtime: Runtime, *, enabled: bool) -> str:
    """What was done with this rank."""
    if not enabled:
        return "ranks are not pinned, as configured"
    if machine.is_bound_by_launcher():
        return f"{machine.processors_text(frozenset(os.sched_getaffinity(0)))}, as the launcher bound it"
    count = torch.cuda.device_count()
    devices = [local % count for local in range(runtime.local_world_size)]
    uuids = [str(torch.cuda.get_device_properties(device).uuid) for device in devices]
    allowed = frozenset(os.sched_getaffinity(0))
    share = machine.share_of(runtime.local_rank, machine.processors_near(uuids), allowed)
    if share is None:
        return "ranks are not pinned: none are known to be nearer to one GPU than to another"
    try:
        machine.bind(share)
    except OSError as error:
        return f"ranks are not pinned: {error.strerror}"
    torch.set_num_threads(min(torch.get_num_threads(), len(share)))
    nodes = ", ".join(map(str, machine.nodes_of(share)))
    return f"{machine.processors_text(share)}{f' (NUMA node {nodes})' if nodes else ''}"
