"""Reads a session and everything that belongs to it as records, in small pages."""

from collections.abc import Iterator

import msgspec

from keryx.core import records
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId, is_temporary
from keryx.core.messages import Message
from keryx.core.records import (
    EpochRecord,
    MediaRecord,
    ProjectRecord,
    SessionRecord,
    TagRecord,
    TurnRecord,
    UsageRecord,
    VersionRecord,
)
from keryx.core.sessions import Session, SessionFilter, Viewer
from keryx.core.texts import Phrase
from keryx.store import epochs, media, messages, projects, sessions
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

PAGE_SIZE = 100
TURN_ROWS = RowMapper(TurnRecord, json={"error"})
USAGE_ROWS = RowMapper(UsageRecord)
_PROJECT_ROWS = RowMapper(ProjectRecord)
# The fields that a session and its record have in common, by name.
_SHARED_FIELDS = (set(SessionRecord.__struct_fields__) & set(Session.__struct_fields__)) - {"project"}


def read_session(tx: Transaction, id_: SessionId) -> SessionRecord:
    """A session with its aliases, epochs, lineage, project and tags. Raises `NotFound` for one that is not there, and `Invalid`
    for a temporary one, which is not exported."""
    if is_temporary(id_):
        raise Invalid(f"session {id_} is temporary: it is not exported", Phrase("temporary.not_exported"))
    found = sessions.get(tx, id_, deleted=True)
    undo = tx.row("select undo from sessions where id = :id", {"id": id_})
    aliases = tx.rows("select alias from aliases where session = :id order by alias", {"id": id_})
    project = found.project and tx.row(
        f"select {_PROJECT_ROWS.columns} from projects where id = :id", {"id": found.project}
    )
    return SessionRecord(
        **{name: value for name, value in msgspec.structs.asdict(found).items() if name in _SHARED_FIELDS},
        undo=undo[0] if undo else 0,
        project=_PROJECT_ROWS.decode_optional(project),
        tags=tuple(
            TagRecord(name=tag.name, colour=tag.colour)
            for tag in projects.list_session_tags(tx, Viewer(found.profile, found.owner), id_)
        ),
        aliases=tuple(row[0] for row in aliases),
        epochs=tuple(
            EpochRecord(number=e.number, first_seq=e.first_seq, summary=e.summary, created_at=e.created_at)
            for e in reversed(epochs.list_all(tx, id_, limit=1 << 60))
        ),
        versions=tuple(
            VersionRecord(turn=v.turn, first=v.first, seq=v.seq) for v in messages.list_versions(tx, id_)
        ),
    )


def iterate_sessions(tx: Transaction, viewer: Viewer) -> Iterator[Session]:
    """Every session that a viewer may see, archived ones and those of jobs included."""
    after: str | None = None
    while True:
        found, after = sessions.list_page(
            tx, viewer, SessionFilter(archived=None, jobs=True, limit=PAGE_SIZE, after=after)
        )
        yield from (entry.session for entry in found if not is_temporary(entry.session.id))
        if after is None:
            return


def iterate_messages(tx: Transaction, session: SessionId) -> Iterator[Message]:
    """The messages in order, never more than a page of them in memory."""
    last = 0
    while page := messages.list_after(tx, session, after=last, limit=PAGE_SIZE):
        yield from page
        last = page[-1].seq


def iterate_turns(tx: Transaction, session: SessionId) -> Iterator[TurnRecord]:
    """The turns in the order of their queue."""
    last = 0
    while rows := tx.rows(
        f"select position, {TURN_ROWS.columns} from turns where session = :session and position > :last order by position limit :limit",
        {"session": session, "last": last, "limit": PAGE_SIZE},
    ):
        yield from (TURN_ROWS.decode(row[1:]) for row in rows)
        last = rows[-1][0]


def iterate_usage(tx: Transaction, session: SessionId) -> Iterator[UsageRecord]:
    """What each call used, in order."""
    last = 0
    while rows := tx.rows(
        f"select id, {USAGE_ROWS.columns} from usage where session = :session and id > :last order by id limit :limit",
        {"session": session, "last": last, "limit": PAGE_SIZE},
    ):
        yield from (USAGE_ROWS.decode(row[1:]) for row in rows)
        last = rows[-1][0]


def iterate_records(tx: Transaction, session: SessionId) -> Iterator[records.Entry]:
    """Everything of a session but itself: messages, then turns, then usage."""
    yield from (records.from_message(m) for m in iterate_messages(tx, session))
    yield from iterate_turns(tx, session)
    yield from iterate_usage(tx, session)


def iterate_files(tx: Transaction, session: SessionId, *, known: set[str]) -> Iterator[MediaRecord]:
    """The files that a session shows, chunk by chunk, but for those that are `known`, which then has them too."""
    for file in media.list_for_session(tx, session):
        if file.id in known:
            continue
        known.add(file.id)
        for n, body in enumerate(media.read_chunks(tx, file.id)):
            yield MediaRecord(
                session=session, id=file.id, n=n, size=file.size, body=body, mime=file.mime, name=file.name
            )
