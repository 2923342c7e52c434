"""What an offline run of Weights & Biases has kept: rows of its file, as far as a killed process came.

The file is a header and a LevelDB log: blocks of 32 KiB, in them records of crc, length and kind, each a
protobuf message or a part of one. https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER_BYTES, BLOCK_BYTES = 7, 1 << 15
RECORD_HEADER = struct.Struct("<IHB")
FULL, LAST = 1, 4  # kinds of record that end a message


def offline_rows(directory: Path) -> Iterator[dict[str, Any]]:
    """The rows of all offline runs below `directory`, in the order of their starts."""
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(directory.glob("wandb/offline-run-*/run-*.wandb")):
        for message in _messages(path.read_bytes()):
            try:
                record = Record.FromString(message)
            except DecodeError:
                break  # where the process was killed
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _messages(content: bytes) -> Iterator[bytes]:
    """The whole messages of a file."""
    parts: list[bytes] = []
    at = HEADER_BYTES
    while at + RECORD_HEADER.size <= len(content):
        left_in_block = BLOCK_BYTES - at % BLOCK_BYTES
        if left_in_block < RECORD_HEADER.size:
            at += left_in_block
            continue
        _, length, kind = RECORD_HEADER.unpack_from(content, at)
        at += RECORD_HEADER.size
        if not kind or at + length > len(content):
            return
        parts.append(content[at : at + length])
        at += length
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []
