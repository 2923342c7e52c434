"""The look through a protobuf file before the library parses it, against the library and hostile bytes."""

import struct
import tracemalloc

import pytest
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero.base.errors import WeightsError
from alphazero.network.weights.lc0_schema import (
    BYTES,
    FIXED32,
    FLOAT,
    INTEGER,
    MAX_FIELDS,
    MESSAGES,
    check_wire,
    net_class,
)
from alphazero.network.weights.lc0_weights import parse_lc0
from tests.support.network.lc0_files import message, varint


def is_refused(data: bytes, kind: str = "Net") -> bool:
    try:
        check_wire(memoryview(data), kind)
    except WeightsError as error:
        assert "\n" not in str(error)
        return True
    return False


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


def test_what_the_library_writes_is_accepted_and_has_the_published_numbers():
    assert not is_refused(net())
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
    assert not is_refused(data)
    assert net_class().FromString(data).training_params.training_steps == value


@pytest.mark.parametrize("value", [0.0, -1.5, 3.4e38, 1e-40])
def test_floats_are_read(value: float):
    data = message((10, message((7, message((2, value))))))
    assert not is_refused(data)
    assert (
        net_class().FromString(data).weights.ip1_val_w.max_val
        == struct.unpack("<f", struct.pack("<f", value))[0]
    )


def test_unknown_fields_of_every_type_are_passed_over():
    data = message((99, 7), (99, 8), (100, b"abc"), (101, 1.5)) + varint(102 << 3 | 1) + bytes(8)
    assert not is_refused(data)
    assert not net_class().FromString(data).HasField("weights")


def test_an_empty_file_is_a_message_without_fields():
    assert not is_refused(b"")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80", "middle of a number"),
        (b"\xff" * 11, "more than 10 bytes"),
        (b"\x12\x05abc", "5 bytes announced, 3 left"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "announced"),
        (b"\x0d\x01\x02", "4 bytes announced, 2 left"),
        (b"\x09\x01\x02", "8 bytes announced, 2 left"),
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x02\x00", "field number 0"),
        (message((3, message((1, b"x")))), "Net.min_version.major: holds bytes, expected a number"),
        (message((10, 1)), "Net.weights: wire type 0, expected bytes"),
        (message((2, 1)), "Net.license: wire type 0, expected bytes"),
        (
            message((10, message((7, message((1, 1)))))),
            "ip1_val_w.min_val: wire type 0, expected a 32-bit float",
        ),
        (message((10, b""), (10, b"")), "Net.weights: stands 2 times, expected once"),
        (
            message((10, message((2, b""), (2, message((1, b""), (1, b"")))))),
            r"residual\[1\].conv1: stands 2 times",
        ),
    ],
)
def test_broken_and_contradictory_bytes_are_named(data: bytes, words: str):
    with pytest.raises(WeightsError, match=words):
        check_wire(memoryview(data))


def test_every_truncation_is_an_error_or_a_shorter_message():
    data = net()
    refused = [is_refused(data[:size]) for size in range(len(data))]
    assert refused.count(False) == 5  # cut after 0, 1, 2, 3 or 4 of the five fields


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
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_schema_gives_every_field_of_a_message_its_own_number_and_a_kind_there_is():
    for fields in MESSAGES.values():
        assert len({field.number for field in fields}) == len({field.name for field in fields}) == len(fields)
        assert {field.kind for field in fields} <= {INTEGER, FIXED32, FLOAT, BYTES, *MESSAGES}


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(MESSAGES)))
def test_the_library_parses_whatever_was_accepted(data: bytes, kind: str):
    if is_refused(data, kind):
        return
    pool = net_class().DESCRIPTOR.file.pool
    cls = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"alphazero.lc0.{kind}"))
    try:
        cls.FromString(data)
    except DecodeError as error:
        pytest.fail(f"accepted, but the library says {error}")
