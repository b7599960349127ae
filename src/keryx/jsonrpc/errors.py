"""JSON-RPC error codes, the exception that becomes an error response, and the mapping of Keryx errors to it."""

from collections.abc import Mapping
from typing import Any, Self

from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, NotFound, Unavailable
from keryx.core.text import to_single_line
from keryx.jsonrpc.values import as_object

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
        """Read the error of a response; any JSON value is accepted. The message is reduced to one line of 500 characters."""
        error = as_object(value)
        code = error.get("code")
        message = to_single_line(str(error.get("message") or "no reason given"))[:500]
        return cls(code if isinstance(code, int) else INTERNAL_ERROR, message)


def from_keryx_error(exc: KeryxError) -> RpcError:
    return RpcError(next(code for kind, code in _ERROR_CODES if isinstance(exc, kind)), str(exc))
