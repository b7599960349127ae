"""What fakes of platforms that hand over events by websockets are built on."""

import threading
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from keryx.testing.wire import WireFake

E = TypeVar("E")


def serve_until_closed(server: Server) -> None:
    """Serve in a thread. Who closes the server at the moment at which it begins to select takes its socket from under it."""
    try:
        server.serve_forever()
    except OSError:
        if server.socket.fileno() != -1:
            raise


@dataclass
class WebsocketFake(WireFake, Generic[E]):
    """Hands over what waits on the newest connection, each event once per connection, until it is acknowledged. What is not
    goes to the next connection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Not yet acknowledged, in order.
        self.waiting: list[E] = []
        self.connections: list[ServerConnection] = []
        self.connections_opened = 0
        self._socket: Server | None = None

    def accepts(self, path: str) -> bool:
        """Whether a connection may be made at this path, which contains the ticket."""
        raise NotImplementedError

    def greet(self, connection: ServerConnection) -> None:
        """Send what the platform sends first."""

    def name_event(self, event: E) -> str:
        raise NotImplementedError

    def encode_event(self, event: E) -> list[Any]:
        """Return the frames of an event, which are texts or bytes."""
        raise NotImplementedError

    def read_frame(self, connection: ServerConnection, frame: str | bytes) -> None:
        """Take what the client sends."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        super().__enter__()
        self._socket = serve(self._serve_socket, "127.0.0.1", 0, close_timeout=0.2, ping_interval=None)
        threading.Thread(target=serve_until_closed, args=[self._socket], daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._socket is not None:
            for connection in list(self.connections):
                connection.close_socket()
            self._socket.shutdown()
        super().__exit__(*details)

    @property
    def socket_url(self) -> str:
        assert self._socket is not None
        return f"ws://127.0.0.1:{self._socket.socket.getsockname()[1]}"

    def _serve_socket(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        if not self.accepts(connection.request.path):
            connection.close(1008)
            return
        with self.lock:
            self.connections.append(connection)
            self.connections_opened += 1
            self.lock.notify_all()
        threading.Thread(target=self._read_frames, args=(connection,), daemon=True).start()
        try:
            self.greet(connection)
            self._hand_over(connection)
        except ConnectionClosed:
            pass
        finally:
            self._forget(connection)

    def _hand_over(self, connection: ServerConnection) -> None:
        handed: set[str] = set()

        def find_fresh() -> list[E] | None:
            """Return what this connection has to hand over; `None` if it has ended."""
            if connection not in self.connections:
                return None
            newest = self.connections[-1] is connection
            return [event for event in self.waiting if newest and self.name_event(event) not in handed]

        while True:
            with self.lock:
                self.lock.wait_for(lambda: find_fresh() != [], 1)
                batch = find_fresh()
                if batch is None:
                    return
                events = self.inject_event_faults(batch)
                torn = bool(batch) and self.roll(self.faults.torn)
            handed |= {self.name_event(event) for event in batch}
            for number, event in enumerate(events):
                for frame in self.encode_event(event):
                    if torn and number == len(events) - 1:
                        connection.send(frame[: len(frame) // 2])
                        connection.close(1011)
                        return
                    connection.send(frame)

    def _read_frames(self, connection: ServerConnection) -> None:
        try:
            for frame in connection:
                self.read_frame(connection, frame)
        except ConnectionClosed:
            pass
        finally:
            self._forget(connection)

    def _forget(self, connection: ServerConnection) -> None:
        with self.lock:
            self.connections = [c for c in self.connections if c is not connection]
            self.lock.notify_all()
