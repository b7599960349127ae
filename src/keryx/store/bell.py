"""Bell: rings in the other processes of a PostgreSQL after a commit, and signals here when one of them rings.

It rings beside the transactions, for those that notify commit one after the other, each with its own sync of the disk."""

import asyncio
import logging
import selectors
import socket
import threading
from typing import Any, LiteralString, cast

import psycopg

from keryx.store import statements
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

_RING, _END = b"r", b"e"
_LAST_SECONDS = 5
# Between two rings, so that a rush of commits does not become a rush of rings.
_PAUSE = 0.005


class Bell:
    """One connection and its thread. Commits that come while it rings share the next ring."""

    def __init__(
        self, dsn: str, options: dict[str, Any], channel: str, wake: Wake, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._dsn = dsn
        self._options = options
        self._channel = channel
        self._wake = wake
        self._loop = loop
        self._ends = threading.Event()
        self._due = self._told = False
        self._mine, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._thread = threading.Thread(target=self._forever, name="keryx-bell", daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """Signal here at once, and elsewhere very soon. From any thread."""
        self._signal()
        if not self._due:
            self._due = True
            self._send(_RING)

    def close(self) -> None:
        """End it, with a last ring if one is due."""
        if self._ends.is_set():
            return
        self._ends.set()
        self._send(_END)
        self._thread.join(_LAST_SECONDS)
        if not self._thread.is_alive():
            self._mine.close()
            self._theirs.close()

    def _send(self, what: bytes) -> None:
        try:
            self._theirs.send(what)
        except BlockingIOError:
            pass  # so many wait that one more makes no difference

    def _forever(self) -> None:
        """Whoever comes back after a lost connection may have missed something, and so may those who did not hear it."""
        delay = 0.1
        while self._due or not self._ends.is_set():
            try:
                with psycopg.connect(
                    self._dsn, autocommit=True, connect_timeout=5, **self._options
                ) as connection:
                    connection.execute(cast(LiteralString, f'listen "{self._channel}"'))
                    self._notify(connection)
                    self._signal()
                    delay = 0.1
                    self._hear(connection)
            except psycopg.Error as exc:
                if self._ends.is_set():
                    return
                log.warning("lost the wake-up connection, trying again: %s", exc)
                self._ends.wait(delay)
                delay = min(delay * 2, 2)

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        server = connection.pgconn
        asked = b""
        with selectors.DefaultSelector() as either:
            either.register(server.socket, selectors.EVENT_READ)
            either.register(self._mine, selectors.EVENT_READ)
            while _END not in asked:
                readable = {key.fileobj for key, _ in either.select()}
                asked = self._mine.recv(4096) if self._mine in readable else b""
                if _RING in asked:
                    self._due = False  # before the ring: whoever comes now asks for the next one
                    self._notify(connection)
                    self._ends.wait(_PAUSE)
                server.consume_input()
                heard = list(iter(server.notifies, None))
                if any(note.be_pid != server.backend_pid for note in heard):
                    self._signal()

    def _notify(self, connection: psycopg.Connection[Any]) -> None:
        statements.of(connection).command(f'notify "{self._channel}"'.encode())

    def _signal(self) -> None:
        if not self._told and not self._ends.is_set():
            self._told = True
            self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        self._told = False
        self._wake.signal()
