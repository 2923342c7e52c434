"""The rules of docs/search.md as plain functions on a plain tree: what is walked, what visits are worth.

Values are from the point of view of a node's mover, sums run in edge order and in double precision.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SMALLEST_PRIOR = 1e-30


@dataclass(frozen=True)
class Settings:
    """What docs/search.md leaves open, under its names there."""

    algorithm: Literal["puct", "gumbel"] = "puct"
    simulations: int = 100
    leaves: int = 1
    c_base: float = 19652.0
    c_init: float = 2.5
    fpu_reduction: float = 0.0
    root_fpu_reduction: float = 0.0
    noise_epsilon: float = 0.0
    forced_playouts: float = 0.0
    proofs: bool = True
    c_visit: float = 50.0
    c_scale: float = 1.0
    considered: int = 16


@dataclass
class Edge:
    """A legal move of a node."""

    move: int
    index: int
    prior: float = 0.0  # P(a), always a float32 value
    visits: int = 0  # n(a)
    waiting: int = 0  # o(a)
    value_sum: float = 0.0  # w(a)
    child: Node | None = None
    exact: int | None = None  # with proofs: value of a proven child, as the edge's own node sees it

    @property
    def started(self) -> int:
        """n(a) + o(a)."""
        return self.visits + self.waiting


@dataclass
class Node:
    """A position of the tree; `proven` is its exact value for its mover, None if there is none."""

    edges: list[Edge]
    parent: Node | None = None
    parent_edge: int = -1
    proven: int | None = None
    evaluated: bool = False
    value: float = 0.0  # v
    draw: float = 0.0  # d
    by_first: bool = True  # whether its mover is the first player
    draw_sum: float = 0.0  # d, and that of every simulation that went further, in the order they finished

    @property
    def visits(self) -> int:
        return sum(edge.visits for edge in self.edges)

    @property
    def started(self) -> int:
        """N."""
        return sum(edge.started for edge in self.edges)

    @property
    def mean_value(self) -> float:
        return (self.value + ordered_sum([edge.value_sum for edge in self.edges])) / (1 + self.visits)

    @property
    def mean_draw(self) -> float:
        return self.draw_sum / (1 + self.visits)

    def playable(self) -> list[int]:
        """Numbers of the edges that are not proven lost."""
        return [number for number, edge in enumerate(self.edges) if edge.exact != -1]


def ordered_sum(numbers: Sequence[float]) -> float:
    """Left to right from 0 (the built-in sum compensates rounding in newer Pythons)."""
    return functools.reduce(operator.add, numbers, 0.0)


def softmax(logits: Sequence[float]) -> list[float]:
    """In double, the largest logit subtracted, summed in order."""
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    total = ordered_sum(powers)
    return [power / total for power in powers]


def halving_schedule(considered: int, num_legal: int, simulations: int) -> list[int]:
    """How often an edge that simulation i may walk has been walked before (sequential halving)."""
    m = min(considered, num_legal)
    if m <= 1:
        return list(range(simulations))
    visits, k, schedule = [0] * m, m, []
    while len(schedule) < simulations:
        for _ in range(max(1, math.floor(simulations / (math.ceil(math.log2(m)) * k)))):
            schedule += visits[:k]
            visits[:k] = [count + 1 for count in visits[:k]]
        k = max(2, k // 2)
    return schedule[:simulations]


def exploration(settings: Settings, prior: float, total: int, started: int) -> float:
    """U(a) with N = `total` and n(a) + o(a) = `started`."""
    c = math.log((total + settings.c_base + 1) / settings.c_base) + settings.c_init
    return c * math.sqrt(max(1, total)) * prior / (1 + started)


def puct_value(edge: Edge, unvisited: float) -> float:
    """q(a) of the PUCT rule; `unvisited` is the value of an edge never walked."""
    if edge.exact is not None:
        return edge.exact
    if edge.started == 0:
        return unvisited
    return (edge.value_sum - edge.waiting) / edge.started


def choose_puct(node: Node, settings: Settings, is_root: bool, forced: bool) -> int:
    """Number of the edge that PUCT walks; `forced` where playouts are forced."""
    total = node.started
    if forced:
        for number, edge in enumerate(node.edges):
            if edge.exact is None and (
                0 < edge.started < math.sqrt(settings.forced_playouts * edge.prior * total)
            ):
                return number
    fpu = settings.root_fpu_reduction if is_root else settings.fpu_reduction
    walked = ordered_sum([edge.prior for edge in node.edges if edge.started > 0])
    unvisited = max(-1.0, node.mean_value - fpu * math.sqrt(walked))

    def score(number: int) -> float:
        edge = node.edges[number]
        return puct_value(edge, unvisited) + exploration(settings, edge.prior, total, edge.started)

    return max(node.playable(), key=score)  # the first of those with the largest score


def completed_values(node: Node) -> list[float]:
    """completed(a) of every edge."""

    def known(edge: Edge) -> float:
        return float(edge.exact) if edge.exact is not None else edge.value_sum / edge.visits

    walked = [edge for edge in node.edges if edge.visits > 0]
    mix, total = node.value, node.visits
    if total > 0:
        weighted = ordered_sum([edge.prior * known(edge) for edge in walked])
        priors = ordered_sum([edge.prior for edge in walked])
        if priors > 0:
            mix = (node.value + total * weighted / priors) / (1 + total)
    return [known(edge) if edge.exact is not None or edge.visits > 0 else mix for edge in node.edges]


def log_priors(node: Node) -> list[float]:
    """l(a) of every edge."""
    return [math.log(max(edge.prior, SMALLEST_PRIOR)) for edge in node.edges]


def sigmas(node: Node, settings: Settings) -> list[float]:
    """sigma(a) of every edge."""
    most = max(edge.visits for edge in node.edges)
    scale = (settings.c_visit + most) * settings.c_scale
    return [scale * (value + 1) / 2 for value in completed_values(node)]


def improved_logits(node: Node, settings: Settings) -> list[float]:
    """l(a) + sigma(a) of every edge."""
    return [a + b for a, b in zip(log_priors(node), sigmas(node, settings), strict=True)]


def choose_gumbel_inner(node: Node, settings: Settings) -> int:
    """Number of the edge that Gumbel walks below the root."""
    policy, total = softmax(improved_logits(node, settings)), node.visits
    return max(node.playable(), key=lambda number: policy[number] - node.edges[number].visits / (1 + total))


def gumbel_scores(root: Node, settings: Settings, gumbels: Sequence[float]) -> list[float]:
    """g(a) + (l(a) + sigma(a)) of the root's edges."""
    return [g + logit for g, logit in zip(gumbels, improved_logits(root, settings), strict=True)]


def choose_gumbel_root(root: Node, settings: Settings, gumbels: Sequence[float]) -> int:
    """Number of the edge that Gumbel walks at the root."""
    schedule = halving_schedule(settings.considered, len(root.edges), settings.simulations)
    wanted = schedule[root.visits]
    playable = root.playable()
    candidates = [number for number in playable if root.edges[number].visits == wanted] or playable
    scores = gumbel_scores(root, settings, gumbels)
    return max(candidates, key=scores.__getitem__)


def prove(node: Node) -> None:
    """Give the node its exact value if its children's exact values settle it."""
    exact = [edge.exact for edge in node.edges]
    if 1 in exact:
        node.proven = 1
    elif None not in exact:
        node.proven = max(value for value in exact if value is not None)


def pruned_visits(root: Node, settings: Settings, allowed: Sequence[int]) -> list[int]:
    """Visits of the allowed edges without those that were only forced."""
    total = root.visits
    best = max(allowed, key=lambda number: root.edges[number].visits)

    def score(edge: Edge, visits: int) -> float:
        return puct_value(edge, 0.0) + exploration(settings, edge.prior, total, visits)

    threshold = score(root.edges[best], root.edges[best].visits)
    kept = []
    for number in allowed:
        edge = root.edges[number]
        visits = edge.visits
        if number != best and visits > 0 and edge.exact is None:
            forced = math.floor(math.sqrt(settings.forced_playouts * edge.prior * total))
            enough = [x for x in range(max(0, visits - forced), visits) if score(edge, x) < threshold]
            visits = enough[0] if enough else visits
            visits = 0 if visits <= 1 else visits
        kept.append(visits)
    return kept


def shares(weights: Sequence[float]) -> list[float]:
    """Scaled to sum 1."""
    total = ordered_sum(weights)
    return [weight / total for weight in weights]
