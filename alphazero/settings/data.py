"""Given games: where they come from, and which of them and of their positions are used (docs/data.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.section import Scope, setting, share

# As Lichess counts them, from the fastest on (alphazero/data/store/game_filters.py has the bounds).
TIME_CLASSES = ("ultrabullet", "bullet", "blitz", "rapid", "classical", "correspondence")
MOST_ELO = 10_000
MOST_CLOCK_S = 1e6
MOST_SKIPPED = 65_535  # plies of a game
MOST_PER_GAME = 65_535


@dataclass(frozen=True)
class GameFilters:
    """Whole games that are left out; a game without the header that a filter needs is left out."""

    min_elo: int = setting(
        0, "games whose players both have at least this Elo; 0 takes all", minimum=0, maximum=MOST_ELO
    )
    max_elo: int = setting(
        0, "games whose players both have at most this Elo; 0 takes all", minimum=0, maximum=MOST_ELO
    )
    max_elo_difference: int = setting(
        0, "games whose players are at most this far apart in Elo; 0 takes all", minimum=0, maximum=MOST_ELO
    )
    time_classes: tuple[str, ...] = setting(
        (), "games of these time controls, as Lichess counts them", choices=TIME_CLASSES
    )
    events: tuple[str, ...] = setting(
        (),
        "games whose Event has one of these texts in it, in capitals or not",
        pattern="(?s).+",
        expected="a text that is not empty",
    )
    exclude_terminations: tuple[str, ...] = setting(
        (),
        "no games whose Termination has one of these texts in it, as 'abandoned' or 'time forfeit'",
        pattern="(?s).+",
        expected="a text that is not empty",
    )


@dataclass(frozen=True)
class SampleFilters(GameFilters):
    """Whole games, and positions of the games that are used, that are not trained on."""

    min_clock: float = setting(
        0.0,
        "positions whose mover has at least so many seconds left on the clock, or no clock; 0 takes all",
        minimum=0,
        maximum=MOST_CLOCK_S,
    )
    skip_plies: int = setting(
        0, "plies at the start of each game that are not trained on", minimum=0, maximum=MOST_SKIPPED
    )
    max_positions_per_game: int = setting(
        0,
        "positions of each game to train on, drawn by chance from the seed; 0 takes all",
        minimum=0,
        maximum=MOST_PER_GAME,
    )
    merge_duplicates: bool = setting(
        False, "make one sample, with averaged targets, of positions that occur several times"
    )


@dataclass(frozen=True)
class DataConfig(SampleFilters):
    """Where positions come from, which of them are used (docs/data.md) and how they are read."""

    data: tuple[str, ...] = setting(
        (), "game stores, PGN files or directories to train on", scope=Scope.NODE, is_common=True
    )
    validation_data: tuple[str, ...] = setting(
        (), "game stores, PGN files or directories to validate on", scope=Scope.NODE, is_common=True
    )
    validation_share: float = share(
        0.05,
        "share of the games, the last ones, held out for validation when there is no validation data",
        maximum=0.5,
    )
    mirror: bool = setting(
        False, "chess: show positions without castling rights mirrored, left to right, by chance"
    )
    num_workers: int = setting(
        -1,
        "threads that encode positions, per rank; -1 chooses for the hardware",
        minimum=-1,
        maximum=1024,
        scope=Scope.NODE,
        is_common=True,
    )
    cache_dir: str = setting(
        "cache", "directory in which imported raw files are kept", scope=Scope.NODE, is_place=True
    )
    verify_data: bool = setting(
        True, "compare the sha256 of the data with its manifest, once per host", scope=Scope.NODE
    )


def chosen_filters(filters: GameFilters) -> dict[str, Any]:
    """The filters that are set, by name, in the order in which they are applied.

    Raises ConfigError where no game can pass.
    """
    if filters.max_elo and filters.min_elo > filters.max_elo:
        raise ConfigError(
            f"min_elo {filters.min_elo} is above max_elo {filters.max_elo}; expected at most max_elo"
        )
    known = SampleFilters if isinstance(filters, SampleFilters) else GameFilters
    return {
        entry.name: getattr(filters, entry.name)
        for entry in fields(known)
        if getattr(filters, entry.name) != entry.default
    }


def filter_text(name: str, value: object) -> str:
    """A filter that is set, as printed: 'min_elo 1500', 'time_classes blitz, rapid', 'merge_duplicates'."""
    if isinstance(value, tuple):
        return f"{name} {', '.join(map(str, value))}"
    if isinstance(value, bool):
        return name
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
