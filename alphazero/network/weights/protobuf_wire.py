"""Looks through a protobuf file before the protobuf library parses it: the file may be hostile.

The library makes an object for every field, so that 20 million empty ones of two bytes fill the memory, and
it passes over what it does not expect: a field of another type, one that stands twice. Here the fields are
counted and held against the schema while nothing is kept. Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from alphazero.errors import WeightsError
from alphazero.network.weights.lc0_schema import BYTES, FIXED32, FLOAT, INTEGER, MESSAGES, Field

VARINT, FIXED64, LENGTH_DELIMITED, WIRE_FIXED32 = 0, 1, 2, 5
WIRE_TYPES = {INTEGER: VARINT, FIXED32: WIRE_FIXED32, FLOAT: WIRE_FIXED32, BYTES: LENGTH_DELIMITED}
EXPECTED = {INTEGER: "a number", FIXED32: "a 32-bit number", FLOAT: "a 32-bit float", BYTES: "bytes"}
MAX_VARINT_BYTES = 10
MAX_FIELD_NUMBER = (1 << 29) - 1
# 256 residual blocks, the most there may be, have 26,000 with every field that lc0 knows.
MAX_FIELDS = 50_000


def check_wire(data: memoryview, message: str = "Net") -> None:
    """Check that `data` is the wire form of a message of the schema, with at most MAX_FIELDS fields.

    Raises WeightsError, without the file's name, that has the path of the fault ("Net.weights.residual[3]").
    """
    _check_message(data, message, message, 0)


def _check_message(data: memoryview, message: str, name: str, count: int) -> int:
    """Check one message; how many fields were met so far, `count` of them before this message."""
    schema = {field.number: field for field in MESSAGES[message]}
    met: dict[int, int] = {}
    position = 0
    while position < len(data):
        count += 1
        if count > MAX_FIELDS:
            raise WeightsError(f"{name}: more than {MAX_FIELDS} fields: no network has as many")
        key, position = read_varint(data, position, name)
        number, wire_type = key >> 3, key & 7
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise WeightsError(f"{name}: field number {number}: not a protobuf message")
        field = schema.get(number)
        place = f"{name}.{field.name}" if field else f"{name} field {number}"
        value, position = _read_value(data, position, wire_type, place)
        if field is None:
            continue
        _check_type(field, wire_type, place)
        index = met[number] = met.get(number, -1) + 1
        if field.repeated:
            place += f"[{index}]"
        elif index:
            raise WeightsError(f"{place}: stands {index + 1} times, expected once")
        if field.kind in MESSAGES:
            count = _check_message(value, field.kind, place, count)
    return count


def _check_type(field: Field, wire_type: int, place: str) -> None:
    if wire_type == WIRE_TYPES.get(field.kind, LENGTH_DELIMITED):
        return
    if wire_type == LENGTH_DELIMITED:
        raise WeightsError(f"{place}: holds bytes, expected {EXPECTED[field.kind]}")
    raise WeightsError(f"{place}: wire type {wire_type}, expected {EXPECTED.get(field.kind, 'bytes')}")


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


def _read_value(data: memoryview, position: int, wire_type: int, name: str) -> tuple[memoryview, int]:
    """The bytes of a field (none of a number) and the position after it. Raises WeightsError."""
    if wire_type == VARINT:
        return data[:0], read_varint(data, position, name)[1]
    if wire_type == LENGTH_DELIMITED:
        size, position = read_varint(data, position, name)
    elif wire_type in (FIXED64, WIRE_FIXED32):
        size = 8 if wire_type == FIXED64 else 4
    else:
        raise WeightsError(f"{name}: wire type {wire_type}: not a protobuf message")
    if size > len(data) - position:
        raise WeightsError(f"{name}: {size} bytes announced, {len(data) - position} left (truncated?)")
    return data[position : position + size], position + size
