"""Answers: values as HTTP responses, compressed and tagged where that helps."""

import gzip
import hashlib

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keryx.core import wire as codec
from keryx.surfaces.web.contract import Operation

_SMALLEST = 1_000
_LARGE = 100_000
_LEVEL = 4


async def answer(request: Request, operation: Operation, value: msgspec.Struct | None) -> Response:
    """The response of an operation that gave this value."""
    if value is None:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    body = codec.dumps(value).encode()
    headers = {"Cache-Control": "no-store"}
    if operation.tagged:
        tag = etag(body)
        headers = {"Cache-Control": "private, no-cache", "ETag": tag, "Vary": "Accept-Encoding, Cookie"}
        if unchanged(request, tag):
            return Response(status_code=304, headers=headers)
    if len(body) >= _SMALLEST and takes_gzip(request):
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding, Cookie"}
        body = await anyio.to_thread.run_sync(_packed, body) if len(body) > _LARGE else _packed(body)
    return Response(body, operation.status, headers, media_type="application/json")


def etag(body: bytes) -> str:
    return f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def unchanged(request: Request, tag: str) -> bool:
    """Whether the caller has this already."""
    given = request.headers.get("if-none-match", "")
    return given == "*" or tag in (t.strip() for t in given.split(","))


def takes_gzip(request: Request) -> bool:
    for item in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = item.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)
