"""Typed errors, each shown as one line: what a user can cause (exit code 2), what ends training (3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

# Set by --debug: tracebacks are printed, and where the seconds of a start went.
DEBUG_VARIABLE = "ALPHAZERO_TRACEBACK"


class AlphaZeroError(Exception):
    """A mistake outside this program: its message is one line, naming place, value and what was expected.

    kind: the word by which other processes know this class, in a rank's account of its end and elsewhere.
    ranks: the ranks at fault, where they are known and the process that raises is not the one.
    found_by_all_ranks: every rank of the job raises the same, so rank 0 alone shows it.
    """

    exit_code: ClassVar[int] = 2
    kind: ClassVar[str] = "input"

    def __init__(self, text: str, *, ranks: Sequence[int] = (), found_by_all_ranks: bool = False) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)
        self.found_by_all_ranks = found_by_all_ranks


class ConfigError(AlphaZeroError):
    """A flag, TOML file or ds_config.json that cannot be used."""

    kind = "config"


class DataError(AlphaZeroError):
    """A PGN file, training chunk or game store that cannot be used."""

    kind = "data"


class GameInputError(AlphaZeroError):
    """A FEN, move or position text that a game cannot read."""

    kind = "position"


class RulesError(AlphaZeroError):
    """Rules of a game outside the core (OpenSpiel, a Python file) that fail."""

    kind = "rules"


class WeightsError(AlphaZeroError):
    """A weights file that cannot be read or does not fit."""

    kind = "weights"


class CheckpointError(AlphaZeroError):
    """A checkpoint that is missing, incomplete or does not fit."""

    kind = "checkpoint"


class LaunchError(AlphaZeroError):
    """Nodes, devices, ports or hostfile that cannot be used."""

    kind = "launch"


class PortInUseError(LaunchError):
    """A port that another process listens on: the same start succeeds with another one."""

    kind = "port in use"


class BusyError(AlphaZeroError):
    """A directory that another process writes to."""

    kind = "busy"


class PlaceError(AlphaZeroError):
    """The place where actors and a learner meet cannot be reached, or is full: a later try may succeed."""

    kind = "place"


class PlaceRefusedError(PlaceError):
    """The place answers and refuses (rights, credentials, a clock, a name): only a person can change that."""

    kind = "place refused"


class PlayerError(AlphaZeroError):
    """A player of a match that crashes, falls silent or breaks the rules again and again."""

    kind = "player"


class LostConnectionError(LaunchError):
    """Another process of the job ended: the process that reports this is not at fault."""

    kind = "lost connection"


class TrainingError(AlphaZeroError):
    """Training that started and cannot continue; its last checkpoint remains."""

    exit_code = 3
    kind = "training"


class DivergedRanksError(TrainingError):
    """Ranks that should hold the same numbers do not."""

    kind = "diverged ranks"


ERRORS_BY_KIND: dict[str, type[AlphaZeroError]] = {
    error.kind: error
    for error in [*globals().values()]
    if isinstance(error, type) and issubclass(error, AlphaZeroError)
}
