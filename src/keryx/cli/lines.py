"""Lines: what comes in through a pipe, line by line, without a thread that could hold up the end."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

_CHUNK = 65_536


async def lines() -> AsyncIterator[str]:
    """Each line of the input as it arrives, without its end. Bytes that are no UTF-8 survive as surrogates."""
    rest = b""
    while chunk := await _chunk():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield _text(line)
    if rest:
        yield _text(rest)


async def _chunk() -> bytes:
    try:
        source = sys.stdin.fileno()
    except OSError:
        # Not a file of the system, as in a test or a notebook: it never blocks.
        return sys.stdin.buffer.read(_CHUNK)
    await _readable(source)
    return os.read(source, _CHUNK)


async def _readable(source: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        # A plain file can always be read.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
