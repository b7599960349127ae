"""A viewer's own state on a surface: read marks, unsent text and preferences."""

from keryx.core.clock import Clock
from keryx.core.ids import SessionId
from keryx.core.sessions import Viewer
from keryx.store import sessions, viewer_state
from keryx.store.db.database import Database, Transaction
from keryx.store.viewer_state import UnsentMessage

NEW_SESSION = "new"


class HubViewerState:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def mark_read(self, viewer: Viewer, session: SessionId, seq: int) -> None:
        """The viewer has seen a session up to a message; a mark never goes back."""

        def work(tx: Transaction) -> None:
            viewer_state.mark_read(tx, viewer, sessions.get(tx, session, viewer=viewer), seq)

        await self._database.write("desk.read", work)

    async def get_unsent_text(self, viewer: Viewer, place: str) -> UnsentMessage:
        """What was typed and not sent: in a session, or in the `new` one."""

        def work(tx: Transaction) -> UnsentMessage:
            _find_session(tx, viewer, place)
            return viewer_state.get_unsent(tx, viewer, place)

        return await self._database.read("desk.composed", work)

    async def save_unsent_text(self, viewer: Viewer, place: str, composed: UnsentMessage) -> None:

        def work(tx: Transaction) -> None:
            viewer_state.save_unsent(tx, viewer, place, composed, session=_find_session(tx, viewer, place))

        await self._database.write("desk.compose", work)

    async def preferences(self, viewer: Viewer) -> dict[str, str]:
        return await self._database.read(
            "desk.preferences", lambda tx: viewer_state.get_preferences(tx, viewer)
        )

    async def change_preferences(self, viewer: Viewer, changed: dict[str, str]) -> dict[str, str]:
        """Change some preferences; gives all of them."""

        def work(tx: Transaction) -> dict[str, str]:
            values = {**viewer_state.get_preferences(tx, viewer), **changed}
            viewer_state.save_preferences(tx, viewer, values)
            return values

        return await self._database.write("desk.prefer", work)


def _find_session(tx: Transaction, viewer: Viewer, place: str) -> SessionId | None:
    return None if place == NEW_SESSION else sessions.get(tx, SessionId(place), viewer=viewer).id
