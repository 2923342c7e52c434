"""The ladder: fixed opponents of known ratings, and where each is found on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.evaluation.rating.adaptive import Opponent
from alphazero.settings import read_toml

PACKAGE = Path(__file__).resolve().parents[2]
LADDER = PACKAGE / "assets" / "ladder.toml"
# A directory with the networks that the ladder names.
DIRECTORY_VARIABLE = "ALPHAZERO_LADDER"
# Where they lie beside a checkout of this project.
REFERENCE = PACKAGE.parents[1] / "shared" / "data" / "lc0"
STOCKFISH = "stockfish"
# Where Debian keeps programs that are games: not on every user's PATH.
GAMES = "/usr/games"


@dataclass(frozen=True)
class Rung:
    """An opponent, its rating on the ladder's scale, and how it plays.

    kind: random, weights (then file, and nodes), or stockfish (then nodes). random_share: of its moves.
    """

    name: str
    kind: str
    rating: float
    nodes: int = 0
    file: str = ""
    random_share: float = 0.0

    @property
    def opponent(self) -> Opponent:
        """Name and rating alone."""
        return Opponent(self.name, self.rating)


@dataclass(frozen=True)
class Place:
    """Where a rung's network or program is; "" for random."""

    rung: Rung
    path: str


def read_ladder(path: Path = LADDER) -> list[Rung]:
    """All rungs, from the lowest."""
    rungs: list[dict[str, Any]] = read_toml(path).table["rung"]
    return sorted((Rung(**rung) for rung in rungs), key=lambda rung: rung.rating)


def find_rungs(rungs: list[Rung], directory: Path | None) -> tuple[list[Place], list[str]]:
    """The rungs that this machine has, and a line for each thing that others lack.

    directory: of networks, as the user gave it; else the variable, else the reference data.
    """
    given = os.environ.get(DIRECTORY_VARIABLE)
    networks = directory or (Path(given) if given else REFERENCE)
    stockfish = shutil.which(STOCKFISH) or shutil.which(STOCKFISH, path=GAMES)
    places: list[Place] = []
    for rung in rungs:
        path = {"random": "", "stockfish": stockfish, "weights": str(networks / rung.file)}[rung.kind]
        if path is not None and (rung.kind != "weights" or Path(path).is_file()):
            places.append(Place(rung, path))
    return places, list(_told(rungs, places, networks))


def _told(rungs: list[Rung], places: list[Place], networks: Path) -> Iterator[str]:
    """One line for each file or program that is not here."""
    found = {place.rung.name for place in places}
    files = sorted({rung.file for rung in rungs if rung.kind == "weights" and rung.name not in found})
    if files:
        yield f"left out of the ladder: {', '.join(files)}, not in {networks} (--ladder DIR)"
    if any(rung.kind == "stockfish" and rung.name not in found for rung in rungs):
        yield "left out of the ladder: Stockfish, no program `stockfish` on PATH"
