"""Static: the files of the page, held in memory, packed once, under addresses that change with their content."""

import gzip
import hashlib
import re
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keryx.surfaces.web.answers import etag, takes_gzip, unchanged
from keryx.surfaces.web.problems import problem

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}
_FOREVER = "public, max-age=31536000, immutable"
_AGAIN = "no-cache"
_INDEX = "index.html"
_PREFIX = "/static/"
_ADDRESS = re.compile(r'\b(href|src)="([\w./-]+)"')


class File(msgspec.Struct, frozen=True):
    body: bytes
    packed: bytes
    mime: str
    tag: str


class Static:
    """Every file of the page. All share one mark, so that modules find each other by relative names."""

    def __init__(self) -> None:
        found = _found(resources.files("keryx.surfaces.web") / "static", "")
        digest = hashlib.sha256()
        for name, body in sorted(found.items()):
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        self.mark = digest.hexdigest()[:12]
        self._files = {name: _file(name, body) for name, body in found.items() if name != _INDEX}
        self._index = _file(_INDEX, self._marked(found.get(_INDEX, b"")))

    async def file(self, request: Request) -> Response:
        """`/static/<mark>/<name>`. Under another mark the file of now is given, not to be kept."""
        mark, _, name = request.path_params["name"].partition("/")
        found = self._files.get(name)
        if found is None:
            return problem(HTTPStatus.NOT_FOUND, "the page has no such file: load the page again")
        return _given(request, found, _FOREVER if mark == self.mark else _AGAIN)

    async def index(self, request: Request) -> Response:
        if not self._index.body:
            return problem(HTTPStatus.NOT_FOUND, "the page is not installed: install keryx again")
        return _given(request, self._index, _AGAIN)

    def _marked(self, body: bytes) -> bytes:
        """The index with the marked addresses of the files that it names."""

        def address(found: re.Match[str]) -> str:
            known = found[2] in self._files
            return f'{found[1]}="{_PREFIX}{self.mark}/{found[2]}"' if known else found[0]

        return _ADDRESS.sub(address, body.decode()).encode()


def _found(folder: Traversable, prefix: str) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    out: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            out |= _found(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            out[f"{prefix}{entry.name}"] = entry.read_bytes()
    return out


def _file(name: str, body: bytes) -> File:
    packed = gzip.compress(body, 9, mtime=0)
    return File(body, packed if len(packed) < len(body) else b"", _TYPES[name.rpartition(".")[2]], etag(body))


def _given(request: Request, file: File, cache: str) -> Response:
    headers = {"Cache-Control": cache, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if unchanged(request, file.tag):
        return Response(status_code=304, headers=headers)
    if file.packed and takes_gzip(request):
        return Response(file.packed, 200, {**headers, "Content-Encoding": "gzip"}, media_type=file.mime)
    return Response(file.body, 200, headers, media_type=file.mime)
