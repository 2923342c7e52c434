"""Who plays in a match: a player of this process, or an engine that speaks UCI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from alphazero.evaluation.matches.limits import Limit
from alphazero.evaluation.players import Thinker


@dataclass(frozen=True)
class InProcess:
    """Answers all its positions of all games at once. limit: what it thinks by, for people.

    random_share: of its moves that are drawn at random instead, which makes weaker opponents of known ones.
    """

    name: str
    think: Thinker
    limit: Limit = field(default_factory=Limit)
    random_share: float = 0.0


@dataclass(frozen=True)
class Engine:
    """A program that plays chess by UCI, one process for each of its games that go on side by side.

    command: its argument list. directory: where it runs, "" for here. random_share: as above.
    """

    name: str
    command: tuple[str, ...]
    limit: Limit
    directory: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    random_share: float = 0.0


Contestant: TypeAlias = InProcess | Engine
