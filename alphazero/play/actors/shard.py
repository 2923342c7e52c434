"""A shard: finished games of one actor, published once under a name that holds their digest.

games/<actor>/<number>-<first 16 digits of the sha256>.arrow: an Arrow IPC file (play/lanes.py, GAME_SCHEMA)
whose schema says whose games they are. An actor's shards are numbered from 0, and number n + 1 is written
only after n is there.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
from dataclasses import dataclass

import pyarrow as pa

from alphazero.base.errors import DataError
from alphazero.base.records import from_json, to_json
from alphazero.base.text import reason, shortened
from alphazero.machine.environment import version_of
from alphazero.play.actors.place import GAMES
from alphazero.play.lanes import GAME_SCHEMA, to_bytes

MOST_SHARD_BYTES = 64 << 20
ACTOR_DIGITS, DIGEST_DIGITS = 16, 16
_METADATA = b"alphazero"
_FILE_BEGINS, _ONE_BATCH = b"ARROW1\0\0", ["schema", "record batch"]
_HEADER, _COMPRESSION = 2, 3  # numbers of fields, of a message and of a record batch
_ACTOR = rf"[0-9a-f]{{{ACTOR_DIGITS}}}"
_NAME = re.compile(rf"{GAMES}/({_ACTOR})/([0-9]{{8}})-([0-9a-f]{{{DIGEST_DIGITS}}})\.arrow", re.ASCII)


def new_actor() -> str:
    """A new actor's id: random, so that no process has to hand them out."""
    return secrets.token_hex(ACTOR_DIGITS // 2)


def is_actor(text: str) -> bool:
    """Whether a text can be an actor's id."""
    return re.fullmatch(_ACTOR, text, re.ASCII) is not None


@dataclass(frozen=True, order=True)
class ShardName:
    """Whose shard it is, its number, the first digits of its content's sha256. In the order of training."""

    actor: str
    number: int
    digest: str

    def __str__(self) -> str:
        return f"{GAMES}/{self.actor}/{self.number:08}-{self.digest}.arrow"

    @classmethod
    def of(cls, name: str) -> ShardName | None:
        """The shard that an object of a place is; None for any other."""
        match = _NAME.fullmatch(name)
        return cls(match[1], int(match[2]), match[3]) if match else None


@dataclass(frozen=True)
class ShardOrigin:
    """What a shard's schema says of its games.

    step: of the newest weights that they were played with. rules: digest of rules outside the core.
    """

    actor: str
    number: int
    step: int
    rules: str
    version: str


def shard_of(
    actor: str, number: int, batch: pa.RecordBatch, step: int, rules: str
) -> tuple[ShardName, bytes]:
    """Finished games (GAME_SCHEMA) as a shard: its name and content."""
    origin = ShardOrigin(actor, number, step, rules, version_of("alphazero"))
    content = to_bytes(batch.replace_schema_metadata({_METADATA: to_json(origin).encode()}))
    return ShardName(actor, number, _digest(content)), content


def read_shard(name: ShardName, content: bytes) -> tuple[ShardOrigin, pa.RecordBatch]:
    """A shard's origin and games, as far as bytes and columns go: the games are not replayed.

    Raises DataError, which begins with the shard's name, for another digest, no Arrow file of one batch with
    the columns of this version, and for an origin that is none or another's.
    """
    if _digest(content) != name.digest:
        raise DataError(f"{name}: the sha256 begins with {_digest(content)}; expected {name.digest}")
    batch = _batch_of(content, str(name))
    said = (batch.schema.metadata or {}).get(_METADATA, b"")
    try:
        origin = from_json(ShardOrigin, said)
    except ValueError as error:
        raise DataError(f"{name}: its schema: {reason(error)}") from None
    if (origin.actor, origin.number) != (name.actor, name.number):
        other = shortened(f"{origin.number} of actor {origin.actor}")
        raise DataError(f"{name}: its schema says that it is shard {other}")
    return origin, batch


def _batch_of(content: bytes, what: str) -> pa.RecordBatch:
    """The one batch of an Arrow file, which may not be compressed: a small file would fill the memory."""
    try:
        messages = list(pa.ipc.MessageReader.open_stream(pa.py_buffer(content[len(_FILE_BEGINS) :])))
        if not content.startswith(_FILE_BEGINS) or [message.type for message in messages] != _ONE_BATCH:
            raise DataError(f"{what}: expected an Arrow file of one record batch")
        schema = pa.ipc.read_schema(messages[0])
        if not schema.equals(GAME_SCHEMA):
            raise DataError(f"{what}: columns are not those of this version")
        if _is_compressed(messages[1].metadata.to_pybytes()):
            raise DataError(f"{what}: is compressed; expected plain columns")
        batch = pa.ipc.read_record_batch(messages[1], schema)
        batch.validate(full=True)
        return batch
    except (pa.ArrowException, struct.error, OSError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{what}: {reason(error)}") from error


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch has the field `compression` (Arrow's format/Message.fbs; flatbuffers)."""

    def field(table: int, number: int) -> int:  # where it is, 0 where it is absent
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        has = 4 + 2 * number < struct.unpack_from("<H", metadata, vtable)[0]
        offset: int = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0] if has else 0
        return table + offset if offset else 0

    header = field(struct.unpack_from("<I", metadata, 0)[0], _HEADER)
    return field(header + struct.unpack_from("<I", metadata, header)[0], _COMPRESSION) != 0


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS]
