"""A pool of HTTP clients with one connection each, for the calls of an adapter."""

import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx

_MAX_IDLE = 20


class HttpClientPool:
    """Lends clients, the one that came back last first, and makes another when all are lent. After `close`, which ends
    those that are lent too, it begins anew."""

    def __init__(self, make: Callable[[ssl.SSLContext], httpx.AsyncClient]) -> None:
        self._factory = make
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
