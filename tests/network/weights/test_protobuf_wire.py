"""The wire reader against Google's protobuf, and against bytes that mean harm."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphazero.errors import WeightsError
from alphazero.network.weights.protobuf_wire import Message

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
wrappers_pb2 = pytest.importorskip("google.protobuf.wrappers_pb2")


def parse(data: bytes) -> Message:
    return Message(memoryview(data), "Test")


def file_descriptor() -> bytes:
    """A message with strings, repeated sub-messages, repeated and negative numbers, by Google's library."""
    message = descriptor_pb2.FileDescriptorProto(name="weights.proto", public_dependency=[0, 300])
    for name in ("Layer", "Residual"):
        nested = message.message_type.add(name=name)
        nested.field.add(name="params", number=3, json_name="p" * 200)
    return message.SerializeToString()


def test_strings_and_repeated_messages_are_read_as_googles_library_wrote_them():
    message = parse(file_descriptor())
    assert bytes(message.bytes(1)) == b"weights.proto"
    nested = message.messages(4, "message_type")
    assert [bytes(entry.bytes(1)) for entry in nested] == [b"Layer", b"Residual"]
    assert bytes(nested[1].message(2, "field").bytes(10)) == b"p" * 200
    assert nested[1].message(2, "field").integer(3) == 3


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_varints_are_read_as_googles_library_wrote_them(value: int):
    assert parse(wrappers_pb2.UInt64Value(value=value).SerializeToString()).integer(1) == value


@pytest.mark.parametrize("value", [0.0, -1.5, 3.4e38, 1e-40])
def test_floats_are_read_as_googles_library_wrote_them(value: float):
    message = wrappers_pb2.FloatValue(value=value)
    assert parse(message.SerializeToString()).float32(1) == message.value


def test_64_bit_fields_are_read():
    data = wrappers_pb2.DoubleValue(value=1.0).SerializeToString()
    assert parse(data).integer(1) == 0x3FF0_0000_0000_0000


def test_absent_fields_give_their_defaults():
    message = parse(b"")
    assert message.integer(1, 7) == 7
    assert message.float32(2, 0.5) == 0.5
    assert bytes(message.bytes(3)) == b""
    assert message.messages(4, "x") == []
    assert not message.message(5, "x").has(1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80", "middle of a number"),
        (b"\xff" * 11, "more than 10 bytes"),
        (b"\x0a\x05abc", "5 bytes announced, 3 left"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "announced"),
        (b"\x0d\x01\x02", "4 bytes announced, 2 left"),
        (b"\x09\x01\x02", "8 bytes announced, 2 left"),
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x02\x00", "field number 0"),
    ],
)
def test_broken_bytes_are_named(data: bytes, words: str):
    with pytest.raises(WeightsError, match=words):
        parse(data)


def test_a_field_of_another_type_is_refused():
    with pytest.raises(WeightsError, match="holds bytes, expected a number"):
        parse(b"\x0a\x01x").integer(1)
    with pytest.raises(WeightsError, match="expected bytes"):
        parse(b"\x08\x01").bytes(1)
    with pytest.raises(WeightsError, match="expected a 32-bit float"):
        parse(b"\x08\x01").float32(1)


def test_a_single_field_that_stands_twice_is_refused():
    with pytest.raises(WeightsError, match="stands 2 times"):
        parse(b"\x08\x01\x08\x02").integer(1)


def is_refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except WeightsError:
        return True
    return False


def test_every_truncation_is_an_error_or_a_shorter_message():
    data = file_descriptor()
    refused = [is_refused(partial(parse, data[:size])) for size in range(len(data))]
    assert refused.count(False) == 5  # cut after 0, 1, 2, 3 or 4 of the five fields


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_weights_errors(data: bytes):
    if is_refused(partial(parse, data)):
        return
    message = parse(data)
    for number in range(1, 20):
        is_refused(partial(message.integer, number))
        is_refused(partial(message.float32, number))
        is_refused(partial(message.bytes, number))
        is_refused(partial(message.messages, number, "sub"))
