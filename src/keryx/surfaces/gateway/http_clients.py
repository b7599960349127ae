"""HTTP for adapters: a pool of clients with one connection each, the check of a configured address, and the rules for timeouts, errors and large answers."""

import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from urllib.parse import urlsplit

import httpx

from keryx.core.errors import Invalid, KeryxError
from keryx.core.texts import Phrase

# What stands for the reason of a platform that gives none.
NO_REASON = str(Phrase("delivery.no_reason"))
_MAX_IDLE = 20
_CONNECT_SECONDS = 10.0


def check_url(url: str, message: str, *, username: bool = False, query: bool = False) -> str:
    """Return a web address without its trailing slash. Raise `Invalid` with the message for anything else, and for an
    address with a user name, a query or a fragment where these are not allowed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Invalid(message) from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or (parts.username and not username)
        or ((parts.query or parts.fragment) and not query)
    ):
        raise Invalid(message)
    return url.rstrip("/")


def build_timeout(seconds: float) -> httpx.Timeout:
    """Return the timeout of one request. A connection is made within ten seconds, however long the answer may take."""
    return httpx.Timeout(seconds, connect=_CONNECT_SECONDS)


@contextmanager
def translate_errors(
    service: str,
    unreachable: Callable[[str], KeryxError],
    no_response: Callable[[str], KeryxError],
    *,
    setting: str = "base_url",
) -> Generator[None]:
    """Raise `unreachable` for a request that the service did not get, and `no_response` for one that it may have got.
    Neither names the address, which may contain a token."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
        raise unreachable(f"{service} cannot be reached ({type(exc).__name__})") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise unreachable(f"{service} cannot be reached: its {setting} is not a web address") from None
    except httpx.HTTPError as exc:
        raise no_response(f"{service} did not answer ({type(exc).__name__})") from None


async def read_body(answer: httpx.Response, limit: int, *, padding: int = 0) -> bytes:
    """Return the body of a streamed response. Raise `Invalid` as soon as it has more than `limit` bytes and the padding."""
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > limit + padding:
            raise Invalid(Phrase("file.too_large", limit=limit))
    return bytes(body)


class HttpClientPool:
    """Reuses the client that was released last, and creates another if all are in use. `close` closes the clients in
    use, too; the pool can be used again after it."""

    def __init__(self, create: Callable[[ssl.SSLContext], httpx.AsyncClient]) -> None:
        self._factory = create
        self._idle: list[httpx.AsyncClient] = []
        self._in_use: set[httpx.AsyncClient] = set()

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[httpx.AsyncClient]:
        client = self._idle.pop() if self._idle else self._create()
        self._in_use.add(client)
        try:
            yield client
        finally:
            self._in_use.discard(client)
            if len(self._idle) < _MAX_IDLE and not client.is_closed:
                self._idle.append(client)
            else:
                await client.aclose()

    async def close(self) -> None:
        clients = [*self._idle, *self._in_use]
        self._idle, self._in_use = [], set()
        for client in clients:
            await client.aclose()

    def _create(self) -> httpx.AsyncClient:
        # httpx logs every address at info, and some hold a token.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        return self._factory(_load_certificates())


@cache
def _load_certificates() -> ssl.SSLContext:
    """Return what all connections of adapters trust. Reading it takes 20 ms, so it is read once."""
    return httpx.create_ssl_context()
