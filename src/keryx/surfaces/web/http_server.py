"""The HTTP server: accepts connections within limits, and closes those that are silent, slow or do not read."""

import asyncio
import heapq
import logging
import resource
import socket
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import count

import anyio
import h11
import msgspec
import uvicorn
from h11._receivebuffer import ReceiveBuffer
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from keryx.client_address import group_address
from keryx.surfaces.web.auth import Caller
from keryx.surfaces.web.settings import WebSettings
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

# More descriptors than this are of no use to one process.
_MAX_DESCRIPTORS = 8_192
# Descriptors that connections never take: they are for the store, platforms, models, agents and tools.
_RESERVED_DESCRIPTORS = 256
_MIN_CONNECTIONS = 8
_MAX_HEAD_BYTES = 32_768
_MAX_HEADERS = 100
# The parser is given this much at a time. It checks the length of a head only between the pieces that it is given.
_MAX_PIECE_BYTES = 8_192
# After so many chunks of a body they must have this length on average. Each takes some 20 us, however short it is.
_MAX_SHORT_CHUNKS = 500
_MIN_CHUNK_BYTES = 256
# Bytes a second that a client must send of a body, or read of an answer, after the time of `stall`.
_MIN_RATE = 8_192
# What is read and thrown away of a body after the answer, so that the client sees the answer and not a reset.
_MAX_DISCARDED_BYTES = 1 << 20
_DISCARD_SECONDS = 2.0
_PAUSE_SECONDS = 0.5
_SWEEP_SECONDS = 1.0
# A connection is not closed for another one before this, because its request may be on its way.
_MIN_WAIT_SECONDS = 0.2
# When there are too many, this share of them is closed at once, because each search looks at all of them; of those that have
# their answer fewer, because their clients may be about to ask again.
_CLOSED_SHARE = 8
_ANSWERED_SHARE = 64
_STOP_SECONDS = 2
# The connections that wait in the kernel to be accepted.
_BACKLOG = 1_024
# Requests of all connections that begin in one pass of the event loop. Each takes a fraction of a millisecond.
MAX_REQUESTS_PER_PASS = 8


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections there may be, and how many seconds each may take."""

    total: int
    per_address: int
    streams: int
    head: float
    idle: float
    stall: float


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, within reason. Return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as exc:
        log.warning("the limit of open files stays at %d: %s", soft, exc)
        return soft
    return wanted


def build_limits(web: WebSettings, descriptors: int) -> ConnectionLimits:
    """Return the limits of the settings, lowered to what the descriptors of the process allow."""
    spare = max(_MIN_CONNECTIONS, descriptors - _RESERVED_DESCRIPTORS, descriptors // 4)
    total = min(web.connections, spare)
    return ConnectionLimits(
        total=total,
        per_address=web.connections_per_address,
        # The other half is for requests, which streams must not lock out.
        streams=max(1, min(web.streams, total // 2)),
        head=web.head.total_seconds(),
        idle=web.idle.total_seconds(),
        stall=web.stall.total_seconds(),
    )


class HeadBuffer(ReceiveBuffer):
    """What has come and was not parsed. It refuses heads and trailers of many lines before each line is looked at."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        lines = super().maybe_extract_lines()
        # The first line of a head is no header.
        if lines is not None and len(lines) > _MAX_HEADERS + 1:
            raise h11.RemoteProtocolError("there are too many headers")
        return lines


class RequestParser(h11.Connection):
    """The parser of one connection. It reads the head of a request only while `may_begin` is set. It refuses many headers
    and bodies of many short chunks, which would hold up the event loop, and requests whose length a proxy may understand
    otherwise."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, _MAX_HEAD_BYTES)
        self._receive_buffer = HeadBuffer()
        self.may_begin = False
        self._chunks = 0
        self._chunk_bytes = 0

    @property
    def has_rest(self) -> bool:
        """Whether there are bytes that were not parsed."""
        return len(self._receive_buffer) > 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.their_state is h11.IDLE and not self.may_begin:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._chunk_bytes += len(event.data)
            if self._chunks > _MAX_SHORT_CHUNKS and self._chunk_bytes < self._chunks * _MIN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks of the body are too short")
        elif isinstance(event, h11.Request):
            self.may_begin = False
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("the body has two lengths")
        elif isinstance(event, h11.EndOfMessage):
            self._chunks = self._chunk_bytes = 0
        return event


class HttpConnection(H11Protocol):
    """One connection, which knows for how long it has waited for its client."""

    def __init__(self, server: "HttpServer", group: str) -> None:
        super().__init__(server.config, server.server_state, {})
        self._parser = RequestParser()
        self.conn = self._parser
        self.group = group
        self._server = server
        # When the current wait began: for a request, or for the rest of its body.
        self.since = self.loop.time()
        # When the last request began.
        self.begun_at = 0.0
        # What has come and was not given to the parser, because a request is being answered or has to wait.
        self._pieces: deque[bytes] = deque()
        self._queued = False
        self._received = 0
        # The bytes of the body that had come at some time, and that time.
        self._progress = 0, self.since
        # The unsent bytes at the beginning of the current window of time, and that time.
        self._unsent: tuple[int, float] | None = None

    @property
    def waiting(self) -> bool:
        """Whether the client may be asked to come again: it has sent no whole request, or has its answer."""
        return self.incomplete or self._answered

    @property
    def incomplete(self) -> bool:
        """Whether a whole request is still to come: the first head, or the body of a caller who is not known. Anybody can
        leave out the rest of a body, while `SecurityMiddleware` names the caller before the body is read."""
        if self._silent:
            return True
        known = "caller" in self.scope.get("state", {})
        return self.cycle.more_body and not known and not self._answered

    @property
    def uploader(self) -> str | None:
        """The known person whose body is still to come."""
        if self._silent or self._answered or not self.cycle.more_body:
            return None
        caller = self.scope.get("state", {}).get("caller")
        return caller.account.principal if isinstance(caller, Caller) else None

    @property
    def _silent(self) -> bool:
        """Whether the first head is still incomplete."""
        return not self.cycle

    @property
    def _answered(self) -> bool:
        """Whether the answer to the last request was sent."""
        return not self._silent and self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._server.release(self)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._received += len(data)
        self._pieces.extend(
            data[start : start + _MAX_PIECE_BYTES] for start in range(0, len(data), _MAX_PIECE_BYTES)
        )
        self._read_on()
        if self._discarding and self._received > _MAX_DISCARDED_BYTES:
            self.transport.abort()

    def handle_events(self) -> None:
        """Go on after an answer with what has come meanwhile."""
        super().handle_events()
        self._read_on()

    def begin_request(self) -> None:
        """Begin the request that has come. Called by the queue of requests."""
        self._queued = False
        if self.transport.is_closing():
            return
        before = self.cycle
        self._parser.may_begin = True
        self.flow.resume_reading()
        super().handle_events()
        self._parse_pieces()
        self._parser.may_begin = False
        if self.cycle is not before:
            self.begun_at = self.since = self.loop.time()
            self._received = 0
            self._progress = 0, self.since

    def _read_on(self) -> None:
        """Parse more of a body at once. Wait in the queue to begin a request, but not while answers are unread."""
        self._parse_pieces()
        unparsed = self._pieces or self._parser.has_rest
        if self._parser.their_state is not h11.IDLE or not unparsed or self.transport.is_closing():
            return
        if not self._queued and not self.flow.write_paused:
            self._queued = True
            self._server.requests.add(self)
        if self._queued or self.flow.write_paused:
            self._pause_reading()

    def _parse_pieces(self) -> None:
        """Give the parser what has come, up to the end of the current request. Pause reading if more has come."""
        while self._pieces and not self.transport.is_closing():
            state = self._parser.their_state
            if state in (h11.MUST_CLOSE, h11.CLOSED):
                self._pieces.clear()
            elif state is h11.SEND_BODY or self._parser.may_begin:
                self._parser.receive_data(self._pieces.popleft())
                super().handle_events()
            else:
                self._pause_reading()
                return

    def _pause_reading(self) -> None:
        # Uvicorn resumes the transport without the knowledge of `flow` after the rest of a body was thrown away.
        self.flow.read_paused = True
        self.transport.pause_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request. If its answer has begun already, end the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
            if self.cycle:
                # The app may answer the part that came: it must see that the client is gone.
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        self.since, self._received = self.loop.time(), 0
        super().on_response_complete()

    def resume_writing(self) -> None:
        self._unsent = None
        super().resume_writing()
        self._read_on()

    def is_overdue(self, limits: ConnectionLimits) -> bool:
        """Whether the client has exceeded a limit of time. Called again and again."""
        now = self.loop.time()
        if self._reads_too_slowly(now, limits.stall):
            return True
        waited = now - self.since
        if self._silent:
            return waited > limits.head
        if self._discarding:
            return waited > _DISCARD_SECONDS
        if self._answered:
            return waited > limits.idle
        return self.cycle.more_body and self._sends_too_slowly(now, limits.stall)

    @property
    def _discarding(self) -> bool:
        """Whether the answer was sent before the whole body was read."""
        return self._answered and self.conn.their_state is h11.SEND_BODY

    def _sends_too_slowly(self, now: float, stall: float) -> bool:
        """Whether the rest of a body comes too slowly. What was sent fast earns no more than the time of `stall` again."""
        received, at = self._progress
        if self.flow.read_paused or self._received - received >= stall * _MIN_RATE:
            self._progress = self._received, now
            return False
        return now - at > stall + (self._received - received) / _MIN_RATE

    def _reads_too_slowly(self, now: float, stall: float) -> bool:
        size = self.transport.get_write_buffer_size()
        if size == 0:
            self._unsent = None
        elif self._unsent is None:
            self._unsent = size, now
        elif now - self._unsent[1] > stall:
            if size > self._unsent[0] - stall * _MIN_RATE:
                return True
            self._unsent = size, now
        return False


def find_oldest(
    waiting: Sequence[HttpConnection], before: float, *, incomplete: int, answered: int
) -> list[HttpConnection]:
    """Return those of the connections to close whose wait began before a time: so many without a whole request, or if there are
    none, so many that have their answer."""
    first = [c for c in waiting if c.incomplete]
    # Of a few that were accepted just now the requests may be on their way; of many that is not likely.
    if len(first) <= incomplete and not any(c.since <= before for c in first):
        first, incomplete = waiting, answered
    return [c for c in heapq.nsmallest(incomplete, first, key=lambda c: c.since) if c.since <= before]


def find_uploads(connections: Iterable[HttpConnection], most: int) -> list[HttpConnection]:
    """Return the connections of the person who sends most bodies at once, the oldest first, except for the last `most`."""
    by_person: defaultdict[str, list[HttpConnection]] = defaultdict(list)
    for connection in connections:
        if person := connection.uploader:
            by_person[person].append(connection)
    largest = max(by_person.values(), key=len, default=list[HttpConnection]())
    return sorted(largest, key=lambda connection: connection.since)[: max(0, len(largest) - most)]


class RequestQueue:
    """Begins requests, a few in each pass of the event loop, so that a burst of them leaves time for everything else. The
    connection whose last request is the longest time ago comes first."""

    def __init__(self) -> None:
        # Ordered by the time of the last request, then by arrival.
        self._waiting: list[tuple[float, int, HttpConnection]] = []
        self._numbers = count()
        self._left = MAX_REQUESTS_PER_PASS

    def add(self, connection: HttpConnection) -> None:
        """Begin the next request of a connection in this pass or a later one."""
        heapq.heappush(self._waiting, (connection.begun_at, next(self._numbers), connection))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._left:
            if self._left == MAX_REQUESTS_PER_PASS:
                asyncio.get_running_loop().call_soon(self._begin_pass)
            self._left -= 1
            heapq.heappop(self._waiting)[2].begin_request()

    def _begin_pass(self) -> None:
        self._left = MAX_REQUESTS_PER_PASS
        self._begin()


class HttpServer(uvicorn.Server):
    """Uvicorn with its own way of accepting: bounded in all and by address, without a loop that spins when descriptors run
    out. A connection too many takes the place of one that waits for its client."""

    def __init__(
        self, app: ASGIApp, limits: ConnectionLimits, *, shared: Callable[[str], bool] = lambda _: False
    ) -> None:
        """`shared` tells whether many clients share an address, so that it may have all connections."""
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpConnection,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_STOP_SECONDS,
                timeout_keep_alive=max(1, round(limits.idle)),
                server_header=False,
                proxy_headers=False,
                ws="none",
            )
        )
        self.requests = RequestQueue()
        self._limits = limits
        self._is_shared = shared
        # In the order of acceptance.
        self._open: dict[HttpConnection, None] = {}
        self._by_group: Counter[str] = Counter()
        self._released = WakeSignal()
        self._accepting = anyio.CancelScope()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the process: the HTTP server must not handle them."""
        yield

    async def run_on(self, listener: socket.socket) -> None:
        """Serve until `should_exit` is set."""
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        async with anyio.create_task_group() as group:
            group.start_soon(self._accept_all, listener)
            group.start_soon(self._sweep)
            await self.serve([])
            group.cancel_scope.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        await super().shutdown(sockets)

    def release(self, connection: HttpConnection) -> None:
        """Forget a connection that has ended."""
        if connection in self._open:
            del self._open[connection]
            self._by_group[connection.group] -= 1
            if not self._by_group[connection.group]:
                del self._by_group[connection.group]
            self._released.signal()

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with self._accepting:
            while True:
                await self._make_room()
                try:
                    accepted, peer = await loop.sock_accept(listener)
                    await self._admit(accepted, str(peer[0]))
                except ConnectionError:
                    continue
                except OSError as exc:
                    # Without a pause the loop would spin, because the connection still waits in the listener.
                    log.error("cannot accept connections now: %s", exc)
                    await anyio.sleep(_PAUSE_SECONDS)

    async def _make_room(self) -> None:
        """Wait until there may be one connection more. The others wait in the listener meanwhile."""
        while len(self._open) >= self._limits.total:
            log.warning("there are %d connections, as many as there may be", len(self._open))
            seen = self._released.count
            total = self._limits.total
            self._close_oldest(incomplete=total // _CLOSED_SHARE + 1, answered=total // _ANSWERED_SHARE + 1)
            if not any(connection.waiting for connection in self._open):
                # Nobody else may be kept out by the bodies that one person sends.
                for connection in find_uploads(self._open, total // 2):
                    connection.transport.abort()
            with anyio.move_on_after(_MIN_WAIT_SECONDS):
                await self._released.wait(seen)

    async def _admit(self, accepted: socket.socket, address: str) -> None:
        group = group_address(address)
        crowded = self._by_group[group] >= self._limits.per_address and not self._is_shared(address)
        if crowded and not self._close_oldest(group):
            log.warning("refused a connection of %s: it has %d", group, self._by_group[group])
            accepted.close()
            return
        try:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: HttpConnection(self, group), accepted
            )
        except BaseException:
            accepted.close()
            raise
        # It may have ended already.
        if not connection.transport.is_closing():
            self._open[connection] = None
            self._by_group[group] += 1

    def _close_oldest(self, group: str | None = None, *, incomplete: int = 1, answered: int = 1) -> bool:
        """Close connections that have waited for their clients for the longest time. Return whether there was one."""
        waiting = [c for c in self._open if group in (None, c.group) and c.waiting]
        before = asyncio.get_running_loop().time() - _MIN_WAIT_SECONDS
        oldest = find_oldest(waiting, before, incomplete=incomplete, answered=answered)
        for connection in oldest:
            connection.transport.abort()
        return bool(oldest)

    async def _sweep(self) -> None:
        """Close connections whose client takes too long."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            for connection in list(self._open):
                if connection.is_overdue(self._limits):
                    connection.transport.abort()
