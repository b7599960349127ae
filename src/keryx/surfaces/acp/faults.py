"""Faults: what is answered instead of a result, with the codes of JSON-RPC and of the protocol."""

from collections.abc import Mapping
from typing import Any

from keryx.core.errors import Conflict, Forbidden, Invalid, KeryxError, NotFound, Unavailable

PARSE = -32700
REQUEST = -32600
METHOD = -32601
PARAMS = -32602
INTERNAL = -32603
LOGIN = -32000
NOT_FOUND = -32002
CANCELLED = -32800

_CODES: tuple[tuple[type[KeryxError], int], ...] = (
    (Invalid, PARAMS),
    (NotFound, NOT_FOUND),
    (Forbidden, NOT_FOUND),
    (Conflict, REQUEST),
    (Unavailable, INTERNAL),
    (KeryxError, INTERNAL),
)


class Fault(Exception):
    """An error answer. `str(fault)` is fit to be shown to a person."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {"code": self.code, "message": str(self)}
        return {**found, "data": dict(self.data)} if self.data else found


def of(exc: KeryxError) -> Fault:
    """The answer that tells an error of Keryx."""
    return Fault(next(code for kind, code in _CODES if isinstance(exc, kind)), str(exc))
