"""Reads protobuf's wire format, bounds-checked: the file may be hostile.

Only what weights files need: varints, 32- and 64-bit numbers, length-delimited fields; groups are
refused. Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct

from alphazero.errors import WeightsError

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10
MAX_FIELD_NUMBER = (1 << 29) - 1


class Message:
    """One parsed message: values by field number; sub-messages are parsed when they are asked for.

    `name` is the path shown in errors ("Net.weights.residual[3]"). Every fault is a WeightsError
    without the file's name, which the caller adds.
    """

    def __init__(self, data: memoryview, name: str) -> None:
        self.name = name
        self._fields: dict[int, list[tuple[int, int | memoryview]]] = {}
        position = 0
        while position < len(data):
            key, position = read_varint(data, position, name)
            number, wire_type = key >> 3, key & 7
            if not 1 <= number <= MAX_FIELD_NUMBER:
                raise WeightsError(f"{name}: field number {number}: not a protobuf message")
            value, position = _read_value(data, position, wire_type, f"{name} field {number}")
            self._fields.setdefault(number, []).append((wire_type, value))

    def has(self, number: int) -> bool:
        """Whether the field is there."""
        return number in self._fields

    def integer(self, number: int, default: int = 0) -> int:
        """A varint or fixed-size unsigned integer, or `default` when the field is absent."""
        entry = self._single(number)
        if entry is None:
            return default
        wire_type, value = entry
        if isinstance(value, int):
            return value
        if wire_type == LENGTH_DELIMITED:
            raise WeightsError(f"{self.name} field {number}: holds bytes, expected a number")
        return int.from_bytes(value, "little")

    def float32(self, number: int, default: float = 0.0) -> float:
        """A 32-bit float, or `default` when the field is absent."""
        entry = self._single(number)
        if entry is None:
            return default
        wire_type, value = entry
        if wire_type != FIXED32 or isinstance(value, int):
            raise WeightsError(f"{self.name} field {number}: wire type {wire_type}, expected a 32-bit float")
        return float(struct.unpack("<f", value)[0])

    def bytes(self, number: int) -> memoryview:
        """A length-delimited field as it stands, empty when absent."""
        entry = self._single(number)
        return memoryview(b"") if entry is None else self._delimited(number, entry)

    def message(self, number: int, name: str) -> Message:
        """A sub-message, empty when the field is absent."""
        return Message(self.bytes(number), f"{self.name}.{name}")

    def messages(self, number: int, name: str) -> list[Message]:
        """A repeated sub-message."""
        return [
            Message(self._delimited(number, entry), f"{self.name}.{name}[{index}]")
            for index, entry in enumerate(self._fields.get(number, []))
        ]

    def _single(self, number: int) -> tuple[int, int | memoryview] | None:
        entries = self._fields.get(number, [])
        if len(entries) > 1:
            raise WeightsError(f"{self.name} field {number}: stands {len(entries)} times, expected once")
        return entries[0] if entries else None

    def _delimited(self, number: int, entry: tuple[int, int | memoryview]) -> memoryview:
        wire_type, value = entry
        if wire_type != LENGTH_DELIMITED or isinstance(value, int):
            raise WeightsError(f"{self.name} field {number}: wire type {wire_type}, expected bytes")
        return value


def read_varint(data: memoryview, position: int, name: str) -> tuple[int, int]:
    """A base-128 number at `position` and the position after it. Raises WeightsError."""
    value = 0
    for index in range(MAX_VARINT_BYTES):
        if position + index >= len(data):
            raise WeightsError(f"{name}: ends in the middle of a number (truncated?)")
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise WeightsError(f"{name}: a number of more than {MAX_VARINT_BYTES} bytes: not a protobuf message")


def _read_value(data: memoryview, position: int, wire_type: int, name: str) -> tuple[int | memoryview, int]:
    if wire_type == VARINT:
        return read_varint(data, position, name)
    if wire_type == LENGTH_DELIMITED:
        size, position = read_varint(data, position, name)
    elif wire_type in (FIXED64, FIXED32):
        size = 8 if wire_type == FIXED64 else 4
    else:
        raise WeightsError(f"{name}: wire type {wire_type}: not a protobuf message")
    if size > len(data) - position:
        raise WeightsError(f"{name}: {size} bytes announced, {len(data) - position} left (truncated?)")
    return data[position : position + size], position + size
