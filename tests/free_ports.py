"""Ports for servers that tests start, and start again where they were."""

import random
import socket

# Below those that the system gives to connections by itself, so that none of them takes a port before its server does.
_PORTS = range(12_000, 32_000)


def find_free_port() -> int:
    """Return a port that nothing listens on."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
