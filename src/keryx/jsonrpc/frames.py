"""Frames, one JSON object per line: a bounded line splitter for any stream, and file descriptors read and written without blocking the event loop."""

import asyncio
import os
import re
import stat
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator

from keryx.core import codec
from keryx.jsonrpc import INVALID_PARAMS, RpcError

CHUNK_BYTES = 262_144
_HEAD_BYTES = 1024
_ID_PATTERN = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")'
)


class FrameTooLong(RpcError):
    """A line above a limit. `id` is the id of the request, if it is found at the start of the line."""

    def __init__(self, head: bytes, limit: str) -> None:
        super().__init__(INVALID_PARAMS, f"a message may have at most {limit}: send it in parts")
        self.limit = limit
        match = _ID_PATTERN.match(head)
        text = match[1].decode("utf-8", "replace") if match else ""
        self.id: int | str | None = text.strip('"') if text.startswith('"') else int(text) if text else None


async def read_frames(
    chunks: AsyncIterable[bytes], *, limit: int, values: int | None = codec.MAX_FOREIGN_VALUES
) -> AsyncIterator[bytes | FrameTooLong]:
    """Yield each line of a stream as it arrives, stripped; skip blank ones. A line above `limit` bytes is discarded
    while it arrives, and `FrameTooLong` is yielded in its place; so it is for one of more JSON values than `values`."""
    line = _LineBuffer(limit, values)
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            if not piece and line.empty:
                continue
            line.add(piece)
            if frame := line.take():
                yield frame
        line.add(rest)
    if frame := line.take():
        yield frame


class _LineBuffer:
    """One incomplete line. Only the start of a line that is too long is kept."""

    def __init__(self, limit: int, values: int | None) -> None:
        self._limit = limit
        self._values = values
        self._data = bytearray()
        self._too_long = False

    @property
    def empty(self) -> bool:
        return not self._data

    def add(self, piece: bytes) -> None:
        if self._too_long:
            return
        self._data += piece
        if len(self._data) > self._limit:
            self._too_long = True
            del self._data[_HEAD_BYTES:]

    def take(self) -> bytes | FrameTooLong:
        """Return the line and start the next one."""
        data, too_long = bytes(self._data).strip(), self._too_long
        self._data.clear()
        self._too_long = False
        if too_long:
            return FrameTooLong(data, f"{self._limit} bytes")
        if self._values is not None and codec.count_values(data) > self._values:
            return FrameTooLong(data[:_HEAD_BYTES], f"{self._values} values")
        return data


class FrameWriter:
    """Writes whole frames in order. A slow reader delays only the callers of `write`."""

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
        """Return when the frame has been written; it is written whole even if the caller is cancelled meanwhile.

        Raise `BrokenPipeError` when the reader has closed its end."""
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
        """Write as much of the backlog as possible without waiting."""
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


async def read_chunks(source: int) -> AsyncIterator[bytes]:
    """Yield the bytes of a file descriptor as they arrive, until its end."""
    loop = asyncio.get_running_loop()
    chunk = b"\n"
    while chunk:
        ready = asyncio.Event()
        try:
            loop.add_reader(source, ready.set)
        except PermissionError:
            # A plain file is always ready.
            pass
        else:
            try:
                await ready.wait()
            finally:
                loop.remove_reader(source)
        if chunk := os.read(source, CHUNK_BYTES):
            yield chunk
