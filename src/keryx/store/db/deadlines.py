"""Deadlines of PostgreSQL statements: cuts connections whose server does not answer in time, and those that were silent as long."""

import logging
import socket
import threading
import time
import weakref
from types import TracebackType

import psycopg
from psycopg.pq import ConnStatus
from psycopg.pq.abc import PGconn

log = logging.getLogger(__name__)
# How often in its time a deadline is looked at.
_CHECKS_PER_DEADLINE = 10


class StatementDeadline:
    """The time in which the server of one connection must answer a statement, which runs in the block of this.

    It is measured on this side: a connection that is silent tells nothing, and would be waited for for ever."""

    def __init__(self, server: PGconn) -> None:
        self._server = server
        # Held while the connection is cut or closed: else another file could get its descriptor between.
        self.lock = threading.Lock()
        # No limit, unless it is set.
        self.seconds: float | None = None
        # When the statement that runs began, `None` if none does, and when the last answer came.
        self.began: float | None = None
        self.answered = time.monotonic()
        # Whether it was silent while another one did not answer, and should not be used any more.
        self.suspect = False
        # Whether a thread reads from the server between statements, so that it notices at once when the connection is cut.
        self.listens = False

    def __enter__(self) -> None:
        with self.lock:
            self.check()
            self.began = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.lock:
            self.began = None
            self.answered = time.monotonic()

    def check(self) -> None:
        """Raise an error as of a lost connection if this one was given up."""
        if self.suspect:
            raise psycopg.OperationalError("the connection is given up, as it was silent for long")

    def is_over(self) -> bool:
        began, seconds = self.began, self.seconds
        return began is not None and seconds is not None and time.monotonic() - began > seconds

    def give_up_if_silent(self, since: float) -> bool:
        """Refuse further statements if nothing has come from the server since, except if one runs that may take longer.
        Return whether it was done."""
        with self.lock:
            if self.answered > since or self._server.status != ConnStatus.OK:
                return False
            if self.began is not None and not self.is_over():
                return False
            self.suspect = True
            return True

    def cut(self) -> None:
        """Shut the connection down, so that its statement fails as if the server had closed it. One that runs none is left
        to the next user."""
        with self.lock:
            if self.began is None and not self.listens:
                return
            try:
                with socket.socket(fileno=socket.dup(self._server.socket)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
            except (OSError, psycopg.OperationalError) as exc:
                log.debug("a silent connection was closed meanwhile: %s", exc)


class DeadlineMonitor:
    """A thread that looks after the deadlines of the connections of one store."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._deadlines: weakref.WeakSet[StatementDeadline] = weakref.WeakSet()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keryx-deadlines", daemon=True)
        self._thread.start()

    def add(self, deadline: StatementDeadline) -> None:
        deadline.seconds = self._seconds
        with self._lock:
            self._deadlines.add(deadline)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._seconds / _CHECKS_PER_DEADLINE):
            with self._lock:
                deadlines = list(self._deadlines)
            started = [d.began for d in deadlines if d.is_over()]
            # What took one connection took those that were silent as long, most likely: each use would wait as long.
            since = max((began for began in started if began is not None), default=None)
            if since is None:
                continue
            # All are given up before the first is cut: whoever fails then and tries again gets none of the others.
            silent = [d for d in deadlines if d.give_up_if_silent(since)]
            for deadline in silent:
                deadline.cut()
            log.warning(
                "PostgreSQL has not answered a statement for %g s: %d silent connections are given up",
                time.monotonic() - since,
                len(silent),
            )
