"""How long a step takes on many ranks, from parts that were measured: pure arithmetic.

step = own step by positions, in company + wait for the slowest rank + all-reduce of the gradients + one small
message. Every assumption is one of ASSUMPTIONS and stands in the tables.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

# Speed-ups that other AlphaZero programs state for 2, 4 and 8 GPUs, without saying how they scale the batch.
PUBLISHED = {2: (1.7, 1.9), 4: (3.1, 3.8), 8: (5.0, 7.0)}
GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)
ASSUMPTIONS = (
    "Gradients are fp32 and cross in one all-reduce after the last backward pass; nothing overlaps.",
    "Step times of ranks are independent and normal: the slowest of N is later than the mean by their spread "
    "times Blom's normal score ((N - 0.375) / (N + 0.25)).",
    "Between measured sizes a step's time is linear in its positions; below the smallest it stays as it is "
    "there (launches), above the largest it grows in proportion.",
    "GPUs of a host share NVLink; an all-reduce over hosts reduces within the host, crosses as a ring over "
    "hosts, and spreads within the host, one after the other.",
    "Loader, checkpoints and validation cost nothing beside training.",
)


@dataclass(frozen=True)
class Link:
    """What joins GPUs. Rates in bytes/s: inside a host per GPU (bus bandwidth), across hosts per host.

    latency_s: of one hop; a message makes 2 log2(ranks) of them.
    """

    name: str
    inside_rate: float
    across_rate: float
    gpus_per_host: int
    latency_s: float
    source: str


# The best all-reduce bus bandwidth of 8 H100s in public nccl-tests logs; networks at 80 % of line rate.
NVLINK_RATE = 275e9
NETWORK_SHARE = 0.8


def links(gpus_per_host: int) -> tuple[Link, ...]:
    """NVLink among all, and hosts joined by one network interface each."""

    def network(gigabits: int) -> Link:
        rate = NETWORK_SHARE * gigabits * 1e9 / 8
        source = f"{NETWORK_SHARE:.0%} of {gigabits} Gb/s per host, {gpus_per_host} GPUs a host on NVLink"
        return Link(f"{gigabits} Gb/s", NVLINK_RATE, rate, gpus_per_host, 20e-6, source)

    alone = Link("NVLink", NVLINK_RATE, NVLINK_RATE, max(GPU_COUNTS), 5e-6, "275 GB/s among all GPUs")
    return (alone, network(400), network(100))


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


def slowest_score(ranks: int) -> float:
    """By how many standard deviations the slowest of so many normal times exceeds their mean (Blom 1958)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def all_reduce_s(link: Link, num_bytes: int, ranks: int) -> float:
    """Seconds of one all-reduce over a link: rings within hosts and over hosts."""
    if ranks == 1:
        return 0.0
    inside = min(ranks, link.gpus_per_host)
    hosts = math.ceil(ranks / link.gpus_per_host)
    seconds = 2 * (inside - 1) / inside * num_bytes / link.inside_rate
    seconds += 2 * (hosts - 1) / hosts * num_bytes / link.across_rate
    return seconds + message_s(link, ranks)


def message_s(link: Link, ranks: int) -> float:
    """Seconds of a message of a few bytes among all."""
    return 2 * math.ceil(math.log2(ranks)) * link.latency_s if ranks > 1 else 0.0


def interpolated_s(measured: Sequence[tuple[int, float]], num_bytes: int) -> float:
    """Seconds of an all-reduce of this size from measured (bytes, seconds)."""
    return OwnSteps(dict(measured), 0.0).seconds(num_bytes)


def step_s(own: OwnSteps, positions: float, ranks: int, exchange_s: float) -> float:
    """Seconds of a step of `ranks` ranks with so many positions each."""
    return own.seconds(positions) * (1 + own.spread * slowest_score(ranks)) + exchange_s


@dataclass(frozen=True)
class Forecast:
    """Speed-up of so many GPUs over one. exchange_share: of a step of weak scaling."""

    gpus: int
    link: str
    weak: float
    strong: float
    exchange_share: float


def forecast(
    own: OwnSteps, gradient_bytes: int, weak_positions: int, strong_positions: int, gpus_per_host: int
) -> list[Forecast]:
    """weak_positions: of each GPU; strong_positions: of all together."""
    found = []
    for link in links(gpus_per_host):
        for gpus in GPU_COUNTS:
            exchange_s = all_reduce_s(link, gradient_bytes, gpus) + message_s(link, gpus)
            weak_s = step_s(own, weak_positions, gpus, exchange_s)
            strong_s = step_s(own, strong_positions / gpus, gpus, exchange_s)
            found.append(
                Forecast(
                    gpus,
                    link.name,
                    weak=gpus * own.seconds(weak_positions) / weak_s,
                    strong=own.seconds(strong_positions) / strong_s,
                    exchange_share=exchange_s / weak_s,
                )
            )
    return found
