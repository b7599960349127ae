"""One `imsg rpc` program, on this Mac or on another through ssh: JSON-RPC over its standard streams, the stream of new rows, and files on the Mac."""

import asyncio
import logging
import os
import shlex
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio

from keryx import child_process
from keryx.child_process import ChildProcess
from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.media import Attachment, clean_name
from keryx.core.texts import Phrase, explain_os_error
from keryx.jsonrpc import Json, RpcError, as_object, as_text, frames
from keryx.jsonrpc.peer import IncomingRequest, Peer, RequestId

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 32_000_000
_MAX_QUEUED_ROWS = 1000
# The first answer of a program takes as long as ssh needs to connect.
_START_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
# Messages takes some seconds for a text, and more for a large file.
SEND_SECONDS = 55.0
# A connection that is silent for this long is asked whether it is still there.
_SILENT_SECONDS = 60.0
_FILE_SECONDS = 60.0
_MIN_COMMAND = 2
_MISSING_FILE = Phrase("file.not_on_mac")
# No program on the way, such as ssh, ends with this code.
_MISSING_FILE_CODE = 44


class ImsgError(KeryxError):
    """A refusal of the program."""


class ImsgUnavailable(KeryxError):
    """The program cannot be started, or answers nothing: no request has reached Messages."""


class ImsgNoResponse(KeryxError):
    """The program ended or was silent after it got the request."""


class _ImsgProcess:
    """A running program. Rows wait in a bounded queue; while it is full, nothing more is read."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._peer = Peer(self._write, sends_cancel=False)
        # `None` after the last.
        self.rows: asyncio.Queue[Json | None] = asyncio.Queue(_MAX_QUEUED_ROWS)
        self.closed = False
        # Why a subscription has ended, if the program says so.
        self._failure = ""
        self._reader = asyncio.create_task(self._read())

    @property
    def close_reason(self) -> str:
        return self._failure or self._process.last_stderr_line or "it has ended"

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        if self.closed:
            raise ImsgNoResponse(Phrase("delivery.imsg_ended", reason=self.close_reason))
        try:
            return await self._peer.request(method, params, seconds=seconds)
        except RpcError as exc:
            raise ImsgError(f"imsg says: {exc}") from None
        except (TimeoutError, BrokenPipeError) as exc:
            await self.stop()
            raise ImsgNoResponse(
                Phrase("delivery.imsg_silent", method=method, kind=type(exc).__name__)
            ) from None

    async def stop(self) -> None:
        self.closed = True
        await self._process.stop()
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def handle_request(self, request: IncomingRequest) -> None:
        """Ignore it: the program asks for nothing."""

    async def handle_notification(self, method: str, params: Json) -> None:
        if method == "message":
            await self.rows.put(as_object(params.get("message")))
        elif method == "error":
            self._failure = as_text(as_object(params.get("error")).get("message")) or "the watch has ended"
            await self.rows.put(None)

    async def handle_invalid(self, id_: RequestId, error: RpcError, frame: bytes) -> None:
        log.warning("a line of imsg is left out: %s", error)

    async def _read(self) -> None:
        try:
            await self._peer.run(
                frames.read_frames(self._process.chunks(), limit=MAX_LINE_BYTES), handler=self
            )
        finally:
            self.closed = True
            self._peer.fail_pending(
                lambda: ImsgNoResponse(Phrase("delivery.imsg_ended", reason=self.close_reason))
            )
            if not self.rows.full():
                self.rows.put_nowait(None)

    async def _write(self, data: bytes) -> None:
        await self._process.write(data)


class ImsgClient:
    """The program of one account. It is started when it is needed, and again after it has ended."""

    def __init__(self, command: Sequence[str]) -> None:
        if len(command) < _MIN_COMMAND or command[-1] != "rpc":
            raise Invalid(
                'imessage.command: write the program and its command `rpc`, such as ["imsg", "rpc"] or ["ssh", "mac", "imsg", "rpc"]'
            )
        self._command = tuple(command)
        # What runs a command on the Mac; empty if this is the Mac.
        self._remote = self._command[:-_MIN_COMMAND]
        self._running: _ImsgProcess | None = None
        self._starting = asyncio.Lock()

    async def request(self, method: str, params: Json, *, seconds: float = _ANSWER_SECONDS) -> Json:
        """Return the result of a call. Raise `ImsgError`, `ImsgUnavailable` or `ImsgNoResponse`."""
        running = await self._connect()
        return await running.request(method, params, seconds=seconds)

    async def watch(self, since: int) -> AsyncIterator[Json]:
        """Yield the rows after a number, in order, until the program ends. Then raise `ImsgNoResponse`."""
        running = await self._connect()
        params: Json = {
            # 0 would mean: from now on.
            "since_rowid": since or -1,
            "attachments": True,
            "include_reactions": True,
        }
        await running.request("watch.subscribe", params, seconds=_ANSWER_SECONDS)
        while True:
            try:
                async with asyncio.timeout(_SILENT_SECONDS):
                    row = await running.rows.get()
            except TimeoutError:
                await running.request("chats.list", {"limit": 1}, seconds=_ANSWER_SECONDS)
                continue
            if row is not None:
                yield row
            if row is None or (running.closed and running.rows.empty()):
                await running.stop()
                raise ImsgNoResponse(Phrase("delivery.imsg_ended", reason=running.close_reason))

    async def read_file(self, path: str, *, limit: int) -> bytes:
        """Return the bytes of a file on the Mac. Raise `Invalid` if it has more than `limit` bytes or is not there, and
        `Unavailable` if the Mac cannot be reached."""
        if not self._remote:
            return await anyio.to_thread.run_sync(_read_local_file, path, limit)
        name = shlex.quote(path)
        script = f"[ -e {name} ] || exit {_MISSING_FILE_CODE}; head -c {limit + 1} {name}"
        body, code, reason = await self._run_remote(script)
        if code == _MISSING_FILE_CODE:
            raise Invalid(_MISSING_FILE)
        if code:
            raise Unavailable(Phrase("delivery.mac_unreachable", reason=reason))
        if len(body) > limit:
            raise Invalid(Phrase("file.too_large", limit=limit))
        return body

    @asynccontextmanager
    async def put_file(self, attachment: Attachment) -> AsyncGenerator[str]:
        """Write a file where the program can read it, yield its path, and remove it at the end. Raise `ImsgUnavailable`."""
        name = clean_name(attachment.name) or "file"
        if not self._remote:
            folder = await anyio.to_thread.run_sync(_write_local_file, name, attachment.body)
            try:
                yield f"{folder}/{name}"
            finally:
                await anyio.to_thread.run_sync(shutil.rmtree, folder, True)
            return
        size = len(attachment.body)
        script = f'd=$(mktemp -d) && head -c {size} > "$d"/{shlex.quote(name)} && printf %s "$d"'
        found, code, reason = await self._run_remote(script, attachment.body)
        folder = found.decode(errors="replace")
        if code or not folder:
            raise ImsgUnavailable(f"the file cannot be copied to the Mac: {reason or 'ssh says nothing'}")
        try:
            yield f"{folder}/{name}"
        finally:
            await self._run_remote(f"rm -r -- {shlex.quote(folder)}")

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def _connect(self) -> _ImsgProcess:
        """Return the running program. A new one is used only after its first answer."""
        async with self._starting:
            if self._running is not None and not self._running.closed:
                return self._running
            await self.close()
            running = _ImsgProcess(await self._start(self._command))
            try:
                await running.request("chats.list", {"limit": 1}, seconds=_START_SECONDS)
            except ImsgError as exc:
                await running.stop()
                raise ImsgUnavailable(str(exc)) from None
            except ImsgNoResponse as exc:
                await running.stop()
                raise ImsgUnavailable(
                    f"{exc}: run `{shlex.join(self._command)}` by hand to see why"
                ) from None
            except BaseException:
                await running.stop()
                raise
            self._running = running
            return running

    async def _start(self, command: Sequence[str]) -> ChildProcess:
        env = child_process.build_environment({k: v for k, v in os.environ.items() if k.startswith("SSH_")})
        try:
            return await child_process.start(command, env=env, cwd=os.getcwd())
        except OSError as exc:
            raise ImsgUnavailable(f"{command[0]} cannot be started: {exc.strerror}") from None

    async def _run_remote(self, script: str, body: bytes = b"") -> tuple[bytes, int, str]:
        """Run a script on the Mac. Return its output, its exit code, and why it failed if the code is not 0."""
        try:
            process = await self._start((*self._remote, script))
        except ImsgUnavailable as exc:
            return b"", 1, str(exc)
        try:
            with anyio.fail_after(_FILE_SECONDS):
                if body:
                    await process.write(body)
                found = b"".join([chunk async for chunk in process.chunks()])
                code = await process.wait()
        except (TimeoutError, BrokenPipeError) as exc:
            return b"", 1, process.last_stderr_line or type(exc).__name__
        finally:
            await process.stop()
        return found, code, process.last_stderr_line or f"exit code {code}"


def _read_local_file(path: str, limit: int) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            body = file.read(limit + 1)
    except FileNotFoundError:
        raise Invalid(_MISSING_FILE) from None
    except OSError as exc:
        raise Unavailable(Phrase("file.unreadable", reason=explain_os_error(exc))) from None
    if len(body) > limit:
        raise Invalid(Phrase("file.too_large", limit=limit))
    return body


def _write_local_file(name: str, body: bytes) -> str:
    try:
        folder = Path(tempfile.mkdtemp(prefix="keryx-"))
        (folder / name).write_bytes(body)
    except OSError as exc:
        raise ImsgUnavailable(f"the file cannot be written: {exc.strerror}") from None
    return str(folder)


def read_list(result: Json, name: str) -> list[Any]:
    """Return a list of a result; empty if there is none."""
    found = result.get(name)
    return cast(list[Any], found) if isinstance(found, list) else []
