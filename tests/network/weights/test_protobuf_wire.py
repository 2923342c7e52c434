"""The schema of lc0's files and the bound of their fields, against the library and hostile bytes."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero.base.errors import WeightsError
from alphazero.network.weights.lc0_schema import (
    MAX_FIELDS,
    MESSAGES,
    SCHEMA,
    net_class,
)
from alphazero.network.weights.lc0_weights import parse_lc0
from tests.support.network.lc0_files import message, varint


def net() -> bytes:
    """A small Net with every kind of field, by the library."""
    made = net_class()(magic=0x1C0, license=b"a licence")
    made.min_version.minor = 21
    made.format.network_format.input = 300
    for _ in range(2):
        made.weights.residual.add().conv1.weights.params = b"abcd"
    made.weights.value.biases.min_val = -1.5
    data: bytes = made.SerializeToString()
    return data


def test_what_the_library_writes_has_the_published_numbers():
    layer = message((1, -1.5))
    residual = message((1, message((1, message((3, b"abcd"))))))
    by_hand = b"\x0d" + struct.pack("<I", 0x1C0)
    by_hand += message(
        (2, b"a licence"),
        (3, message((2, 21))),
        (4, message((2, message((1, 300))))),
        (10, message((2, residual), (2, residual), (6, message((2, layer))))),
    )
    assert net() == by_hand


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_numbers_of_every_size_are_read(value: int):
    data = message((5, message((1, value))))
    assert net_class().FromString(data).training_params.training_steps == value


@pytest.mark.parametrize("value", [0.0, -1.5, 3.4e38, 1e-40])
def test_floats_are_read(value: float):
    data = message((10, message((7, message((2, value))))))
    assert (
        net_class().FromString(data).weights.ip1_val_w.max_val
        == struct.unpack("<f", struct.pack("<f", value))[0]
    )


def test_unknown_fields_of_every_type_are_passed_over():
    data = message((99, 7), (99, 8), (100, b"abc"), (101, 1.5)) + varint(102 << 3 | 1) + bytes(8)
    assert not net_class().FromString(data).HasField("weights")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xff" * 11,
        b"\x12\x05abc",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0d\x01\x02",
        b"\x0b",
        b"\x0f",
        b"\x02\x00",
    ],
)
def test_broken_bytes_are_refused(data: bytes):
    with pytest.raises(WeightsError, match="damaged or truncated"):
        parse_lc0(b"\x0d\xc0\x01\x00\x00" + data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xa0\x06\x00" * 2_000_000,  # unknown numbers
        message((10, b"\x12\x00" * 2_000_000)),  # empty residual blocks
        message((10, b"\xda\x01\x00" * 2_000_000)),  # empty encoders
    ],
    ids=["unknown", "blocks", "encoders"],
)
def test_millions_of_fields_are_refused_before_they_take_memory(data: bytes):
    whole = b"\x0d\xc0\x01\x00\x00" + data
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match=f"more than {MAX_FIELDS} fields"):
            parse_lc0(whole)
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


def test_the_schema_gives_every_field_of_a_message_its_own_number_and_a_kind_there_is():
    assert len(MESSAGES) == SCHEMA.count("message ") and sum(map(len, MESSAGES.values())) == SCHEMA.count("=")
    for fields in MESSAGES.values():
        assert len({field.name for field in fields.values()}) == len(fields)
        assert {field.kind for field in fields.values()} <= {"uint64", "fixed32", "float", "bytes", *MESSAGES}


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_whatever_stands_in_a_file_is_one_line(data: bytes):
    with pytest.raises(WeightsError) as caught:
        parse_lc0(b"\x0d\xc0\x01\x00\x00" + data)
    assert "\n" not in str(caught.value)
