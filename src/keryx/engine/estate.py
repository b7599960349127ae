"""Estate: everything of one person, to be taken away by them or erased for good."""

from collections.abc import Callable
from datetime import datetime, timedelta

from keryx.core import records, wire
from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, SessionId
from keryx.core.messages import Notice, Role, words
from keryx.core.sessions import Viewer
from keryx.engine import control
from keryx.store import (
    belongings,
    exports,
    grants,
    jobs,
    lanes,
    media,
    messages,
    pairings,
    principals,
    sessions,
)
from keryx.store.database import Transaction

Write = Callable[[str], object]
ERASED = "(erased)"


def export(tx: Transaction, viewer: Viewer, principal: PrincipalId, write: Write) -> None:
    """Write a person as lines of JSON: first who they are, then their sessions as an import reads them, then what they
    said in sessions of others."""
    person = principals.get(tx, principal, profile=viewer.profile)
    known = {(i.platform, i.person) for i in person.identities}
    about = {
        "record": "person",
        "person": person,
        "grants": [g for g in grants.every(tx, viewer.profile) if (g.platform, g.person) in known],
        "lanes": lanes.of_owner(tx, profile=viewer.profile, owner=principal),
        "jobs": jobs.of_owner(tx, profile=viewer.profile, owner=principal),
    }
    write(wire.dumps(about) + "\n")
    write(records.encode(records.Header(format=records.FORMAT, version=records.VERSION)) + "\n")
    written: set[str] = set()
    for id_ in sessions.of_owner(tx, profile=viewer.profile, owner=principal):
        write(records.encode(exports.session(tx, id_)) + "\n")
        for chunk in exports.files(tx, id_, known=written):
            write(records.encode(chunk) + "\n")
        for entry in exports.records_of(tx, id_):
            write(records.encode(entry) + "\n")
    for session, seq in belongings.said_elsewhere(tx, profile=viewer.profile, person=principal):
        message = messages.get(tx, session, seq)
        write(wire.dumps({"record": "said elsewhere", "message": records.of_message(message)}) + "\n")


def erase(tx: Transaction, principal: PrincipalId, *, profile: ProfileId, now: datetime) -> None:
    """Remove a person with everything that is theirs. They are a stranger from then on."""
    if principal == OPERATOR:
        raise Forbidden("the operator is no guest: delete sessions one by one, or the whole store")
    person = principals.get(tx, principal, profile=profile)
    for session, seq in belongings.said_elsewhere(tx, profile=profile, person=principal):
        _blank(tx, session, seq, now)
    for id_ in sessions.of_owner(tx, profile=profile, owner=principal):
        control.delete(tx, sessions.get(tx, id_, deleted=True), grace=timedelta(0), now=now, erase=True)
    belongings.remove(tx, profile=profile, owner=principal)
    media.drop(tx, profile=profile, owner=principal)
    for known in person.identities:
        grants.remove(tx, profile=profile, platform=known.platform, person=known.person, now=now)
        pairings.remove(tx, profile=profile, platform=known.platform, person=known.person)
    principals.remove(tx, principal)


def _blank(tx: Transaction, session: SessionId, seq: int, now: datetime) -> None:
    """Take the words out of a message that stands in a conversation of somebody else."""
    message = messages.get(tx, session, seq)
    left = (Notice(ERASED),) if message.role is Role.NOTICE else words(ERASED)
    messages.blank(tx, message, left, now=now)
    media.unlink(tx, session, message.parts, seq=seq)
