"""Deliveries as people see them: list, retry or discard, resolve targets, and send on behalf of a turn."""

from collections.abc import Mapping, Sequence

from keryx.core.clock import Clock
from keryx.core.deliveries import Delivery, DeliveryState, Target
from keryx.core.ids import DeliveryId, TurnId
from keryx.core.ports.adapter import PlatformReach
from keryx.core.sessions import Viewer
from keryx.engine.policy import Policy
from keryx.engine.units import targets
from keryx.store import deliveries, turns
from keryx.store.db.database import Database, Transaction


class HubDeliveries:
    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def page(
        self, viewer: Viewer, *, states: Sequence[DeliveryState] | None = None, limit: int = 100
    ) -> list[Delivery]:
        return await self._database.read(
            "deliveries", lambda tx: deliveries.list_recent(tx, viewer, states=states, limit=limit)
        )

    async def decide(self, viewer: Viewer, delivery: DeliveryId, state: DeliveryState) -> Delivery:
        """Retry (`READY`) or discard (`DISCARDED`) a delivery that failed, died or is in doubt; gives it as it is then."""

        def work(tx: Transaction) -> Delivery:
            deliveries.override_state(tx, deliveries.get(tx, delivery, viewer=viewer), state)
            return deliveries.get(tx, delivery, viewer=viewer)

        return await self._database.write("delivery.decide", work)

    async def resolve_targets(
        self,
        viewer: Viewer,
        text: str,
        *,
        origin: Target | None = None,
        accounts: Mapping[str, PlatformReach] | None = None,
    ) -> list[Target]:
        """The places that a text names as targets, each complete. `accounts` are the connected platforms, by default those
        of this process. `Invalid` says which target cannot be reached, and why."""
        known = accounts or self._policy.reach or None
        return await self._database.read(
            "targets",
            lambda tx: targets.resolve(tx, text, profile=viewer.profile, origin=origin, accounts=known),
        )

    async def post(
        self, viewer: Viewer, turn: TurnId, target: str, text: str, *, alone: bool = True
    ) -> list[Target]:
        """Send a text in the name of a running turn; gives where it goes. `Invalid` for a place that is not the viewer's;
        without `alone`, only the place that asked is allowed."""
        return await self._database.write(
            "post",
            lambda tx: targets.post(
                tx, turns.get(tx, turn), viewer, target, text, reach=self._policy.reach, alone=alone
            ),
        )
