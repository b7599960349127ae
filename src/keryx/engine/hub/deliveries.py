"""Deliveries as people see them: list, retry or discard, resolve targets, and send on behalf of a turn."""

from collections.abc import Mapping

from keryx.core.deliveries import Delivery, DeliveryState, Target
from keryx.core.ids import DeliveryId, TurnId
from keryx.core.ports.adapter import PlatformReach
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.units import targets
from keryx.store import deliveries, turns
from keryx.store.db import Database, Transaction


class HubDeliveries(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    page = bind_read("deliveries", deliveries.list_recent)

    @write_unit("delivery.decide")
    def decide(self, tx: Transaction, viewer: Viewer, delivery: DeliveryId, state: DeliveryState) -> Delivery:
        """Retry (`READY`) or discard (`DISCARDED`) a delivery that failed, died or is in doubt. Return its new state."""
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
