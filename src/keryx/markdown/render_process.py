"""Renders long texts in a process of lower priority, so that they delay nothing else in this process. The process starts when it is needed and ends when it is idle."""

import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from keryx.markdown import html

# A text that takes longer is shown without markup.
_TIMEOUT_SECONDS = 5.0
_IDLE_SECONDS = 60.0
_NICENESS = 5
_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 1 << 16


class RenderProcess:
    """Renders texts one after the other, for any number of threads."""

    def __init__(self, *, timeout: float = _TIMEOUT_SECONDS, idle: float = _IDLE_SECONDS) -> None:
        self._timeout = timeout
        self._idle = idle
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, text: str) -> str:
        """Return the HTML of a text; without markup if that takes too long or ends the process."""
        if not self._lock.acquire(timeout=self._timeout):
            return html.render_plain(text)
        try:
            return self._exchange(text)
        except (TimeoutError, BrokenPipeError):
            # It takes too long, or it has ended two processes.
            self._end()
            return html.render_plain(text)
        except OSError:
            # There are too few processes or files: this one has to do it.
            self._end()
            return "".join(html.render_blocks(text))
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _exchange(self, text: str) -> str:
        deadline = time.monotonic() + self._timeout
        body = text.encode("utf-8", "surrogatepass")
        try:
            return self._ask(self._process or self._start(), body, deadline)
        except (BrokenPipeError, EOFError):
            # It was idle and has ended.
            self._end()
        try:
            return self._ask(self._start(), body, deadline)
        except EOFError as exc:
            raise BrokenPipeError("the process that renders texts ended") from exc

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "keryx.markdown.render_process", str(self._idle)]
        # The module may be on a path that only this process knows.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0
        )
        return self._process

    @staticmethod
    def _ask(process: "subprocess.Popen[bytes]", body: bytes, deadline: float) -> str:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(_LENGTH.pack(len(body)))
        # It reads a text as a whole before it writes.
        view = memoryview(body)
        while view:
            view = view[process.stdin.write(view) :]
        output = process.stdout.fileno()

        def read(count: int) -> bytes:
            found = bytearray()
            while len(found) < count:
                ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError
                chunk = os.read(output, min(_CHUNK_BYTES, count - len(found)))
                if not chunk:
                    raise EOFError
                found += chunk
            return bytes(found)

        (length,) = _LENGTH.unpack(read(_LENGTH.size))
        return read(length).decode("utf-8", "surrogatepass")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()


@contextmanager
def render_long_texts_apart() -> Generator[None]:
    """Render long texts in a process of their own while the block runs."""
    process = RenderProcess()
    with html.delegate_long_texts(process.render):
        try:
            yield
        finally:
            process.close()


def main(idle: float, source: BinaryIO, sink: BinaryIO) -> None:
    """Render texts until the parent closes its pipe, or none has come for `idle` seconds."""
    os.nice(_NICENESS)
    while select.select([source], [], [], idle)[0]:
        length = source.read(_LENGTH.size)
        if len(length) < _LENGTH.size:
            return
        text = source.read(_LENGTH.unpack(length)[0]).decode("utf-8", "surrogatepass")
        body = "".join(html.render_blocks(text)).encode("utf-8", "surrogatepass")
        sink.write(_LENGTH.pack(len(body)) + body)
        sink.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
