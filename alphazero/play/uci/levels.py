"""Strength by nodes: what `alphazero rate --levels` measured of a weights file, and UCI_Elo from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from alphazero.base.errors import DataError
from alphazero.base.files import read_text, sha256_of, write_json
from alphazero.base.records import from_json
from alphazero.base.text import reason

SUFFIX = ".levels.json"  # after the name of the weights file, beside it
VERSION = 1
MOST_NODES = 1_000_000_000
MOST_ELO = 5000


@dataclass(frozen=True)
class Level:
    """The rating by so many games at so many nodes a move."""

    nodes: int
    elo: float
    games: int


@dataclass(frozen=True)
class Levels:
    """At rising nodes. sha256: of the weights file. scale: what the ratings mean, a sentence."""

    version: int
    sha256: str
    scale: str
    levels: tuple[Level, ...]

    @property
    def curve(self) -> list[tuple[float, float]]:
        """log2(nodes) and Elo, which never falls: levels that do share the mean of their games."""
        blocks: list[list[Level]] = []
        for level in self.levels:
            blocks.append([level])
            while len(blocks) > 1 and _mean(blocks[-2]) >= _mean(blocks[-1]):
                blocks[-2:] = [blocks[-2] + blocks[-1]]
        return [(math.log2(level.nodes), _mean(block)) for block in blocks for level in block]

    @property
    def elos(self) -> tuple[int, int]:
        """The least and the largest UCI_Elo."""
        return math.ceil(self.curve[0][1]), math.floor(self.curve[-1][1])

    def nodes_for(self, elo: int) -> int:
        """Nodes a move for an Elo of that range: by straight lines between the levels over log2(nodes)."""
        for (before, low), (after, high) in pairwise(self.curve):
            if low <= elo <= high and low < high:
                return round(2 ** (before + (elo - low) / (high - low) * (after - before)))
        raise AssertionError(f"{elo} outside {self.elos}")


def _mean(levels: Sequence[Level]) -> float:
    return sum(level.elo * level.games for level in levels) / sum(level.games for level in levels)


def write_levels(weights: Path, scale: str, levels: Sequence[Level]) -> Path:
    """Write those of a weights file, at rising nodes, beside it; returns the file."""
    file = weights.with_name(weights.name + SUFFIX)
    write_json(file, asdict(Levels(VERSION, sha256_of(weights), scale, tuple(levels))))
    return file


def read_levels(weights: Path) -> Levels | None:
    """Those of a weights file; None without any, or of one strength. Raises DataError for any other file."""
    file = weights.with_name(weights.name + SUFFIX)
    if not weights.is_file() or not file.is_file():
        return None
    try:
        measured = from_json(Levels, read_text(file))
        nodes = [level.nodes for level in measured.levels]
        sound = [level.games > 0 and abs(level.elo) <= MOST_ELO for level in measured.levels]
        if measured.version != VERSION or len(nodes) < 2 or nodes != sorted({*nodes}) or not all(sound):
            raise ValueError("unsound levels")
        if not 1 <= nodes[0] <= nodes[-1] <= MOST_NODES:
            raise ValueError(f"from {nodes[0]} to {nodes[-1]} nodes")
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: {reason(error)}; expected what rate --levels writes") from error
    if measured.sha256 != sha256_of(weights):
        raise DataError(f"{file}: measured of another network; expected levels of {weights.name}")
    low, high = measured.elos
    return measured if low < high else None
