"""Frames: one JSON object per line, read from and written to file descriptors without blocking the loop."""

import asyncio
import os
import re
import stat
from collections import deque
from collections.abc import AsyncIterator

from keryx.surfaces.acp.faults import PARAMS, Fault

_CHUNK = 262_144
_HEAD = 1024
_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")')


class TooLong(Fault):
    """A line above the limit. `id` is that of the request, if it stands at the beginning of the line."""

    def __init__(self, head: bytes, limit: int) -> None:
        super().__init__(PARAMS, f"a message may have at most {limit} bytes: send it in parts")
        match = _ID.match(head)
        text = match[1].decode("utf-8", "replace") if match else ""
        self.id: int | str | None = text.strip('"') if text.startswith('"') else int(text) if text else None


async def lines(source: int, *, limit: int) -> AsyncIterator[bytes | TooLong]:
    """Each line as it arrives, without its end; blank ones are left out. A line above the limit is dropped and told."""
    line = _Line(limit)
    while chunk := await _read(source):
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            line.add(piece)
            if found := line.take():
                yield found
        line.add(rest)
    if found := line.take():
        yield found


class _Line:
    """A line as it grows. Of one that grows too long only the beginning is kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._over = False

    def add(self, piece: bytes) -> None:
        if self._over:
            return
        self._data += piece
        if len(self._data) > self._limit:
            self._over = True
            del self._data[_HEAD:]

    def take(self) -> bytes | TooLong:
        """What was gathered, and begin afresh."""
        data, over = bytes(self._data).strip(), self._over
        self._data.clear()
        self._over = False
        return TooLong(data, self._limit) if over else data


class Outlet:
    """Writes whole frames, one after the other. A reader that is slow slows the writers and nobody else."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._backlog: deque[memoryview] = deque()
        self._drained = asyncio.Event()
        self._broken: OSError | None = None
        mode = os.fstat(target).st_mode
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if self._waits:
            os.set_blocking(target, False)

    async def write(self, frame: bytes) -> None:
        """Returns when the frame is on its way; it goes out whole even if the caller is cancelled meanwhile.

        Raises `BrokenPipeError` when nobody reads any more."""
        idle = not self._backlog
        self._backlog.append(memoryview(frame))
        if idle:
            self._flush()
            if self._backlog:
                self._drained.clear()
                asyncio.get_running_loop().add_writer(self._target, self._flush_more)
        if self._backlog:
            await self._drained.wait()
        if self._broken:
            raise BrokenPipeError(self._broken.errno, "nobody reads the answers") from self._broken

    def close(self) -> None:
        """Write what is left as far as somebody reads it at once."""
        self._flush()
        if self._waits:
            asyncio.get_running_loop().remove_writer(self._target)

    def _flush_more(self) -> None:
        self._flush()
        if not self._backlog:
            asyncio.get_running_loop().remove_writer(self._target)
            self._drained.set()

    def _flush(self) -> None:
        try:
            while self._backlog and self._broken is None:
                data = self._backlog.popleft()
                written = self._put(data)
                if written < len(data):
                    self._backlog.appendleft(data[written:])
                if not written:
                    return
        except OSError as exc:
            self._broken = exc
            self._backlog.clear()

    def _put(self, data: memoryview) -> int:
        try:
            return os.write(self._target, data)
        except BlockingIOError:
            return 0


async def _read(source: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        # A plain file is always ready.
        return os.read(source, _CHUNK)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)
    return os.read(source, _CHUNK)
