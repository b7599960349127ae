"""A viewer's own state on a surface: read marks, unsent text and preferences."""

from keryx.core.ids import SessionId
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, read_unit, write_unit
from keryx.store import sessions, viewer_state
from keryx.store.db import Transaction
from keryx.store.viewer_state import UnsentMessage

NEW_SESSION = "new"


class HubViewerState(HubPart):
    preferences = bind_read("desk.preferences", viewer_state.get_preferences)

    @write_unit("desk.read")
    def mark_read(self, tx: Transaction, viewer: Viewer, session: SessionId, seq: int) -> None:
        """Record that the viewer has read a session up to a message. A mark never goes back."""
        viewer_state.mark_read(tx, viewer, sessions.get(tx, session, viewer=viewer), seq)

    @read_unit("desk.composed")
    def get_unsent_text(self, tx: Transaction, viewer: Viewer, composer: str) -> UnsentMessage:
        """Return what was typed and not sent. A composer is a session's id, or `NEW_SESSION`."""
        _find_session(tx, viewer, composer)
        return viewer_state.get_unsent(tx, viewer, composer)

    @write_unit("desk.compose")
    def save_unsent_text(self, tx: Transaction, viewer: Viewer, composer: str, unsent: UnsentMessage) -> None:
        session = _find_session(tx, viewer, composer)
        viewer_state.save_unsent(tx, viewer, composer, unsent, session=session)

    @write_unit("desk.prefer")
    def change_preferences(self, tx: Transaction, viewer: Viewer, changes: dict[str, str]) -> dict[str, str]:
        """Change some preferences, and return all of them."""
        values = {**viewer_state.get_preferences(tx, viewer), **changes}
        viewer_state.save_preferences(tx, viewer, values)
        return values


def _find_session(tx: Transaction, viewer: Viewer, composer: str) -> SessionId | None:
    return None if composer == NEW_SESSION else sessions.get(tx, SessionId(composer), viewer=viewer).id
