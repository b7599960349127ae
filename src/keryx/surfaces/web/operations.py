"""API operations. A route module declares each handler on its `ApiRouter`; the types come from the handler's signature.

Routes, the OpenAPI document and the reference are built from the operations that `routes.OPERATIONS` lists.
"""

import inspect
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from types import FunctionType
from typing import TypeVar, cast

import msgspec
from starlette.types import ASGIApp

from keryx.surfaces.web.request_schema import RequestForm

Handler = Callable[..., Awaitable[msgspec.Struct | ASGIApp | None]]
HandlerT = TypeVar("HandlerT", bound=Handler)
MAX_BODY_BYTES = 8 << 20


class RequiredRole(StrEnum):
    """Who may call an operation."""

    NONE = "none"
    VIEWER = "viewer"
    OPERATOR = "operator"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    # The name of the handler, and the operationId in the OpenAPI document.
    name: str
    handler: Handler
    summary: str
    # The types of the handler's parameters `query` and `body`.
    query: type[RequestForm] | None
    body: type[RequestForm] | None
    # None for a response that is not JSON, or that has no body (status 204).
    response_type: type[msgspec.Struct] | None
    status: int
    # Whether the header Idempotency-Key is read.
    idempotent: bool
    # The media types of a response that is not JSON.
    media_types: tuple[str, ...]
    # The media types of errors in the shape of a protocol, beside problem documents.
    error_media_types: tuple[str, ...]
    # The media type of a body that is not JSON.
    body_media_type: str
    # The largest body in bytes.
    body_limit: int
    # Whether responses have an ETag, so that If-None-Match gets a 304.
    etag: bool
    role: RequiredRole


class ApiRouter:
    """Collects the operations of one route module, in the order of their definition.

    A handler takes an `ApiRequest`, and may take `query` and `body`, each a `RequestForm`. It returns a struct, `None`
    for status 204, or an ASGI response.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.get = partial(self._declare, "GET")
        self.post = partial(self._declare, "POST")
        self.put = partial(self._declare, "PUT")
        self.patch = partial(self._declare, "PATCH")
        self.delete = partial(self._declare, "DELETE")

    def _declare(
        self,
        method: str,
        path: str,
        *,
        summary: str,
        response: type[msgspec.Struct] | None = None,
        status: int = 200,
        idempotent: bool = False,
        media_types: tuple[str, ...] = (),
        error_media_types: tuple[str, ...] = (),
        body_media_type: str = "",
        body_limit: int = MAX_BODY_BYTES,
        etag: bool = False,
        role: RequiredRole = RequiredRole.VIEWER,
    ) -> Callable[[HandlerT], HandlerT]:
        """Declare the decorated handler as an operation. `response` is for handlers that build their response themselves;
        it defaults to the struct that the handler returns."""

        def register(handler: HandlerT) -> HandlerT:
            signature = inspect.signature(handler)
            types = {name: parameter.annotation for name, parameter in signature.parameters.items()}
            returned = signature.return_annotation
            if isinstance(returned, type) and issubclass(returned, msgspec.Struct):
                response_type = returned
            else:
                response_type = response
            self.operations.append(
                Operation(
                    method=method,
                    path=path,
                    name=cast(FunctionType, handler).__name__,
                    handler=handler,
                    summary=summary,
                    query=types.get("query"),
                    body=types.get("body"),
                    response_type=response_type,
                    status=status,
                    idempotent=idempotent,
                    media_types=media_types,
                    error_media_types=error_media_types,
                    body_media_type=body_media_type,
                    body_limit=body_limit,
                    etag=etag,
                    role=role,
                )
            )
            return handler

        return register
