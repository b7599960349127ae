"""Authentication and request checks: tokens, signed cookies, and the middleware that checks host, origin and caller and adds security headers."""

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keryx.client_address import TrustedProxies, group_address
from keryx.core.errors import Forbidden, KeryxError, NotFound
from keryx.core.ids import OPERATOR, ProfileId
from keryx.core.ports.setup import WrongField
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase, Reader
from keryx.engine.hub.api_turns import KEY_PREFIX, ApiKey, HubApiKeys
from keryx.engine.hub.people import SIGN_IN_LIFETIME, HubSignIns
from keryx.engine.hub.users import HubUsers
from keryx.surfaces.web import settings
from keryx.surfaces.web.responses import Unauthenticated, WrongHost
from keryx.surfaces.web.sign_in_limits import GuessLimiter

COOKIE_NAME = "keryx"
STREAM_PATH = "/api/stream"
SHARE_PATH = "/share-target"
# The person for whom a browser sends what it has kept. Another one may have signed in with it meanwhile.
PERSON_HEADER = "keryx-person"
SIGN_IN_PATH = "/api/sign-in"
# The hash of no password, to compare with where there is no user.
_NO_PASSWORD = f"scrypt:{'0' * 32}:{'0' * 64}"
_LOCAL_HOSTS = frozenset({"localhost"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PROFILE_PATH = re.compile(r"/p/(?P<profile>[a-z0-9][a-z0-9_-]*)(?P<path>/.*)?\Z", re.DOTALL)
_PORT_SUFFIX = re.compile(r":\d{1,5}\Z")
# Platforms post to hooks under any name and prove themselves; probes ask by address or name.
# Files of the page are public, and the page that tells a person about a wrong name needs them.
_ANY_HOST_PATHS = ("/hooks/", "/healthz", "/readyz", "/static/")
_AUTHENTICATED_PATHS = ("/api/", "/v1/", "/a2a", "/ag-ui", "/mcp", "/media/", "/metrics", "/openapi.json")
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
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), payment=(), usb=()",
}


class CookieSigner:
    """Signs cookies, so that a forged one is rejected without a database lookup."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encode(self, id_: str, secret: str) -> str:
        return f"{id_}.{secret}.{self._sign(f'{id_}.{secret}')}"

    def decode(self, cookie: str) -> tuple[str, str] | None:
        """Return the id and the secret of a cookie, or None if its signature is wrong."""
        signed, _, signature = cookie.rpartition(".")
        id_, _, secret = signed.partition(".")
        if not (id_ and secret and hmac.compare_digest(signature.encode(), self._sign(signed).encode())):
            return None
        return id_, secret

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def tokens_equal(candidate: str, token: str) -> bool:
    """Compare two tokens in constant time."""
    return hmac.compare_digest(
        hashlib.sha256(candidate.encode("utf-8", "surrogatepass")).digest(),
        hashlib.sha256(token.encode()).digest(),
    )


def find_cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of the cookies of a name as they were sent: another program on the same host can add one.

    Ours are never quoted. The decoder of quoted ones in the standard library takes quadratic time before Python 3.11.10."""
    pairs = (pair.partition("=") for pair in headers.get("cookie", "").split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def build_cookie_header(value: str, *, secure: bool) -> str:
    """Return the Set-Cookie header for a value; an empty value deletes the cookie."""
    age = int(SIGN_IN_LIFETIME.total_seconds()) if value else 0
    text = f"{COOKIE_NAME}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def read_cookie_key(folder: Path) -> bytes:
    """Return the key that signs cookies. The first call creates it, readable only by the owner of the process. Blocks."""
    path = folder / "secrets" / "web.key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) >= 32:
            return key
        # A crash while the file was written left it short. A new key ends all sign-ins.
        path.unlink()
        return read_cookie_key(folder)
    with os.fdopen(handle, "wb") as file:
        key = secrets.token_bytes(32)
        file.write(key)
    return key


def list_readers(viewer: Viewer | None) -> Sequence[Reader]:
    """Return the kinds of reader that a viewer is, for the texts of the page; `None` is a stranger."""
    return (Reader.PAGE, Reader.OPERATOR) if viewer and viewer.principal == OPERATOR else (Reader.PAGE,)


class Caller:
    """The authenticated caller of a request."""

    def __init__(
        self,
        viewer: Viewer,
        sign_in: str | None = None,
        *,
        account: Viewer | None = None,
        key: ApiKey | None = None,
    ) -> None:
        # The caller in the profile of the request.
        self.viewer = viewer
        # The caller as they signed in, in any profile.
        self.account = account or viewer
        # The sign-in of the cookie, if the caller sent one.
        self.sign_in = sign_in
        # The key of a program.
        self.key = key

    def choose_profile(self, name: str, profiles: Collection[str]) -> "Caller":
        """Return the caller in another profile. Raise `Forbidden` unless the caller is the operator, who may look at each,
        and `NotFound` for an unknown profile."""
        if name == self.viewer.profile:
            return self
        if self.viewer.principal != OPERATOR:
            raise Forbidden(Phrase("web.foreign_profile"))
        if name not in profiles:
            raise NotFound(Phrase("web.no_profile", name=repr(name), choices=", ".join(profiles)))
        return Caller(Viewer(ProfileId(name), OPERATOR), self.sign_in, account=self.account, key=self.key)


class Authenticator:
    """Authenticates requests. If neither token nor password is set, every caller is the operator."""

    def __init__(
        self,
        operator: Viewer,
        sign_ins: HubSignIns,
        keys: HubApiKeys,
        users: HubUsers,
        cookies: CookieSigner,
        guesses: GuessLimiter,
        *,
        token: str,
        password: str = "",
    ) -> None:
        self._operator = operator
        self._sign_ins = sign_ins
        self._keys = keys
        self._users = users
        self._cookies = cookies
        self._guesses = guesses
        self._token = token
        self._password = password
        self._hash_limiter = anyio.CapacityLimiter(1)

    @property
    def required(self) -> bool:
        """Whether callers need a token, a password or a cookie."""
        return bool(self._token or self._password)

    @property
    def has_password(self) -> bool:
        """Whether the operator has a password, and not only a token."""
        return bool(self._password)

    async def check_secret(self, secret: str, *, name: str = "") -> Viewer | None:
        """Return the viewer of a token or password, or None if it is wrong. `name` is that of a user; the operator has
        none."""
        if name:
            user = await self._users.find(name)
            # An unknown name takes as long as a wrong password.
            right = await self.check_hash(secret, user.password if user else _NO_PASSWORD)
            return user.viewer if user and right else None
        if self._matches_token(secret):
            return self._operator
        right = bool(self._password) and await self.check_hash(secret, self._password)
        return self._operator if right else None

    async def check_hash(self, password: str, hashed: str) -> bool:
        """Return whether a password has a hash. Passwords are hashed in a thread, one at a time."""
        return await anyio.to_thread.run_sync(
            settings.verify_password, password, hashed, limiter=self._hash_limiter
        )

    async def require_own_password(self, password: str) -> None:
        """Raise `WrongField` unless this is the password of the operator."""
        if not await self.check_hash(password, self._password):
            raise WrongField("current", Phrase("user.wrong_current"))

    async def authenticate(self, headers: Headers, address: str) -> Caller:
        """Return the caller. Raise `Unauthenticated` if credentials are required and missing or wrong, `Throttled` after too
        many wrong tokens."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip()
        is_key = token.startswith(KEY_PREFIX)
        if scheme.lower() == "bearer" and (is_key or self.required):
            if self._matches_token(token):
                return Caller(self._operator)
            key = await self._keys.check(token) if is_key else None
            if key is not None:
                return Caller(key.viewer, key=key)
            self._guesses.count_wrong_token(address)
            raise Unauthenticated(
                "this token is not right: use the one that Keryx was started with, or a key of `keryx keys add`"
            )
        for decoded in filter(None, map(self._cookies.decode, find_cookies(headers, COOKIE_NAME))):
            viewer = await self._sign_ins.check(*decoded)
            if viewer is not None:
                return Caller(viewer, decoded[0])
        if self.required:
            raise Unauthenticated(
                f"sign in first: POST the password or the token to {SIGN_IN_PATH}, or send the token as a bearer token",
                Phrase("web.sign_in"),
            )
        return Caller(self._operator)

    def _matches_token(self, token: str) -> bool:
        return bool(self._token) and tokens_equal(token, self._token)


class SecurityMiddleware:
    """Middleware that checks host, origin and credentials, and adds security headers. Sets `scope["state"]`:
    the `caller`, and the `address` under which the client is counted. A path below `/p/<profile>` is that path in a
    profile; the part before it is the `prefix`."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        hosts: Iterable[str],
        proxies: TrustedProxies,
        profiles: Collection[str],
        respond_error: Callable[[Request, KeryxError], Response],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._hosts = _LOCAL_HOSTS | frozenset(hosts)
        self._proxies = proxies
        self._profiles = profiles
        self._respond_error = respond_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        profile = None
        state = scope.setdefault("state", {})
        state["prefix"] = ""
        if found := _PROFILE_PATH.match(scope["path"]):
            profile, scope["path"] = found["profile"], found["path"] or "/"
            state["prefix"] = f"/p/{profile}"
        headers, path = Headers(scope=scope), str(scope["path"])
        peer = scope["client"][0] if scope.get("client") else ""
        client = self._proxies.find_client(peer, headers.getlist("x-forwarded-for"))
        state["address"] = group_address(client)

        async def send_secure(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    added.setdefault(name, value)
            await send(message)

        try:
            self._check_host(headers, path)
            self._check_origin(headers, str(scope["method"]), path)
            if path.startswith(_AUTHENTICATED_PATHS) and not (
                path == SIGN_IN_PATH or path.startswith(f"{SIGN_IN_PATH}/")
            ):
                caller = await self._authenticator.authenticate(headers, state["address"])
                if headers.get(PERSON_HEADER, caller.viewer.principal) != caller.viewer.principal:
                    raise Unauthenticated(Phrase("web.other_person"))
                state["caller"] = caller.choose_profile(profile, self._profiles) if profile else caller
        except KeryxError as exc:
            await self._respond_error(Request(scope), exc)(scope, receive, send_secure)
            return
        await self._app(scope, receive, send_secure)

    def _check_host(self, headers: Headers, path: str) -> None:
        """Raise `WrongHost` for an unknown host name, which protects against DNS rebinding."""
        name = _PORT_SUFFIX.sub("", headers.get("host", "")).lower().rstrip(".")
        if path.startswith(_ANY_HOST_PATHS) or name in self._hosts or _is_ip_address(name):
            return
        raise WrongHost(Phrase("web.wrong_host", host=repr(name[:80])))

    def _check_origin(self, headers: Headers, method: str, path: str) -> None:
        """Raise `Forbidden` for a change or a stream that a page of another site requests."""
        # What other apps share has no origin, and is not read here.
        if (
            path.startswith("/hooks/")
            or path == SHARE_PATH
            or (method in _SAFE_METHODS and path != STREAM_PATH)
        ):
            return
        origin = headers.get("origin")
        if origin is not None and _find_origin_host(origin) != headers.get("host", "").lower():
            raise Forbidden(f"a page of {origin[:80]!r} may not do this: use the page of this place")
        if origin is None and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden("a page of another site may not do this: use the page of this place")


def _find_origin_host(origin: str) -> str:
    """Return the host and port of an origin; an empty text if it has none or is malformed."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_ip_address(name: str) -> bool:
    """Return whether a host is an IP address. Those are safe: DNS rebinding needs a name."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
