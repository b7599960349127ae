"""Guard: what stands before every request: the right host, the right origin, a known caller, safe headers."""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keryx.core.errors import Forbidden, KeryxError
from keryx.core.sessions import Viewer
from keryx.engine.signins import SignIns
from keryx.surfaces.web import passwords, problems
from keryx.surfaces.web.credentials import COOKIE, Seal, same
from keryx.surfaces.web.problems import Misdirected, Unsigned

STREAM = "/api/stream"
SIGN_IN = "/api/sign-in"
_LOCAL = frozenset({"localhost"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORT = re.compile(r":\d{1,5}\Z")
# Platforms post to hooks under any name and prove themselves; probes ask by address or name.
_ANY_HOST = ("/hooks/", "/healthz", "/readyz")
_GUARDED = ("/api/", "/media/", "/metrics", "/openapi.json")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
        "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class Caller:
    """Who asks: the viewer, and the sign-in if a cookie said so."""

    def __init__(self, viewer: Viewer, sign_in: str | None = None) -> None:
        self.viewer = viewer
        self.sign_in = sign_in


class Gate:
    """Says who a request comes from. Without a token and a password everybody who reaches the place is its operator."""

    def __init__(
        self, operator: Viewer, sign_ins: SignIns, seal: Seal, *, token: str, password: str = ""
    ) -> None:
        self._operator = operator
        self._sign_ins = sign_ins
        self._seal = seal
        self._token = token
        self._password = password
        self._one_by_one = anyio.CapacityLimiter(1)

    @property
    def closed(self) -> bool:
        """Whether callers must show something."""
        return bool(self._token or self._password)

    async def admits(self, secret: str) -> Viewer | None:
        """Who signs in with a token or a password. Passwords take a while, in a thread, and one at a time."""
        if self._fits(secret):
            return self._operator
        if not self._password:
            return None
        right = await anyio.to_thread.run_sync(
            passwords.fits, secret, self._password, limiter=self._one_by_one
        )
        return self._operator if right else None

    async def caller(self, headers: Headers) -> Caller:
        """Who asks. Raises `Unsigned` if that was not shown."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.closed:
            if self._fits(given.strip()):
                return Caller(self._operator)
            raise Unsigned("this token is not right: use the one that Keryx was started with")
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if opened := self._seal.opened(cookie):
            viewer = await self._sign_ins.check(*opened)
            if viewer is not None:
                return Caller(viewer, opened[0])
        if self.closed:
            raise Unsigned(
                f"sign in first: POST the password or the token to {SIGN_IN}, or send the token as a bearer token"
            )
        return Caller(self._operator)

    def _fits(self, token: str) -> bool:
        return bool(self._token) and same(token, self._token)


class Guard:
    """Middleware. Handlers find the caller in `scope["state"]["caller"]`."""

    def __init__(self, app: ASGIApp, gate: Gate, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._gate = gate
        self._hosts = _LOCAL | frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers, path = Headers(scope=scope), str(scope["path"])
        safely = _with_headers(send)
        try:
            self._check_host(headers, path)
            self._check_origin(headers, str(scope["method"]), path)
            if path.startswith(_GUARDED) and path != SIGN_IN:
                scope.setdefault("state", {})["caller"] = await self._gate.caller(headers)
        except KeryxError as exc:
            await problems.of(exc)(scope, receive, safely)
            return
        await self._app(scope, receive, safely)

    def _check_host(self, headers: Headers, path: str) -> None:
        """A browser that was led here under a foreign name must not get in."""
        name = _PORT.sub("", headers.get("host", "")).lower().rstrip(".")
        if path.startswith(_ANY_HOST) or name in self._hosts or _address(name):
            return
        raise Misdirected(
            f"this place is not known as {name[:80]!r}: add the name to `hosts` under [web] in keryx.toml"
        )

    def _check_origin(self, headers: Headers, method: str, path: str) -> None:
        """Another site's page may neither change anything nor listen."""
        if path.startswith("/hooks/") or (method in _SAFE and path != STREAM):
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise Forbidden(f"a page of {origin[:80]!r} may not do this: use the page of this place")
        if origin is None and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a page of another site may not do this: use the page of this place")


def _address(name: str) -> bool:
    """Whether a name is a plain address: nobody can lead a browser here under that by a name of their own."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return safely
