"""The standard streams of an MCP server as the transport of its client. A line has a longest length, so that no result fills the memory, and the
whole process group of the server ends with the transport."""

import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from keryx import child_process
from keryx.child_process import ChildProcess
from keryx.jsonrpc import frames
from keryx.jsonrpc.frames import FrameTooLong

MAX_LINE_BYTES = 32_000_000


@asynccontextmanager
async def open_stdio(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str, on_error_line: Callable[[str], bool]
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Start a server and yield the streams of its messages. `on_error_line` is called with each line of its standard error.
    Raise `OSError` if it cannot be started."""
    variables = child_process.build_environment(env)
    if shutil.which(command[0], path=variables.get("PATH")) is None:
        raise FileNotFoundError(2, "there is no such program", command[0])
    process = await child_process.start(
        command, env=variables, cwd=cwd or os.getcwd(), on_error_line=on_error_line
    )
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_receive, process, received)
            group.start_soon(_send, process, sent, received)
            yield incoming, outgoing
            group.cancel_scope.cancel()
    finally:
        for stream in (received, incoming, outgoing, sent):
            stream.close()
        await process.stop()


async def _receive(
    process: ChildProcess, received: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async with received:
            async for frame in frames.read_frames(process.chunks(), limit=MAX_LINE_BYTES):
                await received.send(_parse_frame(frame))


async def _send(
    process: ChildProcess,
    sent: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    async for message in sent:
        line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await process.write(line.encode("utf-8", "replace") + b"\n")
        except BrokenPipeError:
            # The client sees the end instead of a request without an answer.
            await received.aclose()
            return


def _parse_frame(frame: bytes | FrameTooLong) -> SessionMessage | Exception:
    """Return a message, or the error of one that cannot be read. A result that is too long becomes an error of its request."""
    if isinstance(frame, FrameTooLong):
        if frame.id is None:
            return ValueError(str(frame))
        reason = types.ErrorData(code=types.INTERNAL_ERROR, message=f"its answer has more than {frame.limit}")
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=frame.id, error=reason))
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(frame, by_name=False))
    except ValueError as exc:
        return exc
