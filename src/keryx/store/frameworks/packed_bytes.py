"""How serialized values of frameworks are stored: their long texts apart, each once, and the rest compressed."""

import hashlib
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping

import msgspec

# A text of at least this many bytes is stored apart.
_SHORTEST_TEXT = 48
# The headers of texts in MessagePack, with the number of bytes that hold the length.
_TEXT_HEADER = re.compile(rb"[\xd9-\xdb]")
# What serialized values have in common. Stored values need it as it is: another one takes another format.
_DICTIONARY = (
    b"\xa2id\xa4name\xc0\xa4type\xa5human\xa6system\xa4tool\xa9assistant\xa4user\xa7content\xaftool_call_id\xa6status"
    b"\xa7success\xa8artifact\xb1invalid_tool_calls\x90\xaausage_metadata\xacinput_tokens\xadoutput_tokens"
    b"\xactotal_tokens\xa7example\xc2\xb1additional_kwargs\x80\xb1response_metadata\x80\xaatool_calls\x90\xb3"
    b"model_validate_json\x94\xbdlangchain_core.messages.system\xadSystemMessage\xd9\x1flangchain_core.messages.tool"
    b"\xabToolMessage\x94\xbblangchain_core.messages.ai\xa9AIMessage\x94\xbelangchain_core.messages.human"
    b"\xacHumanMessage\xaddelta_channels\xa7parents\x80\xa6source\xa5input\xa6update\xa4fork\xa4loop\xa4step"
    b"\xadpending_sends\x90\xb0updated_channels\x91\xa8messages\xa2ts\xd9 2026-01-01T00:00:00.000000+00:00"
    b"\xaebranch:to:agent\xaebranch:to:model\xaebranch:to:tools\xadversions_seen\xa9__input__\x80\xa9__start__\x81"
    b"\xa9__start__\xb0channel_versions\x83\xa9__start__\xa8messages\xa1v\x04msgpack\x00"
)


def pack_id(text: str) -> bytes:
    """Return an id in its shortest form that sorts like the text among ids of the same kind."""
    try:
        packed = uuid.UUID(text)
    except ValueError:
        return b"t" + text.encode()
    return b"u" + packed.bytes if str(packed) == text else b"t" + text.encode()


def unpack_id(packed: bytes) -> str:
    return str(uuid.UUID(bytes=packed[1:])) if packed[:1] == b"u" else packed[1:].decode()


def digest(data: bytes, after: bytes = b"") -> bytes:
    return hashlib.blake2b(data, key=after, digest_size=16).digest()


def hash_text(text: bytes) -> bytes:
    """Return what a text is found by. Two texts may have the same."""
    return hashlib.blake2b(text, digest_size=8).digest()


def compress(data: bytes) -> bytes:
    compressor = zlib.compressobj(level=6, wbits=-15, zdict=_DICTIONARY)
    return compressor.compress(data) + compressor.flush()


def decompress(data: bytes) -> bytes:
    decompressor = zlib.decompressobj(wbits=-15, zdict=_DICTIONARY)
    return decompressor.decompress(data) + decompressor.flush()


def split(data: bytes, add_text: Callable[[bytes], int | None]) -> list[bytes | int]:
    """Return serialized bytes in pieces: bytes, and the numbers of texts that are stored apart. `add_text` stores a text
    and returns its number, or `None` if it cannot be stored apart."""
    pieces: list[bytes | int] = []
    begin = 0
    for start, end in _find_texts(data):
        number = add_text(data[start:end])
        if number is not None:
            pieces += [data[begin:start], number]
            begin = end
    return [*pieces, data[begin:]]


def unpack(packed: bytes) -> list[bytes | int]:
    """Return the pieces of a stored value: bytes, and the numbers of texts."""
    return msgspec.msgpack.decode(decompress(packed), type=list[bytes | int])


def list_texts(values: Iterable[list[bytes | int]]) -> set[int]:
    return {piece for pieces in values for piece in pieces if isinstance(piece, int)}


def join(pieces: list[bytes | int], texts: Mapping[int, bytes]) -> bytes:
    return b"".join(texts[piece] if isinstance(piece, int) else piece for piece in pieces)


def _find_texts(data: bytes) -> Iterable[tuple[int, int]]:
    """Yield where long texts begin and end. What only looks like one does no harm: its bytes are the same."""
    position = 0
    while found := _TEXT_HEADER.search(data, position):
        width = 1 << (found.group()[0] - 0xD9)
        start = found.end() + width
        length = int.from_bytes(data[found.end() : start], "big")
        end = start + length
        if length >= _SHORTEST_TEXT and end <= len(data) and _is_text(data[start:end]):
            yield start, end
            position = end
        else:
            position = found.end()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
