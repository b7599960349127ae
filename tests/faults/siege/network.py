"""A hostile network: silent, slow and half-closed connections, oversized and endless bodies, requests that are none. It
has no token, so all of it are strangers.

python -m tests.faults.siege.network PORT SECONDS
"""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

# Strangers have addresses of their own. The network 127.0.0.0/8 has as many as are needed.
_ADDRESSES = [f"127.66.{n // 200}.{n % 200 + 1}" for n in range(600)]
_SILENT = 1_500
_BUSY = 33
_BODY = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def silent(port: int) -> None:
    """Connect and say nothing."""
    reader, writer = await _connect(port)
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(1), 60)
    writer.close()


async def slow_header(port: int) -> None:
    """A header of one byte a second."""
    _, writer = await _connect(port)
    for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 60:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)
    writer.close()


async def missing_body(port: int) -> None:
    """Promise a body that never comes."""
    reader, writer = await _connect(port)
    writer.write(_BODY + b"Content-Length: 100000\r\n\r\n{")
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(), 60)
    writer.close()


async def endless_body(port: int) -> None:
    """A chunked body without an end."""
    _, writer = await _connect(port)
    writer.write(_BODY + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(500):
        writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.close()


async def large_body(port: int) -> None:
    """Promise 10 GB, and begin."""
    _, writer = await _connect(port)
    writer.write(_BODY + b"Content-Length: 10000000000\r\n\r\n")
    for _ in range(100):
        writer.write(b"x" * 65_536)
        await writer.drain()
    writer.close()


async def long_header(port: int) -> None:
    """A header of 10 MB."""
    _, writer = await _connect(port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
    for _ in range(160):
        writer.write(b"a" * 65_536)
        await writer.drain()
    writer.close()


async def half_closed(port: int) -> None:
    """Ask, close the own side, and do not read."""
    _, writer = await _connect(port)
    writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
    writer.write_eof()
    await asyncio.sleep(20)
    writer.close()


async def unread(port: int) -> None:
    """Ask again and again, and read nothing."""
    _, writer = await _connect(port)
    for _ in range(200):
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(TimeoutError):
            await asyncio.wait_for(writer.drain(), 5)
    await asyncio.sleep(20)
    writer.transport.abort()


async def noise(port: int) -> None:
    """Bytes that are no request, and a reset."""
    _, writer = await _connect(port)
    writer.write(random.randbytes(4_096))
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def wrong_password(port: int) -> None:
    """A sign-in with a wrong password."""
    reader, writer = await _connect(port)
    body = b'{"secret": "guess", "name": "ann"}'
    writer.write(
        b"POST /api/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(), 30)
    writer.close()


async def sudden_silence(port: int) -> None:
    """Send a part of a body fast, and no more."""
    reader, writer = await _connect(port)
    writer.write(_BODY + b"Content-Length: 8000000\r\n\r\n" + b" " * 4_000_000)
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(), 60)
    writer.close()


async def wrong_token(port: int) -> None:
    """Ask with a key that does not exist."""
    reader, writer = await _connect(port)
    writer.write(
        b"GET /api/start HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer kx-guess\r\n\r\n"
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(), 30)
    writer.close()


BUSY = (
    sudden_silence,
    wrong_token,
    slow_header,
    missing_body,
    endless_body,
    large_body,
    long_header,
    half_closed,
    unread,
    noise,
    wrong_password,
)


async def attack(port: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for _ in range(_SILENT):
            group.create_task(_again(silent, port, until))
        for number in range(_BUSY):
            group.create_task(_again(BUSY[number % len(BUSY)], port, until))


async def _again(way: Callable[[int], Awaitable[None]], port: int, until: float) -> None:
    await asyncio.sleep(random.uniform(0, 5))
    while (left := until - time.monotonic()) > 0:
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(way(port), left)
        await asyncio.sleep(random.uniform(0.5, 2))


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = random.choice(_ADDRESSES)
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


if __name__ == "__main__":
    asyncio.run(attack(int(sys.argv[1]), float(sys.argv[2])))
