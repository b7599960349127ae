"""JSON-RPC 2.0 over streams, one JSON object per line: tolerant readers of JSON values, errors with their codes, and what both sides of the Agent Client Protocol share."""

from collections.abc import Mapping
from typing import Any, Self, TypeAlias, cast

from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, NotFound, Unavailable
from keryx.core.questions import Consent
from keryx.core.text import to_short_line

Json: TypeAlias = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
REQUEST_CANCELLED = -32800

_ERROR_CODES: tuple[tuple[type[KeryxError], int], ...] = (
    (Invalid, INVALID_PARAMS),
    (NotFound, RESOURCE_NOT_FOUND),
    (Forbidden, RESOURCE_NOT_FOUND),
    (Conflict, INVALID_REQUEST),
    (Unavailable, INTERNAL_ERROR),
    (KeryxError, INTERNAL_ERROR),
)

# Of the Agent Client Protocol.
PROTOCOL_VERSION = 1

CONSENT_KINDS = {
    Consent.ALLOW_ONCE: "allow_once",
    Consent.ALLOW_ALWAYS: "allow_always",
    Consent.DENY_ONCE: "reject_once",
    Consent.DENY_ALWAYS: "reject_always",
}
KIND_CONSENTS = {kind: consent for consent, kind in CONSENT_KINDS.items()}


def as_object(value: object) -> Json:
    """Return an object as it is, and an empty one for anything else, such as a null result or a missing field."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Json]:
    """Return the objects in a list; other elements are skipped."""
    return (
        [as_object(cast(object, v)) for v in cast(list[object], value) if isinstance(v, dict)]
        if isinstance(value, list)
        else []
    )


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return an integer, never negative; 0 for anything else."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


class RpcError(Exception):
    """An error response, sent or received. `str(error)` is a message for the user."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def to_json(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        return {**error, "data": dict(self.data)} if self.data else error

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read the error of a response; any JSON value is accepted. The message, with a text that explains it in `data` or its
        `details`, is reduced to one line of 500 characters."""
        error = as_object(value)
        code, data = error.get("code"), error.get("data")
        why = as_text(data) or as_text(as_object(data).get("details"))
        reasons = (str(error.get("message") or "no reason given"), why)
        message = to_short_line(": ".join(filter(None, reasons)), 500)
        return cls(code if isinstance(code, int) else INTERNAL_ERROR, message)


def from_keryx_error(exc: KeryxError) -> RpcError:
    return RpcError(next(code for kind, code in _ERROR_CODES if isinstance(exc, kind)), str(exc))


def build_text_block(text: str) -> Json:
    return {"type": "text", "text": text}
