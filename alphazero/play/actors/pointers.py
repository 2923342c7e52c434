"""The small objects of a place that change: settings, the newest weights, an actor's status, the learner's.

Each has one writer. All are JSON that is checked as it is read: whoever can write to a place can write these.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from alphazero.base.errors import ConfigError, DataError
from alphazero.base.files import replacing
from alphazero.base.records import from_json, from_table
from alphazero.base.section import checked, kinds_of
from alphazero.base.text import reason, shortened
from alphazero.games.outside.names import OPENSPIEL, class_of
from alphazero.machine.environment import version_of
from alphazero.play.actors.place import ACTORS, LEARNER, NEWEST, SETTINGS, WEIGHTS, MeetingPlace
from alphazero.play.actors.shard import is_actor
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig

if TYPE_CHECKING:
    from alphazero.network.weights.weights import WeightsFile

FORMAT = 1
MOST_RECORD_BYTES = 16 << 20  # learner.json: some 100 bytes an actor
MOST_WEIGHTS_BYTES = 8 << 30
_WEIGHTS_NAME = re.compile(rf"{WEIGHTS}/[0-9]{{10}}\.safetensors", re.ASCII)
T = TypeVar("T")


def rules_digest(game: str) -> str:
    """What identifies the rules of a game outside the core: of a Python file its digest, else its library's
    version. "" for games of the core, whose rules are this program's version.
    """
    asked = class_of(game)
    if asked is not None:
        return asked.digest
    return f"open_spiel {version_of('open_spiel')}" if game.startswith(OPENSPIEL) else ""


@dataclass(frozen=True)
class PlaceSettings:
    """settings.json, by the learner at each of its starts: all that shapes games.

    format, version: of this program; actors of another one refuse. game: its recorded name. rules: see
    rules_digest. lead_positions: how many of its positions an actor leaves unused before it pauses.
    precision: of training, settled: what `evaluation_precision` may refer to. Of self_play, actors choose by
    themselves what is of their machine: lanes, batch, cache, the directory of tablebases, and their rounds.
    """

    game: str
    lead_positions: int
    seed: int
    precision: str
    search: SearchConfig
    self_play: SelfPlayConfig
    rules: str = ""
    format: int = FORMAT
    version: str = field(default_factory=lambda: version_of("alphazero"))


@dataclass(frozen=True)
class NewestWeights:
    """weights/newest.json: what actors play with. Written after the file that it names.

    sha256: of the file, 64 digits. settings: sha256 of settings.json, by which actors see that it changed.
    """

    step: int
    name: str
    sha256: str
    settings: str


@dataclass(frozen=True)
class ActorStatus:
    """actors/<actor>.json. beat: rises each time it is written, by which others see that it lives.

    shards, positions: published so far. step: of the weights that it plays with, -1 before the first.
    """

    actor: str
    host: str
    device: str
    beat: int = 0
    shards: int = 0
    positions: int = 0
    positions_per_s: float = 0.0
    step: int = -1
    ended: bool = False
    version: str = field(default_factory=lambda: version_of("alphazero"))


@dataclass(frozen=True)
class Account:
    """What a learner has done with an actor's shards: it takes them in the order of their numbers.

    shards: with how many it is done, which is the number of the next one; refused: how many of these it set
    aside. positions: those that entered.
    """

    shards: int = 0
    positions: int = 0
    refused: int = 0


@dataclass(frozen=True)
class LearnerState:
    """learner.json: who is the learner, and what it has done with shards.

    id: random, new at each start. counter: rises at each renewal; another learner takes over only where it
    stands still. ended: the run made its last step, and needs no more games. actors: by id; kept for the
    run's life. published: the highest step of weights that were ever published here, -1 before the first.
    """

    id: str
    counter: int
    step: int
    ended: bool
    actors: dict[str, Account]
    published: int = -1


def write_settings(place: MeetingPlace, settings: PlaceSettings) -> str:
    """Write settings.json; gives its sha256, for `publish_weights`. Raises PlaceError."""
    content = _as_json(settings)
    place.put(SETTINGS, content)
    return hashlib.sha256(content).hexdigest()


def read_settings(place: MeetingPlace) -> tuple[PlaceSettings, str] | None:
    """The settings and the sha256 of their file, None where there is none yet.

    Raises PlaceError; ConfigError for those of another version of this program; DataError.
    """
    content = place.get(SETTINGS, MOST_RECORD_BYTES)
    if content is None:
        return None
    where, own = f"{place.name}: {SETTINGS}", version_of("alphazero")
    try:
        table = json.loads(content)
        its = (table["format"], table["version"])
    except (ValueError, RecursionError, KeyError, TypeError):
        raise DataError(f"{where}: is not what a learner writes") from None
    if its != (FORMAT, own):
        other = shortened(f"version {its[1]} (format {its[0]})")
        raise ConfigError(f"{where}: the learner is alphazero {other}; expected {own} ({FORMAT}), as here")
    try:
        settings = from_table(PlaceSettings, table)
        for part in (settings.search, settings.self_play):
            kinds = kinds_of(type(part))
            for entry in fields(part):
                checked(entry.name, getattr(part, entry.name), kinds[entry.name], entry)
        if settings.lead_positions < 1 or not 0 <= settings.seed < 2**62:
            raise ValueError("lead_positions, seed: out of range")
    except (ValueError, ConfigError) as error:
        raise DataError(f"{where}: {reason(error)}") from None
    return settings, hashlib.sha256(content).hexdigest()


def settings_digest(place: MeetingPlace) -> str:
    """The sha256 of settings.json as it is now. Raises PlaceError."""
    return hashlib.sha256(place.get(SETTINGS, MOST_RECORD_BYTES) or b"").hexdigest()


def publish_weights(place: MeetingPlace, step: int, weights: WeightsFile, settings: str) -> NewestWeights:
    """Write weights, and then newest.json, which names them. settings: of `write_settings`.

    Raises PlaceError, and WeightsError where this machine's temporary directory is full.
    """
    from alphazero.network.weights.weights import write_weights

    with tempfile.TemporaryDirectory(prefix="alphazero-") as directory:
        path = Path(directory) / "weights.safetensors"
        write_weights(path, weights)
        content = path.read_bytes()
    name = f"{WEIGHTS}/{step:010}.safetensors"
    newest = NewestWeights(step, name, hashlib.sha256(content).hexdigest(), settings)
    place.put(name, content)
    place.put(NEWEST, _as_json(newest))
    return newest


def read_newest(place: MeetingPlace) -> NewestWeights | None:
    """The newest weights, None before the first. Raises PlaceError and DataError."""
    newest = _read(place, NEWEST, NewestWeights)
    if newest is not None and not (_WEIGHTS_NAME.fullmatch(newest.name) and newest.step >= 0):
        raise DataError(f"{place.name}: {NEWEST}: {shortened(newest.name)}: expected weights of this place")
    return newest


def fetch_weights(place: MeetingPlace, newest: NewestWeights, path: Path) -> bool:
    """Copy weights to a file of this machine; False where newer ones have replaced them meanwhile.

    Raises PlaceError, DataError for another digest, and OSError where the file cannot be written.
    """
    content = place.get(newest.name, MOST_WEIGHTS_BYTES)
    if content is None:
        return False
    if (digest := hashlib.sha256(content).hexdigest()) != newest.sha256:
        expected = shortened(newest.sha256[:16])
        raise DataError(f"{place.name}: {newest.name}: sha256 {digest[:16]}...; expected {expected}...")
    with replacing(path) as file:
        file.write(content)
    return True


def write_status(place: MeetingPlace, status: ActorStatus) -> None:
    """Write an actor's status. Raises PlaceError."""
    place.put(f"{ACTORS}/{status.actor}.json", _as_json(status))


def read_status(place: MeetingPlace, actor: str) -> ActorStatus | None:
    """An actor's status, None where it cannot be read. Raises PlaceError."""
    try:
        status = _read(place, f"{ACTORS}/{actor}.json", ActorStatus)
    except DataError:
        return None
    return status if status is not None and status.actor == actor else None


def read_statuses(place: MeetingPlace) -> dict[str, ActorStatus]:
    """All actors' statuses by id; one that cannot be read is left out. Raises PlaceError."""
    names = [entry.name.removeprefix(f"{ACTORS}/").removesuffix(".json") for entry in place.entries(ACTORS)]
    statuses = {actor: read_status(place, actor) for actor in names if is_actor(actor)}
    return {actor: status for actor, status in statuses.items() if status is not None}


def write_learner(place: MeetingPlace, state: LearnerState) -> None:
    """Write the lease and what was taken. Raises PlaceError."""
    place.put(LEARNER, _as_json(state))


def read_learner(place: MeetingPlace) -> LearnerState | None:
    """The learner's state, None before the first. Raises PlaceError and DataError."""
    return _read(place, LEARNER, LearnerState)


def _as_json(record: object) -> bytes:
    assert dataclasses.is_dataclass(record) and not isinstance(record, type)
    return (json.dumps(dataclasses.asdict(record), indent=1) + "\n").encode()


def _read(place: MeetingPlace, name: str, kind: type[T]) -> T | None:
    content = place.get(name, MOST_RECORD_BYTES)
    try:
        return None if content is None else from_json(kind, content)
    except ValueError as error:
        raise DataError(f"{place.name}: {name}: {reason(error)}") from None
