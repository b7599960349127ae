"""Desk: what every part of one editor's connection shares."""

from datetime import datetime

from anyio.abc import TaskGroup

from keryx.core import ids
from keryx.core.ids import OPERATOR, SessionId, WorkerId
from keryx.core.messages import Parts
from keryx.core.ports import Clock, Inbound
from keryx.core.sessions import Settings, Viewer
from keryx.core.source import Source
from keryx.core.workspaces import Lender
from keryx.engine.hub import Hub
from keryx.surfaces.acp.client import Client
from keryx.surfaces.acp.options import Choices
from keryx.surfaces.acp.peer import Json, Peer, encoded

SURFACE = "acp"


class Desk:
    """The hub, in whose name it is asked, and the editor that asks. `pin` is this process: it alone runs the turns
    of this editor."""

    def __init__(
        self,
        *,
        hub: Hub,
        viewer: Viewer,
        clock: Clock,
        pin: WorkerId,
        choices: Choices,
        person: str,
        group: TaskGroup,
        lender: Lender,
    ) -> None:
        self.hub = hub
        self.viewer = viewer
        self.clock = clock
        self.pin = pin
        self.choices = choices
        self.person = person
        self.group = group
        self.lender = lender
        self.client = Client()
        self._peer: Peer | None = None

    @property
    def peer(self) -> Peer:
        assert self._peer is not None
        return self._peer

    def connect(self, peer: Peer) -> None:
        self._peer = peer

    def now(self) -> datetime:
        return self.clock.now()

    def inbound(
        self, session: SessionId, parts: Parts, *, key: str, cwd: str, begin: Settings | None
    ) -> Inbound:
        """What the editor's person said, to be answered by this process."""
        source = Source(
            platform=SURFACE,
            chat=session,
            user="operator",
            user_name=self.person,
            message=key,
            profile=self.viewer.profile,
        )
        return Inbound(
            event=ids.new(self.now()),
            source=source,
            parts=parts,
            surface=SURFACE,
            session=session,
            begin=begin is not None,
            settings=begin,
            principal=OPERATOR,
            pin=self.pin,
            cwd=cwd,
        )

    async def update(self, session: SessionId, *updates: Json) -> None:
        """Send updates of a session, in order and in one go."""
        if updates:
            await self.peer.send_many(b"".join(frame(session, u) for u in updates))


def frame(session: SessionId, update: Json) -> bytes:
    params = {"sessionId": session, "update": update}
    return encoded({"jsonrpc": "2.0", "method": "session/update", "params": params})
