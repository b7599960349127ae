"""JSON encoding and decoding that accepts every Python string, including NUL characters and lone surrogates."""

import json
import re
from functools import cache
from typing import Any, NoReturn, TypeVar

import msgspec

from keryx.core.errors import Invalid

T = TypeVar("T")

# Characters of the reason in an error.
_LONGEST_REASON = 200
# Half of a pair, as it is or escaped. msgspec refuses both.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

_encoder = msgspec.json.Encoder()


def dumps(value: object) -> str:
    """Return the JSON text of builtins, structs, dataclasses, enums and times. NaN and infinity become null."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        # The standard library accepts lone surrogates. It would not write NaN and infinity as null by itself.
        plain = json.dumps(msgspec.to_builtins(value, str_keys=True))
        return json.dumps(json.loads(plain, parse_constant=lambda _: None), separators=(",", ":"))


def loads(text: str | bytes, kind: type[T], *, strict: bool = True) -> T:
    """Read JSON as a value of `kind`. Raise `Invalid` with the reason if it is anything else.

    Without `strict`, numbers, booleans and null written as strings are accepted where they are expected.
    """
    try:
        return _get_decoder(kind, strict).decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        if not _SURROGATE.search(text if isinstance(text, str) else str(text, "latin-1")):
            raise _build_error(kind, exc) from exc

    def reject_constant(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    # The standard library accepts lone surrogates.
    try:
        plain = json.loads(text, parse_constant=reject_constant)
        return msgspec.convert(plain, kind, strict=strict, str_keys=True)
    except (msgspec.ValidationError, ValueError, RecursionError) as exc:
        raise _build_error(kind, exc) from exc


@cache
def _get_decoder(kind: type[T], strict: bool) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, strict=strict)


def _build_error(kind: type[Any], reason: Exception) -> Invalid:
    name = getattr(kind, "__name__", str(kind))
    return Invalid(f"this is not JSON of {name}: {str(reason)[:_LONGEST_REASON]}")
