"""Links that show one conversation, up to a message, to anybody who has them. A link says nothing of its owner, and ends when it is revoked."""

import hashlib
import secrets

import msgspec

from keryx.core import ids
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import SessionId
from keryx.core.media import IMAGE_MIMES
from keryx.core.messages import Message, Role, is_active
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.engine.hub.verbs import HubPart, read_unit, write_unit
from keryx.store import media, messages, sessions, viewer_state
from keryx.store.db import Transaction
from keryx.store.media import MediaInfo
from keryx.store.viewer_state import Share

_SPOKEN = frozenset({Role.USER, Role.ASSISTANT})


class SharedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a link shows: the words of people and of the agent, without reasoning, tools and notices."""

    session: SessionId
    title: str
    messages: list[Message]


class HubShares(HubPart):
    @read_unit("shares")
    def list_all(self, tx: Transaction, viewer: Viewer, session: SessionId) -> list[Share]:
        return viewer_state.list_shares(tx, sessions.get(tx, session, viewer=viewer).id)

    @write_unit("share.add")
    def add(self, tx: Transaction, viewer: Viewer, session: SessionId) -> tuple[Share, str]:
        """Make a link to a session as it is now. Return it with its token, which cannot be read again."""
        row = sessions.get(tx, session, viewer=viewer)
        if ids.is_temporary(row.id):
            raise Invalid(Phrase("temporary.not_exported"))
        token = secrets.token_urlsafe(32)
        share = Share(id=ids.new(tx.now), session=row.id, through=row.last_seq, created_at=tx.now)
        viewer_state.add_share(tx, share, digest=_hash_token(token))
        return share, token

    @write_unit("share.revoke")
    def revoke(self, tx: Transaction, viewer: Viewer, session: SessionId, share: str) -> None:
        viewer_state.remove_share(tx, sessions.get(tx, session, viewer=viewer).id, share)

    @read_unit("share.session")
    def find_session(self, tx: Transaction, token: str) -> SessionId:
        """Return the session that a link shows. Raise `NotFound` if it was revoked."""
        return _find(tx, token).session

    @read_unit("share.open")
    def open(self, tx: Transaction, token: str) -> SharedConversation:
        """Return what a link shows. Raise `NotFound` if it was revoked, or its session was deleted."""
        share = _find(tx, token)
        session = sessions.get(tx, share.session)
        entries = messages.list_after(tx, session.id, after=0, limit=share.through)
        return SharedConversation(
            session=session.id,
            title=session.title,
            messages=[m for m in entries if m.seq <= share.through and _is_shown(m)],
        )

    @read_unit("share.picture")
    def find_picture(self, tx: Transaction, token: str, file: str) -> MediaInfo:
        """Return a picture that a link shows. Raise `NotFound` for any other file."""
        share = _find(tx, token)
        session = sessions.get(tx, share.session)
        found = media.find_in_session(tx, session.id, file)
        if found is None or found.mime not in IMAGE_MIMES:
            raise NotFound(Phrase("web.no_share"))
        if not any(
            _is_shown(m) for m in messages.list_with_file(tx, session.id, found.id, through=share.through)
        ):
            raise NotFound(Phrase("web.no_share"))
        return found


def _find(tx: Transaction, token: str) -> Share:
    share = viewer_state.find_share(tx, digest=_hash_token(token))
    if share is None:
        raise NotFound(Phrase("web.no_share"))
    return share


def _is_shown(message: Message) -> bool:
    return message.role in _SPOKEN and is_active(message)


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
