"""How a part of a message that is more than a string travels as one."""

from typing import TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def dumps(part: msgspec.Struct) -> str:
    """A part as one string, for a parcel. `loads` gives it back."""
    return msgspec.json.encode(part).decode()


def loads(text: str, kind: type[S]) -> S:
    return msgspec.json.decode(text, type=kind)
