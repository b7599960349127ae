"""HTTP for adapters: a pool of clients with one connection each, and the check of a configured address."""

import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx

from keryx.core.errors import Invalid

_MAX_IDLE = 20


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


class HttpClientPool:
    """Reuses the client that was released last, and creates another if all are in use. `close` closes the clients in
    use, too; the pool can be used again after it."""

    def __init__(self, create: Callable[[ssl.SSLContext], httpx.AsyncClient]) -> None:
        self._factory = create
        self._ssl_context: ssl.SSLContext | None = None
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
        self._ssl_context = self._ssl_context or httpx.create_ssl_context()
        return self._factory(self._ssl_context)
