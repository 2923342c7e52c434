"""What the preflight measures on each rank: own computing, arrival at barriers, all-reduce, single links."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist

from alphazero.launch.node.preflight_report import BANDWIDTH_BYTES, RankTimes
from alphazero.machine.machine import tcp_segments

MIB = 1 << 20
WARM_UPS = 2
BARRIERS = 9
LATENCY_REPEATS = 20
BANDWIDTH_REPEATS = 5
LATENCY_BYTES = 8
LINK_BYTES = 4 * MIB
# A rank with a good link meets a bad one in one round at most, so that the best of three counts.
LINK_ROUNDS = 3

Work = Callable[[], None]


def make_work(device: torch.device) -> tuple[Work, Work]:
    """What a rank does between barriers: matrix products on its device, then work of its host.

    About 20 ms of the device and 5 ms of the host on machines of 2024.
    """
    size, repeats = (4096, 100) if device.type == "cuda" else (512, 4)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    left = torch.ones(size, size, device=device, dtype=kind)
    right, product = torch.ones_like(left), torch.empty_like(left)
    source = torch.ones(2 * MIB)

    def compute() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=product)
        synchronise(device)

    def host() -> None:
        sum(range(100_000))
        source.to(device, copy=True)
        synchronise(device)

    return compute, host


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(device: torch.device, peers: Sequence[int], enter: Callable[[str], None]) -> RankTimes:
    """Measure on this rank, all ranks together. `enter` gets each step that waits for others.

    peers: ranks, this one among them, whose links are alike (link_peers).
    """
    sent, sent_again = tcp_segments()
    compute_ms, arrival_ms = _barriers(device, enter)
    enter("all-reduce of 8 bytes")
    latency_ms = _all_reduce_ms(device, LATENCY_BYTES, LATENCY_REPEATS)
    enter("large all-reduce")
    bandwidth_ms = _all_reduce_ms(device, BANDWIDTH_BYTES[device.type], BANDWIDTH_REPEATS)
    link_ms = _best_link_ms(device, peers, enter)
    now_sent, now_again = tcp_segments()
    segments = (now_sent - sent, now_again - sent_again)
    return RankTimes(compute_ms, arrival_ms, latency_ms, bandwidth_ms, link_ms, *segments)


def _barriers(device: torch.device, enter: Callable[[str], None]) -> tuple[float, float]:
    compute, host = make_work(device)
    token = torch.zeros(1, device=device)
    computes, arrivals = [], []
    for number in range(WARM_UPS + BARRIERS):
        enter(f"barrier {number}")
        dist.all_reduce(token)
        synchronise(device)
        begin = time.perf_counter()
        compute()
        computed = time.perf_counter()
        host()
        arrived = time.perf_counter()
        computes.append(1000 * (computed - begin))
        arrivals.append(1000 * (arrived - begin))
    return statistics.median(computes[WARM_UPS:]), statistics.median(arrivals[WARM_UPS:])


def _all_reduce_ms(device: torch.device, num_bytes: int, repeats: int) -> float:
    tensor = torch.zeros(num_bytes // 4, device=device)
    return _median_ms(device, lambda: dist.all_reduce(tensor), repeats)


def _median_ms(device: torch.device, work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(WARM_UPS + repeats):
        synchronise(device)
        begin = time.perf_counter()
        work()
        synchronise(device)
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times[WARM_UPS:])


def link_peers(rank: int, places: Sequence[tuple[str, int]]) -> list[int]:
    """Ranks whose links to `rank` are alike, itself included; `places` is (host, local rank) by rank.

    Over three hosts and more: the same local rank on each. On one host: all. Two hosts have one link,
    of which it cannot be known which end is slow: none.
    """
    hosts = {host for host, _ in places}
    if len(hosts) == 2:
        return []
    if len(hosts) == 1:
        return list(range(len(places)))
    return [other for other, (_, local_rank) in enumerate(places) if local_rank == places[rank][1]]


def partner_in_round(number: int, count: int, round_number: int) -> int | None:
    """Who plays `number` of `count` in a round-robin tournament (circle method); None sits out."""
    around = count - 1 if count % 2 == 0 else count
    still = count - 1 if count % 2 == 0 else None
    if number == still:
        return next(other for other in range(around) if (round_number - other) % around == other)
    other = (round_number - number) % around
    return still if other == number else other


def _best_link_ms(device: torch.device, peers: Sequence[int], enter: Callable[[str], None]) -> float | None:
    """The best of a few exchanges with different partners: a good rank is slow with a bad partner only."""
    if len(peers) < 3:
        return None
    own = peers.index(dist.get_rank())
    buffer = torch.zeros(LINK_BYTES // 4, device=device)
    rounds = min(LINK_ROUNDS, len(peers) - 1 if len(peers) % 2 == 0 else len(peers))
    best: list[float] = []
    for round_number in range(rounds):
        enter(f"link round {round_number}")
        partner = partner_in_round(own, len(peers), round_number)
        if partner is not None:
            exchange = partial(_exchange, buffer, peers[partner])
            best.append(_median_ms(device, exchange, BANDWIDTH_REPEATS))
    return min(best, default=None)


def _exchange(buffer: torch.Tensor, partner: int) -> None:
    if dist.get_rank() < partner:
        dist.send(buffer, partner)
        dist.recv(buffer, partner)
    else:
        dist.recv(buffer, partner)
        dist.send(buffer, partner)
