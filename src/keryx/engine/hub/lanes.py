"""The lanes of a viewer: list, reset, suspend, switch to another session, set instructions."""

from keryx.core.ids import SessionId
from keryx.core.lanes import Lane, LaneMove
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.units import control, identities, receive
from keryx.store import lanes, sessions
from keryx.store.db import Database, Transaction


class HubLanes(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    page = bind_read("lanes", lanes.list_recent)

    @read_unit("lane")
    def get(self, tx: Transaction, viewer: Viewer, key: str) -> tuple[Lane, list[LaneMove]]:
        """Return a lane and the sessions it had, newest first."""
        lane = lanes.get(tx, key, viewer=viewer)
        return lane, lanes.list_moves(tx, lane.key)

    @write_unit("lane.reset")
    def reset(self, tx: Transaction, viewer: Viewer, key: str) -> None:
        """Let the next message in a lane start a new session."""
        control.start_new_session(tx, lanes.get(tx, key, viewer=viewer))

    @write_unit("lane.chat")
    def move_chat(self, tx: Transaction, platform: str, account: str, old: str, new: str) -> None:
        """Move the lanes of a chat to the chat's new id on its platform. Idempotent."""
        sharing = self._policy.sharing
        identities.move_chat(tx, platform=platform, account=account, old=old, new=new, sharing=sharing)

    @write_unit("lane.suspend")
    def suspend(self, tx: Transaction, viewer: Viewer, key: str, suspended: bool) -> None:
        lanes.set_suspended(tx, lanes.get(tx, key, viewer=viewer), suspended)

    @write_unit("lane.switch")
    def switch(self, tx: Transaction, viewer: Viewer, inbound: InboundMessage, session: SessionId) -> None:
        """Continue a session of the same owner in the lane of a source."""
        lane = receive.ensure_lane(tx, inbound, self._policy, viewer.principal)
        control.switch(tx, lane, sessions.get(tx, session, viewer=viewer), why="resume")

    @write_unit("lane.instruct")
    def set_instructions(self, tx: Transaction, viewer: Viewer, key: str, text: str) -> None:
        """Set the instructions that every session of a lane starts with; an empty text removes them."""
        lanes.set_instructions(tx, lanes.get(tx, key, viewer=viewer), text)
