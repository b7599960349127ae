"""LISTEN and NOTIFY: tells the other processes of a PostgreSQL store about a commit, and signals here when one of them commits."""

import asyncio
import logging
import selectors
import socket
import threading
from datetime import timedelta
from typing import Any

import psycopg

from keryx.core.durations import Backoff
from keryx.store.db import pipeline
from keryx.store.db.deadlines import DeadlineMonitor
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

_NOTIFY_BYTE, _CLOSE_BYTE = b"r", b"e"
_CLOSE_TIMEOUT_SECONDS = 5
_BACKOFF = Backoff(first=timedelta(seconds=0.1), longest=timedelta(seconds=2))
# Rate-limits NOTIFY.
_NOTIFY_INTERVAL_SECONDS = 0.005


class Notifier:
    """One connection and its thread. Commits during a notification share the next one."""

    def __init__(
        self,
        dsn: str,
        options: dict[str, Any],
        channel: str,
        wake: WakeSignal,
        loop: asyncio.AbstractEventLoop,
        monitor: DeadlineMonitor,
    ) -> None:
        self._monitor = monitor
        self._dsn = dsn
        self._options = options
        self._channel = channel
        self._wake = wake
        self._loop = loop
        self._closing = threading.Event()
        self._notify_pending = self._signal_pending = False
        # Why the last attempt to connect failed, `None` while there is a connection.
        self.trouble: psycopg.Error | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="keryx-notify", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Signal this process at once and the others within milliseconds. Thread-safe."""
        self._signal()
        if not self._notify_pending:
            self._notify_pending = True
            self._wake_thread(_NOTIFY_BYTE)

    def close(self) -> None:
        """Stop the thread, after a last notification if one is pending."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake_thread(_CLOSE_BYTE)
        self._thread.join(_CLOSE_TIMEOUT_SECONDS)

    def _wake_thread(self, signal: bytes) -> None:
        try:
            self._wake_writer.send(signal)
        except OSError:
            pass  # the buffer is full, so the thread wakes up anyway; or the thread has ended

    def _run(self) -> None:
        # The thread may end long after `close`, if a connection does not answer.
        with self._wake_reader, self._wake_writer:
            self._keep_listening()

    def _keep_listening(self) -> None:
        """Listen, and signal after each reconnect: notifications may have been missed meanwhile."""
        failures = 0
        while self._notify_pending or not self._closing.is_set():
            try:
                with pipeline.PipelineConnection.connect(
                    self._dsn, autocommit=True, **self._options
                ) as connection:
                    connection.statements.deadline.listens = True
                    self._monitor.add(connection.statements.deadline)
                    connection.statements.command(f'listen "{self._channel}"'.encode())
                    self._send_notify(connection)
                    self._signal()
                    failures = 0
                    self.trouble = None
                    self._listen(connection)
            except psycopg.Error as exc:
                self.trouble = exc
                if self._closing.is_set():
                    return
                log.warning("lost the wake-up connection, trying again: %s", exc)
                failures += 1
                self._closing.wait(_BACKOFF.seconds(failures))

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        server = connection.pgconn
        received = b""
        with selectors.DefaultSelector() as selector:
            selector.register(server.socket, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while _CLOSE_BYTE not in received:
                readable = {key.fileobj for key, _ in selector.select()}
                received = self._wake_reader.recv(4096) if self._wake_reader in readable else b""
                if _NOTIFY_BYTE in received:
                    self._notify_pending = (
                        False  # cleared first: a commit from here on needs another notification
                    )
                    self._send_notify(connection)
                    self._closing.wait(_NOTIFY_INTERVAL_SECONDS)
                server.consume_input()
                notifications = list(iter(server.notifies, None))
                if any(note.be_pid != server.backend_pid for note in notifications):
                    self._signal()

    def _send_notify(self, connection: psycopg.Connection[Any]) -> None:
        pipeline.get_pipeline(connection).command(f'notify "{self._channel}"'.encode())

    def _signal(self) -> None:
        if not self._signal_pending and not self._closing.is_set():
            self._signal_pending = True
            self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        self._signal_pending = False
        self._wake.signal()
