"""The frame of Feishu's long connection: the one protobuf message `pbbp2.Frame`, written and read without a library, and the joining of an event that came in several frames."""

from collections.abc import Callable, Iterator
from enum import IntEnum

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10
_MAX_HEADERS = 100
_SEQ_ID, _LOG_ID, _SERVICE, _METHOD, _HEADERS, _ENCODING, _TYPE, _PAYLOAD, _NEW_LOG_ID = range(1, 10)
_KEY, _VALUE = 1, 2
_MAX_FRAGMENTS = 1000
_MAX_JOINED_BYTES = 4_000_000
_MAX_OPEN_EVENTS = 16
_OPEN_SECONDS = 60.0


class FrameMethod(IntEnum):
    # About the connection itself: ping and pong.
    CONTROL = 0
    # An event, and its acknowledgement.
    DATA = 1


class ConnectionFrame(msgspec.Struct, frozen=True, kw_only=True):
    seq_id: int = 0
    log_id: int = 0
    service: int = 0
    method: int = FrameMethod.CONTROL
    headers: tuple[tuple[str, str], ...] = ()
    payload_encoding: str = ""
    payload_type: str = ""
    payload: bytes = b""
    new_log_id: str = ""

    def find_header(self, name: str) -> str:
        """Return the value of a header; empty if there is none."""
        return next((value for key, value in self.headers if key == name), "")


def encode_frame(frame: ConnectionFrame) -> bytes:
    parts = [
        _encode_number(_SEQ_ID, frame.seq_id),
        _encode_number(_LOG_ID, frame.log_id),
        _encode_number(_SERVICE, frame.service),
        _encode_number(_METHOD, frame.method),
    ]
    for key, value in frame.headers:
        header = _encode_bytes(_KEY, key.encode()) + _encode_bytes(_VALUE, value.encode())
        parts.append(_encode_bytes(_HEADERS, header))
    optional = (
        (_ENCODING, frame.payload_encoding.encode()),
        (_TYPE, frame.payload_type.encode()),
        (_PAYLOAD, frame.payload),
        (_NEW_LOG_ID, frame.new_log_id.encode()),
    )
    parts += [_encode_bytes(field, value) for field, value in optional if value]
    return b"".join(parts)


def decode_frame(wire: bytes) -> ConnectionFrame:
    """Read a frame. Unknown fields are skipped. Raise `Invalid` for other bytes."""
    numbers: dict[int, int] = {}
    values: dict[int, bytes] = {}
    headers: list[tuple[str, str]] = []
    for field, value in _read_fields(wire):
        if isinstance(value, int):
            numbers[field] = value
        elif field == _HEADERS:
            header = {name: text for name, text in _read_fields(value) if isinstance(text, bytes)}
            headers.append((_decode_text(header.get(_KEY, b"")), _decode_text(header.get(_VALUE, b""))))
            if len(headers) > _MAX_HEADERS:
                raise Invalid(f"a frame has more than {_MAX_HEADERS} headers")
        else:
            values[field] = value
    return ConnectionFrame(
        seq_id=numbers.get(_SEQ_ID, 0),
        log_id=numbers.get(_LOG_ID, 0),
        service=_read_int32(numbers.get(_SERVICE, 0)),
        method=_read_int32(numbers.get(_METHOD, 0)),
        headers=tuple(headers),
        payload_encoding=_decode_text(values.get(_ENCODING, b"")),
        payload_type=_decode_text(values.get(_TYPE, b"")),
        payload=values.get(_PAYLOAD, b""),
        new_log_id=_decode_text(values.get(_NEW_LOG_ID, b"")),
    )


def _read_fields(wire: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; fields of a fixed size, which a frame has none of, as bytes."""
    at = 0
    while at < len(wire):
        tag, at = _read_varint(wire, at)
        field, kind = tag >> 3, tag & 7
        if field == 0:
            raise Invalid("a frame has a field without a number")
        if kind == _VARINT:
            value, at = _read_varint(wire, at)
            yield field, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(wire, at)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise Invalid(f"a frame has a field of the unknown kind {kind}")
        if size > len(wire) - at:
            raise Invalid("a frame ends in the middle of a field")
        yield field, wire[at : at + size]
        at += size


def _read_varint(wire: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(wire[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at + shift + 1
    raise Invalid("a frame has a number that is cut off or too large")


def _read_int32(value: int) -> int:
    """Return a number as the protocol writes negative ones: in 64 bits, whose lower 32 count."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def _decode_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Invalid("a frame has a text that is not UTF-8") from None


def _encode_number(field: int, value: int) -> bytes:
    return _encode_varint(field << 3 | _VARINT) + _encode_varint(value & (1 << 64) - 1)


def _encode_bytes(field: int, value: bytes) -> bytes:
    return _encode_varint(field << 3 | _BYTES) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    wire = bytearray()
    while value >= 0x80:
        wire.append(value & 0x7F | 0x80)
        value >>= 7
    wire.append(value)
    return bytes(wire)


class _OpenEvent(msgspec.Struct):
    deadline: float
    fragments: list[bytes | None]
    size: int = 0


class FragmentJoiner:
    """Joins the payloads of an event that came in several frames. Keeps few incomplete events, and each for a short time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open = LruCache[str, _OpenEvent](_MAX_OPEN_EVENTS)

    def join(self, frame: ConnectionFrame) -> bytes | None:
        """Return the payload of an event that is complete with this frame, otherwise `None`. Raise `Invalid` for a fragment
        that cannot belong to an event."""
        count, number = _read_count(frame, "sum", 1), _read_count(frame, "seq", 0)
        if count <= 1:
            return frame.payload
        id_ = frame.find_header("message_id")
        if not id_ or count > _MAX_FRAGMENTS or number >= count:
            raise Invalid("a fragment of an event has no place in it")
        found = self._open.get(id_)
        if found is None or found.deadline < self._now() or len(found.fragments) != count:
            found = _OpenEvent(self._now() + _OPEN_SECONDS, [None] * count)
            self._open.put(id_, found)
        if found.fragments[number] is None:
            found.fragments[number] = frame.payload
            found.size += len(frame.payload)
        if found.size > _MAX_JOINED_BYTES:
            self._open.remove(id_)
            raise Invalid(f"the fragments of an event have more than {_MAX_JOINED_BYTES:,} bytes")
        fragments = [fragment for fragment in found.fragments if fragment is not None]
        if len(fragments) < count:
            return None
        self._open.remove(id_)
        return b"".join(fragments)


def _read_count(frame: ConnectionFrame, name: str, default: int) -> int:
    text = frame.find_header(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Invalid(f"the header {name} of a frame is no number")
    return int(text)
