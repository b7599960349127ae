"""The store of Keryx as the memory of agent frameworks, in whatever program they run: in a thread of its own, so that it can be used
with and without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from keryx import config
from keryx.bootstrap import open_database
from keryx.core import ids
from keryx.core.errors import Unavailable
from keryx.core.ids import OPERATOR
from keryx.core.sessions import Viewer
from keryx.store.db import Database, Work

T = TypeVar("T")


class StoreThread:
    """The store at a path or address, opened when it is first used. Without one, it is the store of the settings.

    All objects of a program may share one. Everything belongs to the operator, within the profile."""

    def __init__(self, store: str = "", *, profile: str = "", database: Database | None = None) -> None:
        settings = config.read()
        self._settings = msgspec.structs.replace(settings, database=store) if store else settings
        self._database = database
        self._opening = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.viewer = Viewer(ids.parse_profile(profile or settings.profile), OPERATOR)

    def write(self, label: str, work: Work[T]) -> T:
        return self._submit(self._write(label, work)).result()

    def read(self, label: str, work: Work[T]) -> T:
        return self._submit(self._read(label, work)).result()

    async def write_async(self, label: str, work: Work[T]) -> T:
        return await asyncio.wrap_future(self._submit(self._write(label, work)))

    async def read_async(self, label: str, work: Work[T]) -> T:
        return await asyncio.wrap_future(self._submit(self._read(label, work)))

    def close(self) -> None:
        """Close the store. What was written is durable without it."""
        with self._opening:
            self._closed = True
            loop, self._loop = self._loop, None
            if loop is None:
                return
            asyncio.run_coroutine_threadsafe(self._leave(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            return asyncio.run_coroutine_threadsafe(work, self._find_loop())
        except BaseException:
            work.close()
            raise

    def _find_loop(self) -> asyncio.AbstractEventLoop:
        with self._opening:
            if self._closed:
                raise Unavailable("this store is closed: make a new object")
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(loop,), name="keryx store", daemon=True).start()
                try:
                    asyncio.run_coroutine_threadsafe(self._enter(), loop).result()
                except BaseException:
                    loop.call_soon_threadsafe(loop.stop)
                    raise
                self._loop = loop
            return self._loop

    async def _enter(self) -> None:
        if self._database is None:
            self._database = open_database(self._settings)
        await self._database.__aenter__()

    async def _leave(self) -> None:
        assert self._database is not None, "a store that was opened is there"
        await self._database.__aexit__(None, None, None)

    async def _write(self, label: str, work: Work[T]) -> T:
        assert self._database is not None, "a loop runs when the store is open"
        return await self._database.write(label, work)

    async def _read(self, label: str, work: Work[T]) -> T:
        assert self._database is not None, "a loop runs when the store is open"
        return await self._database.read(label, work)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
