"""Export or erase everything of one person."""

from collections.abc import Callable
from datetime import timedelta

from keryx.core import codec, records
from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, is_temporary
from keryx.core.messages import Notice, Role, text_parts
from keryx.core.sessions import Viewer
from keryx.engine.units import control, downloads
from keryx.store import access, imports, jobs, lanes, media, messages, overheard, people, sessions
from keryx.store.admin import session_export
from keryx.store.db import Transaction

LineWriter = Callable[[str], object]
ERASED = "(erased)"


def export(tx: Transaction, viewer: Viewer, principal: PrincipalId, write: LineWriter) -> None:
    """Write a person as lines of JSON: first their identities, then their sessions in the format of an import, then
    their messages in sessions of others, and what was overheard of them."""
    person = people.get(tx, principal, profile=viewer.profile)
    handles = {(i.platform, i.person) for i in person.identities}
    user = access.find_user_of(tx, Viewer(viewer.profile, principal))
    about = {
        "record": "person",
        "person": person,
        "user": user.name if user else None,
        "grants": [g for g in access.list_grants(tx, viewer.profile) if (g.platform, g.person) in handles],
        "lanes": lanes.list_for_owner(tx, profile=viewer.profile, owner=principal),
        "jobs": jobs.list_for_owner(tx, profile=viewer.profile, owner=principal),
        "migrated": imports.list_items_for_owner(tx, viewer.profile, principal),
    }
    write(codec.dumps(about) + "\n")
    write(records.encode(records.Header(format=records.FORMAT, version=records.VERSION)) + "\n")
    written: set[str] = set()
    for id_ in sessions.list_ids_for_owner(tx, profile=viewer.profile, owner=principal):
        if is_temporary(id_):
            continue
        write(records.encode(session_export.read_session(tx, id_)) + "\n")
        for chunk in session_export.iterate_files(tx, id_, known=written):
            write(records.encode(chunk) + "\n")
        for entry in session_export.iterate_records(tx, id_):
            write(records.encode(entry) + "\n")
    for session, seq in people.list_messages_elsewhere(tx, profile=viewer.profile, person=principal):
        if is_temporary(session):
            continue
        message = messages.get(tx, session, seq)
        write(codec.dumps({"record": "said elsewhere", "message": records.from_message(message)}) + "\n")
    for said in overheard.list_for_person(tx, profile=viewer.profile, person=principal):
        write(codec.dumps({"record": "overheard", "message": said}) + "\n")


def erase(tx: Transaction, principal: PrincipalId, *, profile: ProfileId) -> None:
    """Remove a person with everything that they own, and the text of their messages in sessions of others."""
    if principal == OPERATOR:
        raise Forbidden("the operator is no guest: delete sessions one by one, or the whole store")
    person = people.get(tx, principal, profile=profile)
    for session, seq in people.list_messages_elsewhere(tx, profile=profile, person=principal):
        message = messages.get(tx, session, seq)
        parts = (Notice(ERASED),) if message.role is Role.NOTICE else text_parts(ERASED)
        downloads.cancel(tx, message)
        messages.redact(tx, message, parts)
        media.unlink(tx, session, message.parts, seq=seq)
    for id_ in sessions.list_ids_for_owner(tx, profile=profile, owner=principal):
        control.delete(tx, sessions.get(tx, id_, deleted=True), grace=timedelta(0), erase=True)
    people.remove_owned(tx, profile=profile, owner=principal)
    media.remove_for_owner(tx, profile=profile, owner=principal)
    for identity in person.identities:
        access.remove_grant(tx, profile=profile, platform=identity.platform, person=identity.person)
        access.remove_pairing(tx, profile=profile, platform=identity.platform, person=identity.person)
    people.remove(tx, principal)
