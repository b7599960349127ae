"""Problems: every error as a problem document, by one table."""

import logging
import math
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keryx.core import wire as codec
from keryx.core.errors import (
    AgentFailed,
    Conflict,
    CursorExpired,
    DiskFull,
    Forbidden,
    Invalid,
    KeryxError,
    NotFound,
    Retryable,
    SendError,
    Throttled,
    Unavailable,
)
from keryx.surfaces.web.wire import Problem

log = logging.getLogger(__name__)

TYPE = "application/problem+json"
_DETAILS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this address: GET /openapi.json tells what there is",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address does not take that method: the header Allow tells which",
}


class TooLarge(KeryxError):
    """A body is above its limit."""


class Unsigned(KeryxError):
    """The caller has not shown who they are."""


class Misdirected(KeryxError):
    """The request was meant for another host."""


# The first that fits counts, so children stand before their parents.
STATUS: tuple[tuple[type[KeryxError], HTTPStatus, str], ...] = (
    (Unsigned, HTTPStatus.UNAUTHORIZED, "the caller has not shown who they are"),
    (Misdirected, HTTPStatus.MISDIRECTED_REQUEST, "this place is not known under that name"),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is above its limit"),
    (Invalid, HTTPStatus.BAD_REQUEST, "the request is wrong"),
    (NotFound, HTTPStatus.NOT_FOUND, "what was named does not exist, or is not yours"),
    (Forbidden, HTTPStatus.FORBIDDEN, "it exists, and you may not"),
    (Conflict, HTTPStatus.CONFLICT, "the state is another than the request expects"),
    (CursorExpired, HTTPStatus.GONE, "the cursor is too old: load again"),
    (Throttled, HTTPStatus.TOO_MANY_REQUESTS, "too often: wait as long as `Retry-After` says"),
    (AgentFailed, HTTPStatus.BAD_GATEWAY, "an agent failed"),
    (SendError, HTTPStatus.BAD_GATEWAY, "a platform failed"),
    (DiskFull, HTTPStatus.INSUFFICIENT_STORAGE, "nothing can be written until space is freed"),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE, "the store does not answer now"),
)


def problem(status: HTTPStatus, detail: str, *, after: float | None = None) -> Response:
    """A document that says what went wrong and what to do next."""
    seconds = None if after is None else max(1, math.ceil(after))
    document = Problem(title=status.phrase, status=status.value, detail=detail, after=seconds)
    headers = {"Cache-Control": "no-store"}
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="keryx"'
    return Response(codec.dumps(document), status.value, headers, media_type=TYPE)


def of(error: KeryxError) -> Response:
    """The document of an error."""
    status = next(
        (status for kind, status, _ in STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )
    after = error.after.total_seconds() if isinstance(error, Retryable | Throttled) else None
    return problem(status, str(error), after=after)


async def on_http(_: Request, error: Exception) -> Response:
    """What starlette itself refuses."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    answer = problem(status, _DETAILS.get(status, error.detail))
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def on_keryx(_: Request, error: Exception) -> Response:
    assert isinstance(error, KeryxError)
    return of(error)


def unexpected(error: Exception) -> Response:
    """For an error that nobody foresaw: it is logged, and nothing of it is told."""
    log.error("a request failed", exc_info=error)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "something went wrong here: try again, and look into the log of keryx serve",
    )
