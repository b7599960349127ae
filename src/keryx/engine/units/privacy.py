"""Export or erase everything of one person."""

from collections.abc import Callable
from datetime import timedelta

from keryx.core import codec, records
from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, SessionId
from keryx.core.messages import Notice, Role, text_parts
from keryx.core.sessions import Viewer
from keryx.engine.units import control
from keryx.store import access, jobs, lanes, media, messages, people, sessions
from keryx.store.admin import session_export
from keryx.store.db.database import Transaction

LineWriter = Callable[[str], object]
ERASED = "(erased)"


def export(tx: Transaction, viewer: Viewer, principal: PrincipalId, write: LineWriter) -> None:
    """Write a person as lines of JSON: first who they are, then their sessions as an import reads them, then what they
    said in sessions of others."""
    person = people.get(tx, principal, profile=viewer.profile)
    known = {(i.platform, i.person) for i in person.identities}
    about = {
        "record": "person",
        "person": person,
        "grants": [g for g in access.list_grants(tx, viewer.profile) if (g.platform, g.person) in known],
        "lanes": lanes.list_for_owner(tx, profile=viewer.profile, owner=principal),
        "jobs": jobs.list_for_owner(tx, profile=viewer.profile, owner=principal),
    }
    write(codec.dumps(about) + "\n")
    write(records.encode(records.Header(format=records.FORMAT, version=records.VERSION)) + "\n")
    written: set[str] = set()
    for id_ in sessions.list_ids_for_owner(tx, profile=viewer.profile, owner=principal):
        write(records.encode(session_export.read_session(tx, id_)) + "\n")
        for chunk in session_export.iterate_files(tx, id_, known=written):
            write(records.encode(chunk) + "\n")
        for entry in session_export.iterate_records(tx, id_):
            write(records.encode(entry) + "\n")
    for session, seq in people.list_messages_elsewhere(tx, profile=viewer.profile, person=principal):
        message = messages.get(tx, session, seq)
        write(codec.dumps({"record": "said elsewhere", "message": records.from_message(message)}) + "\n")


def erase(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> None:
    """Remove a person with everything that is theirs. They are a stranger from then on."""
    if principal == OPERATOR:
        raise Forbidden("the operator is no guest: delete sessions one by one, or the whole store")
    person = people.get(tx, principal, profile=profile)
    for session, seq in people.list_messages_elsewhere(tx, profile=profile, person=principal):
        _blank_message(tx, session, seq)
    for id_ in sessions.list_ids_for_owner(tx, profile=profile, owner=principal):
        control.delete(tx, sessions.get(tx, id_, deleted=True), grace=timedelta(0), erase=True)
    people.remove_owned(tx, profile=profile, owner=principal)
    media.remove_for_owner(tx, profile=profile, owner=principal)
    for known in person.identities:
        access.remove_grant(tx, profile=profile, platform=known.platform, person=known.person)
        access.remove_pairing(tx, profile=profile, platform=known.platform, person=known.person)
    people.remove(tx, principal)


def _blank_message(tx: Transaction, session: SessionId, seq: int) -> None:
    """Take the words out of a message that stands in a conversation of somebody else."""
    message = messages.get(tx, session, seq)
    left = (Notice(ERASED),) if message.role is Role.NOTICE else text_parts(ERASED)
    messages.redact(tx, message, left)
    media.unlink(tx, session, message.parts, seq=seq)
