"""Keryx as an agent of the Agent Client Protocol, version 1, for editors over standard streams: serves one editor until its stream ends."""

import anyio
import msgspec

from keryx.core.clock import Clock
from keryx.core.errors import Invalid
from keryx.core.ids import WorkerId
from keryx.core.ports.agent import WorkspaceRegistry
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.jsonrpc import frames
from keryx.jsonrpc import peer as jsonrpc
from keryx.jsonrpc.peer import Peer
from keryx.surfaces.acp.context import EditorContext
from keryx.surfaces.acp.login import LoginCommand
from keryx.surfaces.acp.methods import EditorMethods
from keryx.surfaces.acp.session_options import ModelChoices


class EditorServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    choices: ModelChoices = ModelChoices()
    person: str = ""
    currency: str = "USD"
    max_line_bytes: int = 32_000_000
    login_command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_line_bytes < 1024:
            raise Invalid("the longest message must be at least 1024 bytes")


async def serve(
    hub: Hub,
    viewer: Viewer,
    clock: Clock,
    *,
    pin: WorkerId,
    workspaces: WorkspaceRegistry,
    settings: EditorServerSettings,
    source: int,
    target: int,
) -> None:
    """Serve an editor on two file descriptors until it closes its stream."""
    writer = frames.FrameWriter(target)
    peer = Peer(writer.write, sends_cancel=True)
    async with anyio.create_task_group() as group:
        context = EditorContext(
            peer=peer,
            hub=hub,
            viewer=viewer,
            clock=clock,
            pin=pin,
            choices=settings.choices,
            person=settings.person,
            currency=settings.currency,
            group=group,
            workspaces=workspaces,
        )
        methods = EditorMethods(context, LoginCommand(settings.login_command), version=settings.version)
        lines = frames.read_frames(frames.read_chunks(source), limit=settings.max_line_bytes)
        try:
            await jsonrpc.serve(peer, lines, methods)
        finally:
            writer.close()
            group.cancel_scope.cancel()
