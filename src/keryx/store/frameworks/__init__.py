"""The tables of agent frameworks that keep their state in the store: checkpoints and memories of LangGraph, sessions of the Agent Development Kit.

Serialized values are packed: their long texts are stored apart, each once, and the rest is compressed."""

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
_MESSAGE = b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type"
_DICTIONARY = b"".join(
    (
        b"\xa6system\xa9assistant\xa6status\xa7success\xa8artifact\xac__interrupt__\xaa__resume__\xa6update\xa4fork\xa6run_id",
        b"\xadpending_sends\x90\xb0counters_since_delta_snapshot\xb5~__pregel_push, \xafbranch:to:tools\xafbranch:to:model",
        b"\x83\xacinput_tokens\xadoutput_tokens\xactotal_tokens\x85\xa4name\xa4args\x80\xa2id\xa4type\xa9tool_call",
        b"\x94\xbelangchain_core.messages.system\xadSystemMessage\x86\xa7content",
        b"\x94\xbclangchain_core.messages.tool\xabToolMessage\x89\xa7content\xactool_call_id"
        + _MESSAGE
        + b"\xa4tool",
        b"\x92\xb9~__pregel_pull, __start__\x82\x00\x92\xa8messages\x93\xc4\x11msgpack\x00\x91\x92\xa4user\xd9\xfa\xcc\x93\xc4\x00",
        b"\x01\x92\xafbranch:to:agent\x91\xc4\x05null\x00\x92\xb5~__pregel_pull, agent\x81\x00\x92\xa8messages\x93\xc4>msgpack\x00",
        b"\x91\xc8\x01\xa7\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xd9\xfa\xcc\x95\xc4|"
        + _MESSAGE,
        b"\xa2ai\xa4name\xc0\xa2id\xc0\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json",
        b"\x93\xc4Cmsgpack\x00\xc8\x01\xa5\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xd9\xfa\xcd\x01\xc4t",
        _MESSAGE + b"\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json",
        b"\x93\xc4=msgpack\x00\xc8\x01\xcc\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xd9\xfa\xcd\x01\xc4\xa1",
        _MESSAGE
        + b"\xa2ai\xa4name\xc0\xa2id\xd9$\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0",
        b"\xb3model_validate_json\x82\xa8messages\x94\x02\xcd\x01\xa9__start__\x93\x00\xcd\x01\x93\xc4\x1bmsgpack\x00\x81\xa8messages",
        b"\x91\x92\xa4user\xd9\xfa\xcd\x01\xc4\x00\xb0updated_channels\x91\xa9__start__\x83\xa6source\xa5input\xa4step\xcd\x01\xa7parents",
        b"\x80\x82\xa8messages\x94\x02\xcd\x01\xafbranch:to:agent\x93\x00\xcd\x01\x91\xc4\x05null\x00\x92\x91\xc4\xebmsgpack\x00\x92\x85",
        b"\xa1v\x04\xa2ts\xd9 2026-01-01T00:00:00.000000+00:00\xb0channel_versions\x83\xa9__start__\xcd\x01\xa8messages\xcd\x01",
        b"\xafbranch:to:agent\xcd\x01\xadversions_seen\x83\xa9__input__\x80\xa9__start__\x81\xa9__start__\xcd\x01\xa5agent\x81",
        b"\xafbranch:to:agent\xcd\x01\xb0updated_channels\x92\xafbranch:to:agent\xa8messages\x83\xa6source\xa4loop\xa4step\xcd\x01",
        b"\xa7parents\x80\x81\xa8messages\x94\x02\xcd\x01",
    )
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
    compressor = zlib.compressobj(level=9, wbits=-15, zdict=_DICTIONARY)
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
