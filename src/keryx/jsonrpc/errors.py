"""JSON-RPC error codes, the exception that becomes an error response, and the mapping of Keryx errors to it."""

from collections.abc import Mapping
from typing import Any

from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, NotFound, Unavailable

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
    """An error answer. `str(fault)` is fit to be shown to a person."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"code": self.code, "message": str(self)}
        return {**found, "data": dict(self.data)} if self.data else found


def from_keryx_error(exc: KeryxError) -> RpcError:
    """The answer that tells an error of Keryx."""
    return RpcError(next(code for kind, code in _ERROR_CODES if isinstance(exc, kind)), str(exc))
