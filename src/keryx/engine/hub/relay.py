"""The relay: instances and their keys, for the operator only; and the queue and the sends, for the connection of an instance."""

from datetime import timedelta

from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR
from keryx.core.ports.relay import RelayInstance, RelayLimits, RelayOverview, RelayRule
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.units import relay as units
from keryx.engine.units.relay import BeginSend, RelayLogin
from keryx.store import relay
from keryx.store.db import Database, Transaction


class HubRelay(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    list_waiting = bind_read("relay.waiting", units.list_waiting)
    find_file = bind_read("relay.file", units.find_file)
    check_target = bind_read("relay.target", units.check_target)
    is_marked = bind_read("relay.marked", units.is_marked)
    connect = bind_write("relay.connect", units.connect)
    settle_event = bind_write("relay.settle", units.settle_event)
    end_send = bind_write("relay.sent", units.end_send)

    @property
    def limits(self) -> RelayLimits | None:
        """The limits of the queues; `None` unless this Keryx is a connector."""
        return self._policy.relay

    @property
    def send_timeout(self) -> timedelta:
        return self._policy.send_timeout

    @write_unit("relay.add")
    def add(self, tx: Transaction, viewer: Viewer, name: str, rules: list[RelayRule]) -> str:
        """Add an instance, and return its key, which cannot be read again."""
        _check_operator(viewer)
        return str(units.add(tx, name, rules))

    @write_unit("relay.renew")
    def renew(self, tx: Transaction, viewer: Viewer, name: str) -> str:
        """Return a new key of an instance. The old one is worth nothing any more."""
        _check_operator(viewer)
        return str(units.renew(tx, name))

    @write_unit("relay.revoke")
    def revoke(self, tx: Transaction, viewer: Viewer, name: str) -> int:
        """Remove an instance, and return how many of its events waited."""
        _check_operator(viewer)
        return units.revoke(tx, name)

    @write_unit("relay.assign")
    def assign(self, tx: Transaction, viewer: Viewer, name: str, rules: list[RelayRule]) -> None:
        _check_operator(viewer)
        units.assign(tx, name, rules)

    @write_unit("relay.release")
    def release(self, tx: Transaction, viewer: Viewer, name: str, rule: RelayRule) -> None:
        _check_operator(viewer)
        units.release(tx, name, rule)

    @read_unit("relay.instances")
    def list_all(self, tx: Transaction, viewer: Viewer) -> list[RelayOverview]:
        _check_operator(viewer)
        return units.list_all(tx)

    @read_unit("relay.login")
    def find_by_key(self, tx: Transaction, key_id: str) -> RelayInstance | None:
        return relay.find_by_key(tx, key_id)

    @write_unit("relay.end")
    def record_end(self, tx: Transaction, name: str | None = None) -> None:
        """Record that an instance is not connected any more, or all of them."""
        relay.record_end(tx, name)

    @write_unit("relay.send")
    def begin_send(
        self,
        tx: Transaction,
        login: RelayLogin,
        target: Target,
        *,
        key: str,
        delivery: str,
        send_key: str,
        idempotency: Idempotency,
    ) -> BeginSend:
        return units.begin_send(
            tx,
            login,
            target,
            key=key,
            delivery=delivery,
            send_key=send_key,
            idempotency=idempotency,
            doubt=self._policy.doubt,
        )

    async def sweep(self) -> None:
        """Tell people that their messages wait, and drop what has waited for too long."""
        limits = self._policy.relay
        while limits and await self._database.write("relay.sweep", lambda tx: units.sweep(tx, limits)):
            pass


def _check_operator(viewer: Viewer) -> None:
    if viewer.principal != OPERATOR:
        raise Forbidden("this is for the operator")
