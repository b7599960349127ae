"""Frames are those of the protocol, and bytes that are none raise one kind of error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.feishu.connection_frame import (
    ConnectionFrame,
    FragmentJoiner,
    FrameMethod,
    decode_frame,
    encode_frame,
)

# Written by the protobuf library in lark_oapi 1.7.5.
OFFICIAL = bytes.fromhex(
    "08ac02100718f681801020012a0d0a047479706512056576656e742a110a0a6d6573736167655f696412036d2d312a080a0373756d1201312a"
    "080a0373657112013032003a046a736f6e420a7b2261223a22c3a4227d4a0178"
)
OFFICIAL_PING = bytes.fromhex("08001000180520002a0c0a0474797065120470696e67")
FRAME = ConnectionFrame(
    seq_id=300,
    log_id=7,
    service=33554678,
    method=FrameMethod.DATA,
    headers=(("type", "event"), ("message_id", "m-1"), ("sum", "1"), ("seq", "0")),
    payload_type="json",
    payload='{"a":"ä"}'.encode(),
    new_log_id="x",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FRAMES = st.builds(
    ConnectionFrame,
    seq_id=st.integers(0, 2**64 - 1),
    log_id=st.integers(0, 2**64 - 1),
    service=st.integers(-(2**31), 2**31 - 1),
    method=st.integers(-(2**31), 2**31 - 1),
    headers=st.lists(st.tuples(TEXTS, TEXTS), max_size=5).map(tuple),
    payload_encoding=TEXTS,
    payload_type=TEXTS,
    payload=st.binary(max_size=300),
    new_log_id=TEXTS,
)


def test_a_frame_of_the_official_library_is_read() -> None:
    assert decode_frame(OFFICIAL) == FRAME


def test_a_ping_is_written_as_the_official_library_writes_it() -> None:
    assert encode_frame(ConnectionFrame(service=5, headers=(("type", "ping"),))) == OFFICIAL_PING


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: ConnectionFrame) -> None:
    assert decode_frame(encode_frame(frame)) == frame


@given(st.binary(max_size=400))
def test_any_bytes_are_a_frame_or_invalid(wire: bytes) -> None:
    try:
        decode_frame(wire)
    except Invalid:
        pass


@given(FRAMES, st.integers(0, 400), st.integers(0, 255))
def test_a_frame_with_a_wrong_byte_is_a_frame_or_invalid(frame: ConnectionFrame, at: int, byte: int) -> None:
    wire = bytearray(encode_frame(frame))
    wire[at % len(wire)] = byte
    try:
        decode_frame(bytes(wire))
    except Invalid:
        pass


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"\x08" + b"\xff" * 10, "too large"),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "too large"),
        (b"\x08\x80", "cut off"),
        (b"\x42\xff\xff\xff\xff\x0fabc", "ends in the middle"),
        (b"\x42\x05abc", "ends in the middle"),
        (b"\x0b", "unknown kind"),
        (b"\x00\x01", "without a number"),
        (b"\x3a\x02\xff\xfe", "UTF-8"),
        (b"\x2a\x02\x0a\x09", "ends in the middle"),
        (b"\x2a\x00" * 101, "more than 100 headers"),
    ],
)
def test_what_is_wrong_is_told(wire: bytes, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        decode_frame(wire)


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\xa2\x06\x03abc" + b"\xa8\x06\x07" + b"\xa9\x06" + b"\0" * 8 + b"\xad\x06" + b"\0" * 4
    assert decode_frame(OFFICIAL + unknown) == FRAME


def fragment(number: int, count: int, payload: bytes, id_: str = "m") -> ConnectionFrame:
    return ConnectionFrame(
        method=FrameMethod.DATA,
        headers=(("message_id", id_), ("sum", str(count)), ("seq", str(number))),
        payload=payload,
    )


def test_fragments_are_joined_in_their_order_whatever_order_they_came_in() -> None:
    joiner = FragmentJoiner(lambda: 0.0)
    assert joiner.join(fragment(2, 3, b"c")) is None
    assert joiner.join(fragment(0, 3, b"a")) is None
    assert joiner.join(fragment(0, 3, b"again")) is None
    assert joiner.join(fragment(1, 3, b"b")) == b"abc"
    # A repetition of the whole event.
    assert [joiner.join(fragment(n, 2, b"x")) for n in range(2)] == [None, b"xx"]


def test_an_event_in_one_frame_needs_no_id() -> None:
    joiner = FragmentJoiner(lambda: 0.0)
    assert joiner.join(fragment(0, 1, b"a", "")) == b"a"
    assert joiner.join(ConnectionFrame(method=FrameMethod.DATA, payload=b"b")) == b"b"


def test_fragments_of_two_events_are_kept_apart() -> None:
    joiner = FragmentJoiner(lambda: 0.0)
    assert joiner.join(fragment(0, 2, b"a", "one")) is None
    assert joiner.join(fragment(0, 2, b"b", "two")) is None
    assert joiner.join(fragment(1, 2, b"a", "one")) == b"aa"
    assert joiner.join(fragment(1, 2, b"b", "two")) == b"bb"


def test_an_event_that_stays_incomplete_is_dropped() -> None:
    now = 0.0
    joiner = FragmentJoiner(lambda: now)
    assert joiner.join(fragment(0, 2, b"old")) is None
    now = 61.0
    assert joiner.join(fragment(1, 2, b"new")) is None
    assert joiner.join(fragment(0, 2, b"new")) == b"newnew"


@pytest.mark.parametrize(
    "frame",
    [
        fragment(2, 2, b"a"),
        fragment(0, 2, b"a", ""),
        fragment(0, 100_000, b"a"),
        ConnectionFrame(headers=(("sum", "-1"),)),
        ConnectionFrame(headers=(("sum", "9" * 30),)),
        ConnectionFrame(headers=(("sum", "2"), ("seq", "one"), ("message_id", "m"))),
    ],
)
def test_a_fragment_without_a_place_is_invalid(frame: ConnectionFrame) -> None:
    with pytest.raises(Invalid):
        FragmentJoiner(lambda: 0.0).join(frame)


def test_fragments_that_are_too_large_together_are_invalid() -> None:
    joiner = FragmentJoiner(lambda: 0.0)
    large = b"x" * 1_500_000
    assert joiner.join(fragment(0, 4, large)) is None
    assert joiner.join(fragment(1, 4, large)) is None
    with pytest.raises(Invalid, match="4,000,000"):
        joiner.join(fragment(2, 4, large))
