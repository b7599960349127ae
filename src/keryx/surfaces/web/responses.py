"""HTTP responses: values as JSON with ETag and gzip, and errors as problem documents by one table."""

import gzip
import hashlib
import logging
import math
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send

from keryx import logs
from keryx.core import codec
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
from keryx.core.ports.setup import WrongField
from keryx.core.texts import ENGLISH, ERROR_AREAS, Phrase, Texts, explain, find_phrase
from keryx.surfaces.web.operations import Operation
from keryx.surfaces.web.schema import Problem

_MIN_COMPRESSED_BYTES = 1_000
_THREAD_BYTES = 100_000
_GZIP_LEVEL = 4
_SEND_TIMEOUT_SECONDS = 30.0
# A longer document waits for its client in a file.
_MAX_MEMORY_BYTES = 1 << 18
_FILE_PIECE_BYTES = 1 << 16
log = logging.getLogger(__name__)
PROBLEM_TYPE = "application/problem+json"
OPENAI_PATH = "/v1/"
"""Below it, requests, responses and errors have the shapes of OpenAI's API."""
# The type and the code of errors there.
_OPENAI_ERRORS = {
    HTTPStatus.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    HTTPStatus.FORBIDDEN: ("permission_error", "forbidden"),
    HTTPStatus.NOT_FOUND: ("invalid_request_error", "not_found"),
    HTTPStatus.CONFLICT: ("invalid_request_error", "conflict"),
    HTTPStatus.TOO_MANY_REQUESTS: ("rate_limit_error", "rate_limit_exceeded"),
}
# What clients ask for whose base URL does not end in /v1.
_OPENAI_RESOURCES = ("chat", "completions", "conversations", "embeddings", "models", "responses")
_WRONG_BASE_URL = (
    "there is nothing at this address: the base URL of Keryx for clients of OpenAI's API ends in /v1"
)
BEARER_CHALLENGE = 'Bearer realm="keryx"'
_DETAILS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this address: GET /openapi.json tells what there is",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address does not take that method: the header Allow tells which",
}


async def build_response(request: Request, operation: Operation, value: msgspec.Struct | None) -> Response:
    """Build the response of an operation from the value that its handler returned."""
    if value is None:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    body = codec.dumps(value).encode()
    headers = {"Cache-Control": "no-store"}
    if operation.etag:
        tag = compute_etag(body)
        headers = {"Cache-Control": "private, no-cache", "ETag": tag, "Vary": "Accept-Encoding, Cookie"}
        if matches_etag(request, tag):
            return Response(status_code=304, headers=headers)
    if len(body) >= _MIN_COMPRESSED_BYTES and accepts_gzip(request):
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding, Cookie"}
        body = (
            await anyio.to_thread.run_sync(_compress, body) if len(body) > _THREAD_BYTES else _compress(body)
        )
    return Response(body, operation.status, headers, media_type="application/json")


def compute_etag(body: bytes) -> str:
    return f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def matches_etag(request: Request, tag: str) -> bool:
    """Return whether the request's If-None-Match contains this ETag."""
    header = request.headers.get("if-none-match", "")
    return header == "*" or tag in (t.strip() for t in header.split(","))


def accepts_gzip(request: Request) -> bool:
    for item in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = item.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _compress(body: bytes) -> bytes:
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


class BodyTooLarge(KeryxError):
    """The body of a request exceeds its limit."""


class BodyIncomplete(KeryxError):
    """The client ended the connection, or was too slow, before the body was complete."""


class Unauthenticated(KeryxError):
    """Credentials are missing or wrong."""


class WrongHost(KeryxError):
    """The host of the request is not one of ours."""


# The first match wins, so subclasses come before their base classes.
ERROR_STATUS: tuple[tuple[type[KeryxError], HTTPStatus, str], ...] = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED, "the caller has not shown who they are"),
    (WrongHost, HTTPStatus.MISDIRECTED_REQUEST, "this place is not known under that name"),
    (BodyTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is above its limit"),
    (BodyIncomplete, HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time"),
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


def build_problem(
    status: HTTPStatus, detail: str, *, after: float | None = None, field: str = ""
) -> Response:
    """Build a problem document. `after` is in seconds and becomes Retry-After."""
    seconds = None if after is None else max(1, math.ceil(after))
    document = Problem(title=status.phrase, status=status.value, detail=detail, after=seconds, field=field)
    headers = {"Cache-Control": "no-store"}
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = BEARER_CHALLENGE
    return Response(codec.dumps(document), status.value, headers, media_type=PROBLEM_TYPE)


def find_status(error: KeryxError) -> HTTPStatus:
    return next(
        (status for kind, status, _ in ERROR_STATUS if isinstance(error, kind)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


def respond_to_error(error: KeryxError, path: str, texts: Texts | None = None) -> Response:
    """Build the response to an error in the shape that the clients of a path expect: for a person in their language, and for
    a program without texts."""
    if path.startswith(OPENAI_PATH):
        return openai_error(error)
    after = error.after.total_seconds() if isinstance(error, Retryable | Throttled) else None
    field = error.field if isinstance(error, WrongField) else ""
    return build_problem(find_status(error), describe_error(error, texts), after=after, field=field)


def describe_error(error: KeryxError, texts: Texts | None) -> str:
    """Return what went wrong: for people in their language, and without texts for programs and operators."""
    if texts is None:
        return str(error)
    if texts.language == ENGLISH.language:
        return texts.render(error.text)
    known = find_phrase(error.text, *ERROR_AREAS)
    return texts.render(known if isinstance(known, Phrase) else explain(error, "web.failed"))


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Build the response to an error of starlette, such as an unknown path."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = _DETAILS.get(status, error.detail)
    if request.url.path.split("/")[1] in _OPENAI_RESOURCES:
        response = _respond_in_openai_shape(HTTPStatus.NOT_FOUND, _WRONG_BASE_URL)
    elif request.url.path.startswith(OPENAI_PATH):
        response = _respond_in_openai_shape(status, detail)
    else:
        response = build_problem(status, detail)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


def report_unexpected(error: Exception, path: str) -> Response:
    """Log an unexpected error, and build a response that reveals nothing about it."""
    log.error("request failed", exc_info=error, extra=logs.REPEATS)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    detail = "something went wrong here: try again, and look into the log of keryx serve"
    return (
        _respond_in_openai_shape(status, detail)
        if path.startswith(OPENAI_PATH)
        else build_problem(status, detail)
    )


def openai_error(error: KeryxError) -> Response:
    """Build the response to an error as clients of OpenAI's API expect it."""
    after = error.after.total_seconds() if isinstance(error, Retryable | Throttled) else None
    response = _respond_in_openai_shape(find_status(error), str(error), after=after)
    if isinstance(error, AgentFailed | Conflict):
        # Clients would repeat it by themselves, and it would fail again.
        response.headers["X-Should-Retry"] = "false"
    return response


def build_openai_error(error: KeryxError) -> dict[str, Any]:
    return _build_openai_body(find_status(error), str(error))


def _build_openai_body(status: HTTPStatus, detail: str) -> dict[str, Any]:
    kind, code = _OPENAI_ERRORS.get(status, ("invalid_request_error", None))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind, code = "server_error", "server_error"
    return {"error": {"message": detail, "type": kind, "param": None, "code": code}}


def _respond_in_openai_shape(status: HTTPStatus, detail: str, *, after: float | None = None) -> Response:
    headers = {"Cache-Control": "no-store"}
    if after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(after)))
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = BEARER_CHALLENGE
    return Response(
        codec.dumps(_build_openai_body(status, detail)), status.value, headers, media_type="application/json"
    )


@asynccontextmanager
async def cancel_on_disconnect(receive: Receive) -> AsyncGenerator[None]:
    """Cancel the block when the client disconnects. What follows the block runs nevertheless."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            yield
        finally:
            group.cancel_scope.cancel()


async def send_chunk(send: Send, body: bytes) -> None:
    """Send a piece of a stream. Raise `TimeoutError` if the client has stopped reading."""
    with anyio.fail_after(_SEND_TIMEOUT_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def build_document(
    text: str, *, headers: Mapping[str, str], media_type: str, folder: Path | None
) -> Response:
    """Return a response with a text of any length. A long one is kept in a file of `folder`, not in memory, until a slow client
    has read it. Raise `Unavailable` if there is no room."""
    body = text.encode("utf-8", "replace")
    if len(body) <= _MAX_MEMORY_BYTES:
        return Response(body, headers=headers, media_type=media_type)
    try:
        file = await anyio.to_thread.run_sync(_write_file, body, folder)
    except OSError as exc:
        raise Unavailable(f"a long document cannot be kept for its reader: {exc.strerror}") from exc
    return StreamingResponse(
        _read_file(file), headers={**headers, "Content-Length": str(len(body))}, media_type=media_type
    )


def _write_file(body: bytes, folder: Path | None) -> IO[bytes]:
    # Files of the system may lie in memory; but the folder may be read-only.
    place = folder if folder is not None and os.access(folder, os.W_OK) else None
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(dir=place))
        file.write(body)
        file.seek(0)
        stack.pop_all()
    return file


async def _read_file(file: IO[bytes]) -> AsyncGenerator[bytes]:
    with file:
        while piece := await anyio.to_thread.run_sync(file.read, _FILE_PIECE_BYTES):
            yield piece
