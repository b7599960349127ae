"""Surface: one editor, from its first line to the end of its stream."""

import anyio
import msgspec

from keryx.core.errors import Invalid
from keryx.core.ids import WorkerId
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.core.workspaces import Lender
from keryx.engine.hub import Hub
from keryx.surfaces.acp import frames
from keryx.surfaces.acp.desk import Desk
from keryx.surfaces.acp.login import Login
from keryx.surfaces.acp.methods import Methods
from keryx.surfaces.acp.options import Choices
from keryx.surfaces.acp.peer import Peer


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How an editor is served. `limit` is the length of the longest line in bytes; `login` a command to log in with."""

    version: str
    choices: Choices = Choices()
    person: str = ""
    limit: int = 32_000_000
    login: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 1024:
            raise Invalid("the longest message must be at least 1024 bytes")


async def serve(
    hub: Hub,
    viewer: Viewer,
    clock: Clock,
    *,
    pin: WorkerId,
    lender: Lender,
    setup: Setup,
    source: int,
    target: int,
) -> None:
    """Serve the editor on two file descriptors until it hangs up."""
    outlet = frames.Outlet(target)
    async with anyio.create_task_group() as group:
        desk = Desk(
            hub=hub,
            viewer=viewer,
            clock=clock,
            pin=pin,
            choices=setup.choices,
            person=setup.person,
            group=group,
            lender=lender,
        )
        peer = Peer(outlet.write, Methods(desk, Login(setup.login), version=setup.version))
        desk.connect(peer)
        try:
            await peer.run(frames.lines(source, limit=setup.limit))
        finally:
            outlet.close()
            group.cancel_scope.cancel()
