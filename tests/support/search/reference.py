"""The tree search of docs/search.md a second time: plain, slow, and independent of the core.

Every node is an object, sums are taken anew where they are needed, in edge order and in double precision.
`ReferenceSearch` is driven like the core's searches: start, then collect and apply by turns until collect
returns no leaf, then result. Moves are the core's 16-bit moves, edges are legal moves in
ascending order of policy index, values are from the point of view of the side to move.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alphazero._core as _core
from alphazero.games.core_types import Line
from tests.support.search.reference_rules import (
    Edge,
    Node,
    Settings,
    choose_gumbel_inner,
    choose_gumbel_root,
    choose_puct,
    gumbel_scores,
    improved_logits,
    ordered_sum,
    prove,
    pruned_visits,
    puct_value,
    shares,
    softmax,
)

NOT_PROVEN = 2  # in a dump and a result, where a proven value would be -1, 0 or 1

Path = list[tuple[Node, Edge]]


@dataclass(frozen=True)
class Result:
    """What a search found: policy f64 [num_legal] in edge order, and the values for the root's mover."""

    policy: NDArray[np.float64]
    move: int
    root_q: float
    root_d: float
    best_q: float
    best_d: float
    orig_q: float
    orig_d: float
    visits: int
    proven: int


@dataclass
class ReferenceSearch:
    """One tree: start, then collect and apply until collect is empty, then result."""

    settings: Settings
    root: Node = field(init=False)
    line: Line = field(init=False)
    created: list[Node] = field(init=False)
    queue: list[tuple[Node, Path, Line]] = field(init=False, default_factory=list)
    noise: list[float] | None = field(init=False, default=None)

    def start(self, line: Line, noise: NDArray[np.float64] | None) -> None:
        """A new tree at the end of `line`; noise f64 [num_legal]: a Dirichlet sample or Gumbels."""
        self.line = line.copy()
        self.created = []
        self.root = self._make_node(self.line, None, -1)
        self.noise = None if noise is None else [float(number) for number in noise]

    def _make_node(self, line: Line, parent: Node | None, parent_edge: int) -> Node:
        outcome = line.outcome()
        moves = [] if outcome.over else sorted(line.legal(), key=line.move_to_index)
        edges = [Edge(move, line.move_to_index(move)) for move in moves]
        node = Node(edges, parent, parent_edge, proven=outcome.value if outcome.over else None)
        node.by_first = line.first_player_to_move
        self.created.append(node)
        return node

    @property
    def _noisy(self) -> bool:
        """Is this a PUCT root with noise?"""
        return (
            self.settings.algorithm == "puct" and self.settings.noise_epsilon > 0 and self.noise is not None
        )

    def _mix_noise(self) -> None:
        if self._noisy:
            epsilon = self.settings.noise_epsilon
            for edge, noise in zip(self.root.edges, self.noise, strict=True):
                edge.prior = float(np.float32((1 - epsilon) * edge.prior + epsilon * noise))

    @property
    def done(self) -> bool:
        """Is nothing left to simulate?"""
        if self.queue:
            return False
        if self.root.proven is not None:
            return True
        return self.root.evaluated and self.root.started >= self.settings.simulations

    def collect(
        self, fill: _core.HistoryFill
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """A round's leaves: packed u8 [B, bytes], legal_index i32 [K], legal_offset i32 [B + 1]."""
        if not self.root.evaluated and self.root.proven is None:
            self.queue = [(self.root, [], self.line.copy())]
        while self.root.evaluated and not self.done_walking():
            path, line = self._walk()
            end = path[-1][1].child
            if end.proven is not None:
                self._finish(path, float(end.proven), float(end.proven == 0))
            elif any(leaf is end for leaf, _, _ in self.queue):
                break  # called off
            else:
                self.queue.append((end, path, line))
                for _, edge in path:
                    edge.waiting += 1
        num_bytes = len(self.line.packed(fill))
        packed = [line.packed(fill) for _, _, line in self.queue]
        indices = [[edge.index for edge in leaf.edges] for leaf, _, _ in self.queue]
        return (
            np.array(packed, np.uint8).reshape(-1, num_bytes),
            np.array([index for row in indices for index in row], np.int32),
            np.cumsum([0] + [len(row) for row in indices], dtype=np.int32),
        )

    def done_walking(self) -> bool:
        """Is the round full, the root proven, or every simulation started?"""
        return (
            len(self.queue) >= self.settings.leaves
            or self.root.proven is not None
            or self.root.started >= self.settings.simulations
        )

    def _choose(self, node: Node) -> int:
        is_root = node is self.root
        if self.settings.algorithm == "puct":
            forced = is_root and self._noisy and self.settings.forced_playouts > 0
            return choose_puct(node, self.settings, is_root, forced)
        if is_root:
            return choose_gumbel_root(node, self.settings, self._gumbels())
        return choose_gumbel_inner(node, self.settings)

    def _gumbels(self) -> list[float]:
        return [0.0] * len(self.root.edges) if self.noise is None else self.noise

    def _walk(self) -> tuple[Path, Line]:
        """The path to an edge never walked (whose child is made), a proven node or a leaf that waits."""
        node, path, line = self.root, [], self.line.copy()
        while node.evaluated and node.proven is None:
            number = self._choose(node)
            edge = node.edges[number]
            path.append((node, edge))
            line.push(edge.move)
            if edge.child is None:
                edge.child = self._make_node(line, node, number)
            node = edge.child
        return path, line

    def apply(self, legal_logits: NDArray[np.float32], wdl: NDArray[np.float32]) -> None:
        """Evaluations of the leaves of the last collect: legal_logits f32 [K], wdl f32 [B, 3]."""
        first = 0
        for (leaf, path, _), (win, draw, loss) in zip(self.queue, wdl.tolist(), strict=True):
            logits = legal_logits[first : first + len(leaf.edges)].tolist()
            first += len(leaf.edges)
            for edge, prior in zip(leaf.edges, softmax(logits), strict=True):
                edge.prior = float(np.float32(prior))
            leaf.evaluated, leaf.value, leaf.draw = True, win - loss, draw
            leaf.draw_sum = draw
            if leaf is self.root:
                self._mix_noise()
            for _, edge in path:
                edge.waiting -= 1
            self._finish(path, leaf.value, draw)
        self.queue = []

    def _finish(self, path: Path, value: float, draw: float) -> None:
        for node, edge in reversed(path):
            passes = edge.child.by_first != node.by_first
            value = -value if passes else value
            edge.visits += 1
            edge.value_sum += value
            node.draw_sum += draw
            if self.settings.proofs and edge.child.proven is not None:
                edge.exact = -edge.child.proven if passes else edge.child.proven
                prove(node)

    def nodes(self) -> dict[str, NDArray[Any]]:
        """The whole tree, in order of creation; value: what the network said, 0 where it was never asked."""
        number = {id(node): place for place, node in enumerate(self.created)}
        edges = [edge for node in self.created for edge in node.edges]
        parents = [-1 if node.parent is None else number[id(node.parent)] for node in self.created]
        return {
            "parent": np.array(parents, np.int32),
            "parent_edge": np.array([node.parent_edge for node in self.created], np.int32),
            "edge_offset": np.cumsum([0] + [len(node.edges) for node in self.created], dtype=np.int32),
            "move": np.array([edge.move for edge in edges], np.uint16),
            "index": np.array([edge.index for edge in edges], np.int32),
            "prior": np.array([edge.prior for edge in edges], np.float32),
            "visits": np.array([edge.visits for edge in edges], np.int32),
            "value_sum": np.array([edge.value_sum for edge in edges], np.float64),
            "proven": np.array([_proven_code(node) for node in self.created], np.int8),
            "value": np.array([node.value for node in self.created], np.float64),
        }

    def _allowed(self) -> list[int]:
        """Numbers of the root's edges that may be played."""
        edges = self.root.edges
        if self.root.proven is None:
            return self.root.playable()
        if self.root.proven == -1:
            return list(range(len(edges)))
        return [number for number, edge in enumerate(edges) if edge.exact == self.root.proven]

    def _policy(self, allowed: list[int]) -> list[float]:
        """The policy over the allowed edges, in their order."""
        edges = [self.root.edges[number] for number in allowed]
        if self.settings.algorithm == "gumbel":
            logits = improved_logits(self.root, self.settings)
            return softmax([logits[number] for number in allowed])
        visits = [edge.visits for edge in edges]
        if self.settings.forced_playouts > 0 and self._noisy and self.root.proven is None:
            visits = pruned_visits(self.root, self.settings, allowed)
        return shares(visits if any(visits) else [edge.prior for edge in edges])

    def _move(self, allowed: list[int], policy: list[float], temperature: float, draw: float) -> int:
        """Number of the edge to play."""
        if self.settings.algorithm == "gumbel":
            most = max(self.root.edges[number].visits for number in allowed)
            scores = gumbel_scores(self.root, self.settings, self._gumbels())
            candidates = [number for number in allowed if self.root.edges[number].visits == most]
            return max(candidates, key=scores.__getitem__)
        if temperature == 0:
            return allowed[max(range(len(allowed)), key=policy.__getitem__)]
        largest = max(policy)  # its power is 1, so that a small temperature does not make all of them 0
        powers = [(share / largest) ** (1 / temperature) for share in policy]
        wanted = draw * ordered_sum(powers)
        reached, last = 0.0, allowed[0]
        for number, power in zip(allowed, powers, strict=True):
            if power > 0:
                reached, last = reached + power, number
                if reached > wanted:
                    break
        return last

    def result(self, temperature: float, draw: float) -> Result:
        """The root's policy, move and values; draw in [0, 1) picks the move."""
        root, allowed = self.root, self._allowed()
        policy = self._policy(allowed)
        root_q = root.mean_value if root.proven is None else float(root.proven)
        root_d = root.mean_draw if root.proven is None else float(root.proven == 0)
        best = root.edges[allowed[max(range(len(allowed)), key=policy.__getitem__)]]
        full = np.zeros(len(root.edges), np.float64)
        full[allowed] = policy
        return Result(
            policy=full,
            move=root.edges[self._move(allowed, policy, temperature, draw)].move,
            root_q=root_q,
            root_d=root_d,
            best_q=puct_value(best, root_q),
            best_d=_draw_after(best, root_d),
            orig_q=root.value,
            orig_d=root.draw,
            visits=root.visits,
            proven=_proven_code(root),
        )


def _draw_after(edge: Edge, unknown: float) -> float:
    """The chance of a draw after a move that was walked."""
    if edge.child is None or not edge.visits:
        return unknown
    return edge.child.mean_draw if edge.child.proven is None else float(edge.child.proven == 0)


def _proven_code(node: Node) -> int:
    return NOT_PROVEN if node.proven is None else node.proven
