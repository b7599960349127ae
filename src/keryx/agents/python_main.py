"""The process of a Python agent: loads it, runs its turns in threads, and speaks with the hub over its standard streams.

python -m keryx.agents.python_main package.module:object
"""

import asyncio
import logging
import math
import os
import signal
import sys
from contextlib import suppress
from functools import partial

from keryx.agents import agent_wire
from keryx.agents.python import ThreadedAgent, load
from keryx.core.errors import Invalid
from keryx.jsonrpc import Json
from keryx.jsonrpc.frames import FrameWriter, read_chunks, read_frames
from keryx.jsonrpc.peer import IncomingRequest, Peer, serve
from keryx.process_group import list_descendants
from keryx.timing import SystemClock


class AgentServer:
    """Answers the requests of the hub."""

    def __init__(self, path: str, peer: Peer) -> None:
        self._path = path
        self._peer = peer
        self._agent: ThreadedAgent | None = None

    async def handle_request(self, request: IncomingRequest) -> object:
        match request.method:
            case agent_wire.PING:
                return {}
            case agent_wire.LOAD:
                return await agent_wire.wrap(self._load(request.params))
            case agent_wire.RUN:
                return await agent_wire.wrap(self._run(request.params))
            case _:
                raise Invalid(f"an agent has no method {request.method!r}")

    async def handle_notification(self, method: str, params: Json) -> None:
        raise Invalid(f"an agent takes no {method!r}")

    async def close(self) -> None:
        if self._agent:
            await self._agent.close()

    async def _load(self, params: Json) -> None:
        # Modules are found where the hub would find them.
        sys.path[:] = params["path"]
        self._agent = ThreadedAgent(f"the agent {self._path}", partial(load, self._path))
        await self._agent.wait_until_loaded()

    async def _run(self, params: Json) -> None:
        assert self._agent is not None, "a turn comes after the agent was loaded"
        run = {"run": params["run"]}

        async def call(method: str, more: Json) -> Json:
            return await self._peer.request(method, {**run, **more}, seconds=math.inf)

        context = agent_wire.decode_context(params["context"], call, SystemClock())
        async for event in self._agent.run(context):
            await call(agent_wire.EVENT, agent_wire.encode_event(event))


class _HubLog(logging.Handler):
    """Sends records to the log of the hub."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(logging.INFO)
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        entry = {"logger": record.name, "level": record.levelno, "message": self.format(record)}
        self._loop.call_soon_threadsafe(self._send, entry)

    def _send(self, entry: Json) -> None:
        task = self._loop.create_task(self._peer.notify(agent_wire.LOG, entry))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)


async def serve_hub(path: str, source: int, target: int) -> None:
    """Serve the hub until it closes the stream."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end_process)
    writer = FrameWriter(target)
    peer = Peer(writer.write, sends_cancel=True)
    server = AgentServer(path, peer)
    logging.getLogger().addHandler(_HubLog(peer))
    logging.getLogger().setLevel(logging.INFO)
    try:
        # What the hub sends may be a long conversation.
        frames = read_frames(read_chunks(source), limit=agent_wire.MAX_HUB_FRAME_BYTES, values=None)
        await serve(peer, frames, server)
    finally:
        await server.close()


def end_process() -> None:
    """End with the programs that the agent has started. A thread that is blocked does not keep the process."""
    for pid in list_descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def main() -> None:
    # The agent may print and read: its standard streams are not those of the protocol.
    source, target = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    asyncio.run(serve_hub(sys.argv[1], source, target))
    end_process()


if __name__ == "__main__":
    main()
