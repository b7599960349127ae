"""Desk: a viewer's own place at a surface: read marks, unsent text and preferences."""

from keryx.core.ids import SessionId
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.store import desks, sessions
from keryx.store.database import Database, Transaction
from keryx.store.desks import Composed

NEW = "new"


class Desk:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read(self, viewer: Viewer, session: SessionId, seq: int) -> None:
        """The viewer has seen a session up to a message; a mark never goes back."""
        now = self._clock.now()

        def work(tx: Transaction) -> None:
            desks.read(tx, viewer, sessions.get(tx, session, viewer=viewer), seq, now=now)

        await self._database.write("desk.read", work)

    async def composed(self, viewer: Viewer, place: str) -> Composed:
        """What was typed and not sent: in a session, or in the `new` one."""

        def work(tx: Transaction) -> Composed:
            _place(tx, viewer, place)
            return desks.composed(tx, viewer, place)

        return await self._database.read("desk.composed", work)

    async def compose(self, viewer: Viewer, place: str, composed: Composed) -> None:
        now = self._clock.now()

        def work(tx: Transaction) -> None:
            desks.compose(tx, viewer, place, composed, session=_place(tx, viewer, place), now=now)

        await self._database.write("desk.compose", work)

    async def preferences(self, viewer: Viewer) -> dict[str, str]:
        return await self._database.read("desk.preferences", lambda tx: desks.preferences(tx, viewer))

    async def prefer(self, viewer: Viewer, changed: dict[str, str]) -> dict[str, str]:
        """Change some preferences; gives all of them."""
        now = self._clock.now()

        def work(tx: Transaction) -> dict[str, str]:
            values = {**desks.preferences(tx, viewer), **changed}
            desks.prefer(tx, viewer, values, now=now)
            return values

        return await self._database.write("desk.prefer", work)


def _place(tx: Transaction, viewer: Viewer, place: str) -> SessionId | None:
    return None if place == NEW else sessions.get(tx, SessionId(place), viewer=viewer).id
