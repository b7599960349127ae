"""Authentication and request checks: tokens, signed cookies, limits on attempts, and the middleware that checks host, origin and caller and adds security headers."""

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keryx.core.cache import LruCache
from keryx.core.clock import Clock
from keryx.core.errors import Forbidden, KeryxError, Throttled
from keryx.core.sessions import Viewer
from keryx.engine.hub.sign_ins import SIGN_IN_LIFETIME, HubSignIns
from keryx.surfaces.web import responses, settings
from keryx.surfaces.web.responses import Unauthenticated, WrongHost

COOKIE_NAME = "keryx"
_MAX_FAILURES_PER_ADDRESS = 10
_MAX_FAILURES = 60
_WINDOW_SECONDS = 60.0
_MAX_ADDRESSES = 1_000
STREAM_PATH = "/api/stream"
SIGN_IN_PATH = "/api/sign-in"
_LOCAL_HOSTS = frozenset({"localhost"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PORT_SUFFIX = re.compile(r":\d{1,5}\Z")
# Platforms post to hooks under any name and prove themselves; probes ask by address or name.
_ANY_HOST_PATHS = ("/hooks/", "/healthz", "/readyz")
_AUTHENTICATED_PATHS = ("/api/", "/media/", "/metrics", "/openapi.json")
_SECURITY_HEADERS = {
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


class CookieSigner:
    """Signs cookies, so that a forged one is refused before anything is looked up."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encode(self, id_: str, secret: str) -> str:
        return f"{id_}.{secret}.{self._sign(f'{id_}.{secret}')}"

    def decode(self, cookie: str) -> tuple[str, str] | None:
        """The id and the secret of a cookie that was signed here."""
        signed, _, signature = cookie.rpartition(".")
        id_, _, secret = signed.partition(".")
        if not (id_ and secret and hmac.compare_digest(signature.encode(), self._sign(signed).encode())):
            return None
        return id_, secret

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


class AttemptLimiter:
    """Limits how often somebody may guess: by address, and in all. A try counts before it is judged."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: LruCache[str, deque[float]] = LruCache(_MAX_ADDRESSES)
        self._all_failures: deque[float] = deque()

    @contextmanager
    def attempt(self, address: str) -> Generator[Callable[[], None]]:
        """One try, which counts as wrong unless the given function is called. Raises `Throttled` if too many were wrong
        within the last minute."""
        self._check(address)
        now = self._clock.monotonic()
        mine = self._failures.get(address)
        if mine is None:
            mine = deque[float](maxlen=_MAX_FAILURES_PER_ADDRESS)
            self._failures.put(address, mine)
        mine.append(now)
        self._all_failures.append(now)

        def right() -> None:
            for tries in (mine, self._all_failures):
                if now in tries:
                    tries.remove(now)

        yield right

    def _check(self, address: str) -> None:
        for wrong, most in (
            (self._failures.get(address) or deque[float](), _MAX_FAILURES_PER_ADDRESS),
            (self._all_failures, _MAX_FAILURES),
        ):
            self._drop_expired(wrong)
            if len(wrong) >= most:
                wait = _WINDOW_SECONDS - (self._clock.monotonic() - wrong[0])
                raise Throttled(
                    "too many wrong tries: wait a minute, then try again", after=timedelta(seconds=wait)
                )

    def _drop_expired(self, wrong: deque[float]) -> None:
        while wrong and self._clock.monotonic() - wrong[0] > _WINDOW_SECONDS:
            wrong.popleft()


def tokens_equal(given: str, token: str) -> bool:
    """Whether two tokens are the same, in a time that tells nothing of where they differ."""
    return hmac.compare_digest(
        hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest(),
        hashlib.sha256(token.encode()).digest(),
    )


def build_cookie_header(value: str, *, secure: bool) -> str:
    """The header that gives a browser its cookie; an empty value takes it away."""
    age = int(SIGN_IN_LIFETIME.total_seconds()) if value else 0
    text = f"{COOKIE_NAME}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def read_cookie_key(folder: Path) -> bytes:
    """The key of the seal: made once, readable by nobody else. Blocks for as long as a small file takes."""
    path = folder / "secrets" / "web.key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        return key if len(key) >= 32 else _replace_cookie_key(path)
    with os.fdopen(handle, "wb") as file:
        key = secrets.token_bytes(32)
        file.write(key)
    return key


def _replace_cookie_key(path: Path) -> bytes:
    """A file that was cut short by a crash holds no key: everybody signs in again."""
    path.unlink()
    return read_cookie_key(path.parent.parent)


class Caller:
    """Who asks: the viewer, and the sign-in if a cookie said so."""

    def __init__(self, viewer: Viewer, sign_in: str | None = None) -> None:
        self.viewer = viewer
        self.sign_in = sign_in


class Authenticator:
    """Says who a request comes from. Without a token and a password everybody who reaches the place is its operator."""

    def __init__(
        self, operator: Viewer, sign_ins: HubSignIns, seal: CookieSigner, *, token: str, password: str = ""
    ) -> None:
        self._operator = operator
        self._sign_ins = sign_ins
        self._cookies = seal
        self._token = token
        self._password = password
        self._hash_limiter = anyio.CapacityLimiter(1)

    @property
    def required(self) -> bool:
        """Whether callers must show something."""
        return bool(self._token or self._password)

    async def check_secret(self, secret: str) -> Viewer | None:
        """Who signs in with a token or a password. Passwords take a while, in a thread, and one at a time."""
        if self._matches_token(secret):
            return self._operator
        if not self._password:
            return None
        right = await anyio.to_thread.run_sync(
            settings.verify_password, secret, self._password, limiter=self._hash_limiter
        )
        return self._operator if right else None

    async def authenticate(self, headers: Headers) -> Caller:
        """Who asks. Raises `Unsigned` if that was not shown."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.required:
            if self._matches_token(given.strip()):
                return Caller(self._operator)
            raise Unauthenticated("this token is not right: use the one that Keryx was started with")
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE_NAME, "")
        if opened := self._cookies.decode(cookie):
            viewer = await self._sign_ins.check(*opened)
            if viewer is not None:
                return Caller(viewer, opened[0])
        if self.required:
            raise Unauthenticated(
                f"sign in first: POST the password or the token to {SIGN_IN_PATH}, or send the token as a bearer token"
            )
        return Caller(self._operator)

    def _matches_token(self, token: str) -> bool:
        return bool(self._token) and tokens_equal(token, self._token)


class SecurityMiddleware:
    """Middleware. Handlers find the caller in `scope["state"]["caller"]`."""

    def __init__(self, app: ASGIApp, gate: Authenticator, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._authenticator = gate
        self._hosts = _LOCAL_HOSTS | frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers, path = Headers(scope=scope), str(scope["path"])
        safely = _add_security_headers(send)
        try:
            self._check_host(headers, path)
            self._check_origin(headers, str(scope["method"]), path)
            if path.startswith(_AUTHENTICATED_PATHS) and path != SIGN_IN_PATH:
                scope.setdefault("state", {})["caller"] = await self._authenticator.authenticate(headers)
        except KeryxError as exc:
            await responses.problem_from_error(exc)(scope, receive, safely)
            return
        await self._app(scope, receive, safely)

    def _check_host(self, headers: Headers, path: str) -> None:
        """A browser that was led here under a foreign name must not get in."""
        name = _PORT_SUFFIX.sub("", headers.get("host", "")).lower().rstrip(".")
        if path.startswith(_ANY_HOST_PATHS) or name in self._hosts or _is_ip_address(name):
            return
        raise WrongHost(
            f"this place is not known as {name[:80]!r}: add the name to `hosts` under [web] in keryx.toml"
        )

    def _check_origin(self, headers: Headers, method: str, path: str) -> None:
        """Another site's page may neither change anything nor listen."""
        if path.startswith("/hooks/") or (method in _SAFE_METHODS and path != STREAM_PATH):
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise Forbidden(f"a page of {origin[:80]!r} may not do this: use the page of this place")
        if origin is None and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a page of another site may not do this: use the page of this place")


def _is_ip_address(name: str) -> bool:
    """Whether a name is a plain address: nobody can lead a browser here under that by a name of their own."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _add_security_headers(send: Send) -> Send:
    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return safely
