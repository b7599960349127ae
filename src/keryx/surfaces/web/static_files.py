"""The files of the page, held in memory and compressed once, under URLs that change with their content."""

import gzip
import hashlib
import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keryx.core.errors import KeryxError
from keryx.core.text import to_sentence
from keryx.core.texts import CONTENT_AREA, ENGLISH, LANGUAGES, NO_CHANGES, Catalogue, Texts, choose_language
from keryx.surfaces.web.auth import Caller, list_readers
from keryx.surfaces.web.responses import (
    BEARER_CHALLENGE,
    OPENAI_PATH,
    WrongHost,
    accepts_gzip,
    build_problem,
    compute_etag,
    find_status,
    matches_etag,
    respond_to_error,
)

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
_IMMUTABLE = "public, max-age=31536000, immutable"
_NO_CACHE = "no-cache"
_INDEX = "index.html"
_WORKER = "worker.js"
# Of notifications.
_ICON = "icons/192.png"
_IMPORT = re.compile(r'^import [^;]*?"\./([\w.-]+)";$', re.MULTILINE)
_NO_SCRIPT = "page.Keryx needs JavaScript to show conversations as they happen."
_PREFIX = "/static/"
_LINK = re.compile(r'\b(href|src)="([\w./-]+)"')
_HTML_ACCEPTED = re.compile(r"\btext/html\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|\Z))", re.IGNORECASE)
_ERROR_PAGE = """\
<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Keryx</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="keryx.css">
</head>
<body>
<main class="empty missing"><h2>{words}</h2>{link}</main>
</body>
</html>
"""


class StaticFile(msgspec.Struct, frozen=True):
    body: bytes
    gzipped: bytes
    mime: str
    etag: str


class StaticFiles:
    """All files of the page. Their URLs share one version, so that JavaScript modules can import each other by relative path."""

    def __init__(self, texts: Catalogue = NO_CHANGES) -> None:
        files = _read_files(resources.files("keryx.surfaces.web") / "static", "")
        digest = hashlib.sha256()
        for name, body in sorted(files.items()):
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        self.version = digest.hexdigest()[:12]
        self._files = {name: _build_file(name, body) for name, body in files.items() if name != _INDEX}
        self._texts = texts
        worker = files.get(_WORKER, b"").decode()
        shell = [*_list_shell(files), _ICON]
        head = f'const VERSION = "{self.version}";\nconst SHELL = {msgspec.json.encode(shell).decode()};\n'
        self._worker = _build_file(_WORKER, (head + worker).encode())
        index = self._add_version(files.get(_INDEX, b"")).decode()
        self._indexes = {name: _build_index(index, texts.speak(name)) for name in LANGUAGES}

    async def serve_file(self, request: Request) -> Response:
        """Serve `/static/<version>/<name>`. Under another version it is the current file, and must not be cached."""
        version, _, name = request.path_params["name"].partition("/")
        file = self._files.get(name)
        if file is None:
            return build_problem(HTTPStatus.NOT_FOUND, "the page has no such file: load the page again")
        return _build_response(request, file, _IMMUTABLE if version == self.version else _NO_CACHE)

    async def serve_index(self, request: Request) -> Response:
        language = choose_language(request.headers.get("accept-language", ""))
        index = self._indexes[self._texts.speak(language).language]
        if not index.body:
            return build_problem(HTTPStatus.NOT_FOUND, "the page is not installed: install keryx again")
        return _build_response(request, index, _NO_CACHE, vary="Accept-Encoding, Accept-Language")

    async def serve_worker(self, request: Request) -> Response:
        """Serve the service worker of all pages. It names the version, so that a browser finds each release."""
        return _build_response(request, self._worker, _NO_CACHE)

    async def serve_share_target(self, _: Request) -> Response:
        """Lead to the page. What another app shares is taken by the service worker: here it comes only where there is none."""
        return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": "/?shared=none"})

    def serve_missing(self, request: Request) -> Response | None:
        """Return a page for a person at an unknown address, `None` for a program, which does not ask for HTML."""
        texts = self._texts.speak(choose_language(request.headers.get("accept-language", "")))
        words = texts.say("page.There is nothing at this address.")
        return self._build_page(texts, HTTPStatus.NOT_FOUND, words) if _wants_page(request) else None

    def serve_error(self, request: Request, error: Exception) -> Response:
        """Return a page for a person whose browser opens an address, and a problem document for the page itself and for a
        program, in the language of the browser."""
        assert isinstance(error, KeryxError)
        accepted = request.headers.get("accept-language", "")
        # Nobody is known where the error is that a caller could not sign in.
        caller = request.scope.get("state", {}).get("caller")
        readers = list_readers(caller.viewer if isinstance(caller, Caller) else None)
        texts = self._texts.speak(choose_language(accepted), "", *readers) if accepted else ENGLISH
        path = request.url.path
        if path.startswith(OPENAI_PATH) or not _wants_page(request):
            return respond_to_error(error, path, texts if accepted else None)
        words = to_sentence(texts.render(error.text))
        return self._build_page(texts, find_status(error), words, link=not isinstance(error, WrongHost))

    def _build_page(self, texts: Texts, status: HTTPStatus, words: str, *, link: bool = True) -> Response:
        """Build a page that says what is wrong, with a link to the conversations."""
        back = html.escape(texts.say("page.Go to your conversations"))
        page = _ERROR_PAGE.format(
            language=texts.language,
            words=html.escape(words),
            link=f'<p><a href="/">{back}</a></p>' if link else "",
        )
        headers = {"Cache-Control": "no-store", "Vary": "Accept, Accept-Language"}
        if status is HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = BEARER_CHALLENGE
        body = self._add_version(page.encode())
        return Response(body, status, headers, media_type=_TYPES["html"])

    def _add_version(self, body: bytes) -> bytes:
        """Add the version to the links of the index page."""

        def replace(link: re.Match[str]) -> str:
            known = link[2] in self._files
            return f'{link[1]}="{_PREFIX}{self.version}/{link[2]}"' if known else link[0]

        return _LINK.sub(replace, body.decode()).encode()


def _wants_page(request: Request) -> bool:
    """Whether a browser opens this address, rather than the page or a program."""
    accepted = request.headers.get("accept", "")
    return request.method in ("GET", "HEAD") and _HTML_ACCEPTED.search(accepted) is not None


def _read_files(folder: Traversable, prefix: str) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    out: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            out |= _read_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            out[f"{prefix}{entry.name}"] = entry.read_bytes()
    return out


def _list_shell(files: Mapping[str, bytes]) -> list[str]:
    """Return what the page needs to open: what its index links to, and what these scripts import."""
    found: dict[str, None] = {}
    queue = [link[2] for link in _LINK.finditer(files.get(_INDEX, b"").decode())]
    while queue:
        name = queue.pop()
        if name not in files or name in found:
            continue
        found[name] = None
        if name.endswith(".js"):
            queue += _IMPORT.findall(files[name].decode())
    return sorted(found)


def _build_file(name: str, body: bytes) -> StaticFile:
    packed = gzip.compress(body, 9, mtime=0)
    return StaticFile(
        body, packed if len(packed) < len(body) else b"", _TYPES[name.rpartition(".")[2]], compute_etag(body)
    )


_LATE_TEXTS = (
    "question.allow",
    "question.always",
    "question.always_tool",
    "question.always_program",
    "question.always_command",
    "question.always_exact",
    "question.always_folder",
    "question.always_speak",
    "question.deny",
    "question.may_use",
    "question.may_speak",
    "question.asker_gone",
    "turn.compaction_request",
    "turn.compaction_request_keep",
)


def _build_index(index: str, texts: Texts) -> StaticFile:
    """Build the index page of a language, with those texts of the page that differ from English."""
    said = {text: words for text, words in texts.list_area("page").items() if text != words}
    # The server sends questions and notices in English, those with fields with the keys of their texts.
    for key in _LATE_TEXTS:
        area, _, name = key.partition(".")
        english, words = ENGLISH.list_area(area)[name], texts.list_area(area)[name]
        if words != english:
            said |= {key: words, english: words}
    content = texts.list_area(CONTENT_AREA)
    said |= {
        f"{CONTENT_AREA}.{name}": content[name]
        for name, english in ENGLISH.list_area(CONTENT_AREA).items()
        if content[name] != english
    }
    data = msgspec.json.encode(said).decode().replace("<", "\\u003c")
    index = index.replace('lang="en"', f'lang="{texts.language}"', 1)
    index = index.replace(_NO_SCRIPT.removeprefix("page."), html.escape(texts.say(_NO_SCRIPT)), 1)
    body = index.replace("</head>", f'<script type="application/json" id="texts">{data}</script>\n</head>', 1)
    return _build_file(_INDEX, body.encode())


def _build_response(
    request: Request, file: StaticFile, cache: str, vary: str = "Accept-Encoding"
) -> Response:
    headers = {"Cache-Control": cache, "ETag": file.etag, "Vary": vary}
    if matches_etag(request, file.etag):
        return Response(status_code=304, headers=headers)
    if file.gzipped and accepts_gzip(request):
        return Response(file.gzipped, 200, {**headers, "Content-Encoding": "gzip"}, media_type=file.mime)
    return Response(file.body, 200, headers, media_type=file.mime)
