"""What a validation leaves beside its figures: calibration, phases of the game, positions most wrong, games.

Two files of the run directory, both written by rank 0: a line of JSON a validation, only ever appended to,
and the held-out games as the newest network sees them. The report draws them and never runs a network.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from alphazero.base.files import complete_lines, cut_unfinished_line, naming, read_text, write_json
from alphazero.base.records import from_table
from alphazero.run.directory import RunDirectory

Record = TypeVar("Record", bound="ValidationRecord | SeenGames")

RECORDS = "validation.jsonl"
GAMES = "validation_games.json"
VERSION = 1
MOST_GAMES = 16
MOST_WRONG = 64
MOST_BINS = 1000
LARGEST_NUMBER = 2**53
LONGEST_TEXT = 200


@dataclass(frozen=True)
class Bins:
    """A reliability diagram. Bin i has the `count[i]` predictions from i / n to (i + 1) / n.

    predicted, actual: the mean of what was predicted there, and of what happened; 0 in an empty bin.
    """

    count: tuple[int, ...]
    predicted: tuple[float, ...]
    actual: tuple[float, ...]

    @property
    def error(self) -> float:
        """The expected calibration error: the mean distance of predicted and actual, by positions."""
        total = sum(self.count)
        rows = zip(self.count, self.predicted, self.actual, strict=True)
        return sum(count * abs(predicted - actual) for count, predicted, actual in rows) / max(1, total)

    def __post_init__(self) -> None:
        """Raises ValueError for bins that make no diagram."""
        lengths = {len(self.count), len(self.predicted), len(self.actual)}
        if len(lengths) != 1 or not 0 < len(self.count) <= MOST_BINS or min(self.count) < 0:
            raise ValueError("bins of different lengths")


@dataclass(frozen=True)
class PhaseFigures:
    """Means over the positions of a phase of the game; right_moves: where the first move is a best one."""

    name: str
    positions: int
    right_moves: float
    policy_loss: float
    value_mse: float


@dataclass(frozen=True)
class WrongPosition:
    """A position on which the network is far off. Moves are in the game's own texts (chess: UCI).

    by: 'policy' or 'value', what it was chosen by. move: the target's. policy: the network's first moves
    with their shares. share: what the network gives the target's move. value, result: W - L for the side to
    move, as predicted and as it came.
    """

    by: str
    position: str
    move: str
    share: float
    policy: tuple[tuple[str, float], ...]
    value: float
    result: float


@dataclass(frozen=True)
class ValidationRecord:
    """One validation. truth: 'results' of held-out games, or 'exact' values of solved positions.

    score, draw: calibration of the expected score, and of the chance of a draw, of the side to move.
    """

    step: int
    truth: str
    positions: int
    score: Bins
    draw: Bins
    phases: tuple[PhaseFigures, ...] = ()
    wrong: tuple[WrongPosition, ...] = ()


@dataclass(frozen=True)
class SeenPly:
    """A network's or search's evaluation before a move: W - L and a draw's chance for the side to move."""

    value: float
    draw: float
    policy: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class SeenGame:
    """A game with what is known of each of its plies (None where nothing is). Moves as in WrongPosition.

    start: None is the usual one. labels: players, event, date, whatever is known.
    """

    start: str | None
    moves: tuple[str, ...]
    result: str
    plies: tuple[SeenPly | None, ...]
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SeenGames:
    """Games as the network of a step sees them."""

    step: int
    game: str
    games: tuple[SeenGame, ...]


def append_record(run: RunDirectory, record: ValidationRecord) -> None:
    """One more line; what a killed writer left of a line goes first."""
    path = run.path / RECORDS
    cut_unfinished_line(path)
    line = json.dumps({"version": VERSION, **_rounded(dataclasses.asdict(record))})
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def write_games(run: RunDirectory, games: SeenGames) -> None:
    """Replace what is known of the held-out games: the file is whole or as it was."""
    write_json(run.path / GAMES, {"version": VERSION, **_rounded(dataclasses.asdict(games))})


def read_records(run: RunDirectory) -> list[ValidationRecord]:
    """By step, the newest line for each; damaged lines are passed over. Raises OSError."""
    records = {}
    for text in complete_lines(run.path / RECORDS):
        try:
            body = json.loads(text)
            body["phases"], body["wrong"] = body["phases"][:MOST_GAMES], body["wrong"][:MOST_WRONG]
            record = _read(ValidationRecord, body)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            continue
        records[record.step] = record
    return [records[step] for step in sorted(records)]


def read_games(run: RunDirectory) -> SeenGames | None:
    """The held-out games; None where there are none, or none that can be read. Raises OSError."""
    path = run.path / GAMES
    if not path.exists():
        return None
    try:
        body = json.loads(read_text(path))
        return _read(SeenGames, {**body, "games": body["games"][:MOST_GAMES]})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _rounded(value: Any) -> Any:  # noqa: ANN401 - walks what dataclasses became
    """Numbers to five digits: these are for pictures, and the file stays small."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _read(kind: type[Record], body: dict[str, Any]) -> Record:
    """A record of a file. Raises ValueError where it is none, or holds what no picture shows."""
    body.pop("version", None)
    record = from_table(kind, body)
    _check(dataclasses.asdict(record))
    return record


def _check(value: Any) -> None:  # noqa: ANN401 - walks what dataclasses became
    """Raise ValueError for long texts, and numbers that are none or larger than any count."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError("no short text")
    if isinstance(value, (int, float)) and not abs(value) <= LARGEST_NUMBER:
        raise ValueError("no number")
    if isinstance(value, (dict, list, tuple)):
        for entry in value.values() if isinstance(value, dict) else value:
            _check(entry)
