"""A TCP proxy that can be cut: connections die, or nothing passes until it is mended, as in a broken network."""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

_CHUNK = 65536


class TcpProxy:
    """Passes on what comes to a port of its own. A `dsn` through it is that of the server behind it."""

    def __init__(self, dsn: str) -> None:
        there = urlsplit(dsn)
        assert there.hostname and there.port
        self._there = (there.hostname, there.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._passing = threading.Event()
        self._passing.set()
        self._closed = False
        port = self._listening.getsockname()[1]
        self.dsn = dsn.replace(there.netloc, f"{there.netloc.rpartition(':')[0]}:{port}")
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, silently: bool) -> None:
        """Let nothing pass any more; unless silently, end what is connected and refuse what comes."""
        self._passing.clear()
        self._closed = not silently
        if self._closed:
            self._end()

    def mend(self) -> None:
        self._closed = False
        self._passing.set()

    def close(self) -> None:
        self._listening.close()
        self._passing.set()
        self._end()

    def _end(self) -> None:
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                if self._closed:
                    here.close()
                    continue
                there = socket.create_connection(self._there)
                self._sockets += [here, there]
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source:
            while chunk := source.recv(_CHUNK):
                self._passing.wait()
                target.sendall(chunk)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
