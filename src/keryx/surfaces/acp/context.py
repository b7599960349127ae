"""What all parts of one editor connection share: the hub, the viewer, the peer and the capabilities of the editor."""

from datetime import datetime

from anyio.abc import TaskGroup

from keryx.core import ids
from keryx.core.clock import Clock
from keryx.core.errors import Unavailable
from keryx.core.ids import OPERATOR, SessionId, WorkerId
from keryx.core.messages import Parts
from keryx.core.ports.adapter import InboundMessage
from keryx.core.ports.agent import WorkspaceRegistry
from keryx.core.sessions import SessionSettings, Viewer
from keryx.core.source import Source
from keryx.engine.hub import Hub
from keryx.jsonrpc import Json
from keryx.jsonrpc.peer import Peer, encode_message
from keryx.surfaces.acp.protocol import EditorCapabilities
from keryx.surfaces.acp.session_options import ModelChoices

SURFACE = "acp"


class EditorContext:
    def __init__(
        self,
        *,
        peer: Peer,
        hub: Hub,
        viewer: Viewer,
        clock: Clock,
        pin: WorkerId,
        choices: ModelChoices,
        person: str,
        currency: str,
        group: TaskGroup,
        workspaces: WorkspaceRegistry,
    ) -> None:
        self.peer = peer
        self.hub = hub
        self.viewer = viewer
        self.clock = clock
        # This process: it alone runs the turns of this editor.
        self.pin = pin
        self.choices = choices
        self.person = person
        # Of the costs of models.
        self.currency = currency
        self.group = group
        self.workspaces = workspaces
        self.capabilities = EditorCapabilities()

    def now(self) -> datetime:
        return self.clock.now()

    def build_inbound(
        self, session: SessionId, parts: Parts, *, key: str, cwd: str, begin: SessionSettings | None
    ) -> InboundMessage:
        """Build the message of the editor's user, to be answered by this process."""
        source = Source(
            platform=SURFACE,
            chat=session,
            user="operator",
            user_name=self.person,
            message=key,
            profile=self.viewer.profile,
        )
        return InboundMessage(
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

    async def request(self, session: SessionId, method: str, params: Json, *, seconds: float) -> Json:
        """Send a request about a session to the editor. Raise `RpcError` if it refuses, `Unavailable` if it does not
        answer in time."""
        try:
            return await self.peer.request(method, {"sessionId": session, **params}, seconds=seconds)
        except TimeoutError as exc:
            raise Unavailable(f"the editor did not answer {method} within {seconds:g} s") from exc

    async def send_updates(self, session: SessionId, *updates: Json) -> None:
        """Send updates of a session in order, in one write."""
        if updates:
            await self.peer.send_encoded(b"".join(encode_update(session, u) for u in updates))


def encode_update(session: SessionId, update: Json) -> bytes:
    params = {"sessionId": session, "update": update}
    return encode_message({"jsonrpc": "2.0", "method": "session/update", "params": params})
