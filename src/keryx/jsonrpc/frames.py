"""Reads and writes frames, one JSON object per line, on file descriptors without blocking the event loop."""

import asyncio
import os
import re
import stat
from collections import deque
from collections.abc import AsyncIterator

from keryx.jsonrpc.errors import INVALID_PARAMS, RpcError

_CHUNK_BYTES = 262_144
_HEAD_BYTES = 1024
_ID_PATTERN = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")'
)


class FrameTooLong(RpcError):
    """A line above the limit. `id` is that of the request, if it stands at the beginning of the line."""

    def __init__(self, head: bytes, limit: int) -> None:
        super().__init__(INVALID_PARAMS, f"a message may have at most {limit} bytes: send it in parts")
        match = _ID_PATTERN.match(head)
        text = match[1].decode("utf-8", "replace") if match else ""
        self.id: int | str | None = text.strip('"') if text.startswith('"') else int(text) if text else None


async def read_lines(source: int, *, limit: int) -> AsyncIterator[bytes | FrameTooLong]:
    """Each line as it arrives, without its end; blank ones are left out. A line above the limit is dropped and told."""
    line = _LineBuffer(limit)
    while chunk := await _read_chunk(source):
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            line.add(piece)
            if found := line.take():
                yield found
        line.add(rest)
    if found := line.take():
        yield found


class _LineBuffer:
    """A line as it grows. Of one that grows too long only the beginning is kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._too_long = False

    def add(self, piece: bytes) -> None:
        if self._too_long:
            return
        self._data += piece
        if len(self._data) > self._limit:
            self._too_long = True
            del self._data[_HEAD_BYTES:]

    def take(self) -> bytes | FrameTooLong:
        """What was gathered, and begin afresh."""
        data, over = bytes(self._data).strip(), self._too_long
        self._data.clear()
        self._too_long = False
        return FrameTooLong(data, self._limit) if over else data


class FrameWriter:
    """Writes whole frames, one after the other. A reader that is slow slows the writers and nobody else."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._backlog: deque[memoryview] = deque()
        self._drained = asyncio.Event()
        self._broken: OSError | None = None
        mode = os.fstat(target).st_mode
        self._pollable = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if self._pollable:
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
                asyncio.get_running_loop().add_writer(self._target, self._on_writable)
        if self._backlog:
            await self._drained.wait()
        if self._broken:
            raise BrokenPipeError(self._broken.errno, "nobody reads the answers") from self._broken

    def close(self) -> None:
        """Write what is left as far as somebody reads it at once."""
        self._flush()
        if self._pollable:
            asyncio.get_running_loop().remove_writer(self._target)

    def _on_writable(self) -> None:
        self._flush()
        if not self._backlog:
            asyncio.get_running_loop().remove_writer(self._target)
            self._drained.set()

    def _flush(self) -> None:
        try:
            while self._backlog and self._broken is None:
                data = self._backlog.popleft()
                written = self._write_some(data)
                if written < len(data):
                    self._backlog.appendleft(data[written:])
                if not written:
                    return
        except OSError as exc:
            self._broken = exc
            self._backlog.clear()

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._target, data)
        except BlockingIOError:
            return 0


async def _read_chunk(source: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        # A plain file is always ready.
        return os.read(source, _CHUNK_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)
    return os.read(source, _CHUNK_BYTES)
