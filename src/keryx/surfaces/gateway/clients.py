"""Clients: HTTP clients of one connection each. A pool looks at every connection that it holds with each request."""

import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx

_MOST_FREE = 20


class Clients:
    """Lends clients, the one that came back last first, and makes another when all are lent. After `close`, which ends
    those that are lent too, it begins anew."""

    def __init__(self, make: Callable[[ssl.SSLContext], httpx.AsyncClient]) -> None:
        self._make = make
        self._trusted: ssl.SSLContext | None = None
        self._free: list[httpx.AsyncClient] = []
        self._lent: set[httpx.AsyncClient] = set()

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[httpx.AsyncClient]:
        client = self._free.pop() if self._free else self._made()
        self._lent.add(client)
        try:
            yield client
        finally:
            self._lent.discard(client)
            if len(self._free) < _MOST_FREE and not client.is_closed:
                self._free.append(client)
            else:
                await client.aclose()

    async def close(self) -> None:
        clients = [*self._free, *self._lent]
        self._free, self._lent = [], set()
        for client in clients:
            await client.aclose()

    def _made(self) -> httpx.AsyncClient:
        # httpx logs every address at info, and some hold a token.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._trusted = self._trusted or httpx.create_ssl_context()
        return self._make(self._trusted)
