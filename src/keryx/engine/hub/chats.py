"""Chats as people manage them: their lanes and instructions, and the deliveries that are sent to them."""

from collections.abc import Mapping

from keryx.core.deliveries import Delivery, DeliveryState, Target
from keryx.core.ids import DeliveryId, SessionId, TurnId
from keryx.core.lanes import Lane, LaneMove
from keryx.core.ports.adapter import InboundMessage, PlatformReach
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.engine.hub.verbs import HubPart, bind_read, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.units import control, identities, receive, relay, targets
from keryx.store import deliveries, lanes, sessions, turns
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
        """End the session of a lane, so that the next message starts a new one."""
        control.start_new_session(tx, lanes.get(tx, key, viewer=viewer))

    @write_unit("lane.chat")
    def move_chat(self, tx: Transaction, platform: str, account: str, old: str, new: str) -> None:
        """Move the lanes of a chat to the chat's new id on its platform. Idempotent."""
        sharing = self._policy.sharing
        identities.move_chat(tx, platform=platform, account=account, old=old, new=new, sharing=sharing)
        if self._policy.relay is not None:
            relay.queue_move(tx, platform=platform, account=account, old=old, new=new)

    @write_unit("lane.suspend")
    def suspend(self, tx: Transaction, viewer: Viewer, key: str, suspended: bool) -> None:
        lanes.set_suspended(tx, lanes.get(tx, key, viewer=viewer), suspended)

    @write_unit("lane.switch")
    def switch(self, tx: Transaction, viewer: Viewer, inbound: InboundMessage, session: SessionId) -> None:
        """Continue a session of the same owner in the lane of a source."""
        lane = receive.ensure_lane(tx, inbound, self._policy, viewer.principal)
        control.switch(tx, lane, sessions.get(tx, session, viewer=viewer), why=Phrase("move.resume"))

    @write_unit("lane.instruct")
    def set_instructions(self, tx: Transaction, viewer: Viewer, key: str, text: str) -> None:
        """Set the instructions that every session of a lane starts with; an empty text removes them."""
        lanes.set_instructions(tx, lanes.get(tx, key, viewer=viewer), text)


class HubDeliveries(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    page = bind_read("deliveries", deliveries.list_recent)
    waits = bind_read("deliveries.waits", deliveries.list_waits)

    @write_unit("delivery.decide")
    def decide(self, tx: Transaction, viewer: Viewer, delivery: DeliveryId, state: DeliveryState) -> Delivery:
        """Send (`READY`) or discard (`DISCARDED`) a delivery that failed, died, waits or has an unknown outcome, or try one
        that waits no more (`DEAD`). Return it."""
        deliveries.override_state(tx, deliveries.get(tx, delivery, viewer=viewer), state)
        return deliveries.get(tx, delivery, viewer=viewer)

    @read_unit("targets")
    def resolve_targets(
        self,
        tx: Transaction,
        viewer: Viewer,
        text: str,
        *,
        origin: Target | None = None,
        accounts: Mapping[str, PlatformReach] | None = None,
    ) -> list[Target]:
        """Return the targets that a text names, each complete. `accounts` are the connected platforms, by default those
        of this process. Raise `Invalid` for a target that cannot be reached, with the reason."""
        connected = accounts or self._policy.reach or None
        return targets.resolve(tx, text, profile=viewer.profile, origin=origin, accounts=connected)

    @write_unit("post")
    def post(
        self, tx: Transaction, viewer: Viewer, turn: TurnId, target: str, text: str, *, alone: bool = True
    ) -> list[Target]:
        """Send a text in the name of a running turn, and return its targets. Raise `Invalid` for a target that is not
        the viewer's. Without `alone`, only the chat that asked is allowed."""
        running = turns.get(tx, turn)
        return targets.post(tx, running, viewer, target, text, reach=self._policy.reach, alone=alone)
