"""Id types, id generation, and validation of foreign text that is used as an id."""

import hashlib
import re
import secrets
from datetime import datetime
from typing import NewType
from urllib.parse import unquote

from keryx.core.errors import Invalid
from keryx.core.texts import Phrase

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
DeliveryId = NewType("DeliveryId", str)
QuestionId = NewType("QuestionId", str)
PrincipalId = NewType("PrincipalId", str)
ProjectId = NewType("ProjectId", str)
TagId = NewType("TagId", str)
JobId = NewType("JobId", str)
ProfileId = NewType("ProfileId", str)
LaneKey = NewType("LaneKey", str)
WorkerId = NewType("WorkerId", str)
LeaseToken = NewType("LeaseToken", str)
Cursor = NewType("Cursor", str)

DEFAULT_PROFILE = ProfileId("default")
OPERATOR = PrincipalId("operator")
# The store knows a temporary session by its id, so that no write of it depends on another row. SQL repeats this prefix, for
# the sake of an index.
TEMPORARY_PREFIX = "tmp-"

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# All pairs of characters: an id is made of them in half the steps.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_TIME_CHARS = 10
_RANDOM_CHARS = 8
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_UNSAFE = re.compile(r"[^ -~]|[:%]")
_REFERENCE = re.compile(r"[^\x00-\x1f\x7f\\]{1,200}\Z")
_LONGEST_TEXT = 256


def new(now: datetime) -> str:
    """Return a new id. Ids of different milliseconds sort by time."""
    millis = int(now.timestamp() * 1000)
    return _encode(millis, _TIME_CHARS) + _encode(secrets.randbits(5 * _RANDOM_CHARS), _RANDOM_CHARS)


def new_temporary(now: datetime) -> SessionId:
    """Return the id of a new temporary session."""
    return SessionId(TEMPORARY_PREFIX + new(now))


def is_temporary(session: str) -> bool:
    """Whether a session is temporary: what it says is stored in a sealed form, and removed at its end."""
    return session.startswith(TEMPORARY_PREFIX)


def new_token() -> LeaseToken:
    return LeaseToken(secrets.token_hex(8))


def parse_profile(text: str) -> ProfileId:
    """Parse a profile name: lower-case letters, digits, dash and underscore. `main` is reserved."""
    if not _PROFILE_NAME.match(text) or text == "main":
        raise Invalid(
            f"{text!r} is not a profile name: use lower-case letters, digits, - and _; `main` is reserved"
        )
    return ProfileId(text)


def is_reference(name: str) -> bool:
    """Whether a name can be an id or an alias of a session: no path, no control characters."""
    pathlike = name.startswith((".", "~")) or any(s.strip() in {"", ".", ".."} for s in name.split("/"))
    return not pathlike and _REFERENCE.match(name) is not None


def parse_reference(text: str) -> str:
    """Parse the id or alias that a user gave for a session. Refuse paths and control characters."""
    name = text.strip()
    if not is_reference(name):
        raise Invalid(
            f"{text[:80]!r} cannot name a session: give an id, a unique prefix of one, or a title",
            Phrase("session.no_name", name=repr(text[:80])),
        )
    return name


def unescape(text: str) -> str:
    """Return the text that `escape` was given; the digest of one that was cut stays."""
    return unquote(text, errors="surrogatepass")


def escape(text: str) -> str:
    """Return text as printable ASCII without `:`. Different texts stay different; ordinary ids do not change.

    Text that is too long for an index is cut and gets a digest of the whole."""
    # The test for letters and digits is much faster than the search, and most ids pass it.
    if len(text) <= _LONGEST_TEXT and ((text.isascii() and text.isalnum()) or _UNSAFE.search(text) is None):
        return text

    def percent_encode(unsafe: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in unsafe[0].encode("utf-8", "surrogatepass"))

    escaped = _UNSAFE.sub(percent_encode, text)
    if len(escaped) <= _LONGEST_TEXT:
        return escaped
    return f"{escaped[:_LONGEST_TEXT]}%#{hashlib.sha256(escaped.encode()).hexdigest()}"


def _encode(value: int, width: int) -> str:
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(5 * width - 10, -1, -10)])
