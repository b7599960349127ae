"""JSON encoding and decoding that accepts every Python string, including NUL characters and lone surrogates; base64url."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn, TypeVar

import msgspec

from keryx.core.errors import Invalid

T = TypeVar("T")

# In JSON from outside. So many take some 50 ms to decode.
MAX_FOREIGN_VALUES = 400_000
# JSON from outside with half a character is read by a slower decoder.
_MAX_SLOW_VALUES = 40_000
_MAX_SLOW_BYTES = 2_000_000
# Characters of the reason in an error.
_LONGEST_REASON = 200
_JSON_NAMES = {"dict": "object", "list": "array"}
# Half of a pair, escaped or as it is. msgspec refuses both. Each begins with fixed bytes, which are found quickly.
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_RAW_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def _encode_text(value: object) -> str:
    """Return a phrase as its text: msgspec refuses subclasses of `str`."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encoder = msgspec.json.Encoder(enc_hook=_encode_text)
# Held while msgspec finds out the types of a struct.
_preparing = threading.Lock()
_prepared: set[type[msgspec.Struct]] = set()


def dumps(value: object) -> str:
    """Return the JSON text of builtins, structs, dataclasses, enums and times. NaN and infinity become null."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        # The standard library accepts lone surrogates. It would not write NaN and infinity as null by itself.
        plain = json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_text))
        return json.dumps(json.loads(plain, parse_constant=lambda _: None), separators=(",", ":"))


def loads(text: str | bytes, kind: type[T], *, strict: bool = True) -> T:
    """Read JSON as a value of `kind`. Raise `Invalid` with the reason if it is anything else.

    Without `strict`, numbers, booleans and null written as strings are accepted where they are expected.
    """
    try:
        return _get_decoder(kind, strict).decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        without = _RAW_SURROGATE.sub(b"?", _ESCAPED_SURROGATE.sub(rb"\\ufffd", raw))
        if without == raw:
            raise _build_error(kind, exc) from exc

    def reject_constant(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    # The standard library accepts lone surrogates. It is slow for many small values, so the shape is checked before.
    try:
        _get_decoder(kind, strict).decode(without)
        plain = json.loads(text, parse_constant=reject_constant)
        return msgspec.convert(plain, kind, strict=strict, str_keys=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as exc:
        raise _build_error(kind, exc) from exc


def encode_base64url(raw: bytes) -> str:
    """Return bytes as text for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Return the bytes of a text, padded or not. Raise `ValueError` for anything else."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def loads_foreign(text: str | bytes, kind: type[T]) -> T:
    """Read JSON from outside as a value of `kind`, as `loads` does. Raise `Invalid` before it is decoded if it has too many
    values: those would hold up the event loop, and need more memory than their text."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    values = count_values(raw)
    if values > MAX_FOREIGN_VALUES:
        raise Invalid(f"JSON may have at most {MAX_FOREIGN_VALUES:,} values: send it in parts")
    if values <= _MAX_SLOW_VALUES and len(raw) <= _MAX_SLOW_BYTES:
        return loads(raw, kind)
    try:
        return _get_decoder(kind, True).decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise _build_error(kind, exc) from exc


def count_values(raw: bytes) -> int:
    """Return how many values JSON has at most. The signs that separate values are counted in texts, too."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def resolve_struct_types() -> None:
    """Let msgspec look at the types of all structs that are defined by now. It ends the process with a segmentation fault if one
    thread reads a struct of which another one is just finding out the types, so this belongs before the start of threads."""
    with _preparing:
        for kind in set(_iterate_structs(msgspec.Struct)).difference(_prepared):
            _prepared.add(kind)
            # Some structs are never read, and may have types that cannot be.
            with suppress(TypeError):
                msgspec.json.Decoder(kind)


def _iterate_structs(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for below in kind.__subclasses__():
        yield below
        yield from _iterate_structs(below)


@cache
def _get_decoder(kind: type[T], strict: bool) -> msgspec.json.Decoder[T]:
    with _preparing:
        return msgspec.json.Decoder(kind, strict=strict)


def _build_error(kind: type[Any], reason: Exception) -> Invalid:
    # The message says whether the text is not JSON at all, or has a missing or wrong field.
    if isinstance(reason, msgspec.ValidationError):
        name = getattr(kind, "__name__", str(kind))
        start = f"not a valid {_JSON_NAMES.get(name, name)}"
    else:
        start = "not JSON"
    return Invalid(f"{start}: {str(reason)[:_LONGEST_REASON]}")
