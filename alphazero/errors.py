"""Typed errors, each shown as one line: what a user can cause (exit code 2), what ends training (3)."""


class AlphaZeroError(Exception):
    """A mistake outside this program: its message is one line, naming place, value and what was expected."""

    exit_code = 2
    # Every rank of a job found the same: rank 0 alone shows it.
    found_by_all_ranks = False


class ConfigError(AlphaZeroError):
    """A flag, TOML file or ds_config.json that cannot be used."""


class DataError(AlphaZeroError):
    """A PGN file, training chunk or game store that cannot be used."""


class GameInputError(AlphaZeroError):
    """A FEN, move or position text that a game cannot read."""


class WeightsError(AlphaZeroError):
    """A weights file that cannot be read or does not fit."""


class CheckpointError(AlphaZeroError):
    """A checkpoint that is missing, incomplete or does not fit."""


class LaunchError(AlphaZeroError):
    """Nodes, devices, ports or hostfile that cannot be used."""


class TrainingError(AlphaZeroError):
    """Training that began well and cannot go on; its last checkpoint remains."""

    exit_code = 3


class DivergedRanksError(TrainingError):
    """Ranks that should hold the same numbers do not."""
