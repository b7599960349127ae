"""Exports: a session and everything of it, read as records in small pages."""

from collections.abc import Iterator

import msgspec

from keryx.core import records, wire
from keryx.core.deliveries import Target
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.records import EpochRecord, MediaRecord, ProjectRecord, SessionRecord, TurnRecord, UsageRecord
from keryx.core.sessions import Listing, Session, Viewer
from keryx.core.turns import BusyMode, TurnState
from keryx.store import epochs, listings, media, messages, sessions
from keryx.store.database import Row, Transaction, maybe_moment, moment

PAGE = 100
TURN_COLUMNS = """
  id, asker, state, mode, input_seq, created_at, surface, attempts, started_at, finished_at, interrupted_at, reply, error,
  merged_into
"""
# The fields that a session and its record have in common, by name.
_SHARED = (set(SessionRecord.__struct_fields__) & set(Session.__struct_fields__)) - {"project"}
USAGE_COLUMNS = (
    "turn, at, surface, model, task, input, output, reasoning, cache_read, cache_write, cost, estimated"
)


def session(tx: Transaction, id_: SessionId) -> SessionRecord:
    """A session with its aliases, epochs, lineage and project. Raises `NotFound` for one that is not there."""
    found = sessions.get(tx, id_, deleted=True)
    undo = tx.row("select undo from sessions where id = :id", {"id": id_})
    aliases = tx.rows("select alias from aliases where session = :id order by alias", {"id": id_})
    return SessionRecord(
        **{name: value for name, value in msgspec.structs.asdict(found).items() if name in _SHARED},
        undo=undo[0] if undo else 0,
        project=_project(tx, found),
        aliases=tuple(row[0] for row in aliases),
        epochs=tuple(
            EpochRecord(number=e.number, first_seq=e.first_seq, summary=e.summary, created_at=e.created_at)
            for e in reversed(epochs.every(tx, id_, limit=1 << 60))
        ),
    )


def visible(tx: Transaction, viewer: Viewer) -> Iterator[Session]:
    """Every session that a viewer may see, archived ones and those of jobs included."""
    after: str | None = None
    while True:
        found, after = listings.page(tx, viewer, Listing(archived=None, jobs=True, limit=PAGE, after=after))
        yield from (entry.session for entry in found)
        if after is None:
            return


def said(tx: Transaction, session: SessionId) -> Iterator[Message]:
    """The messages in order, never more than a page of them in memory."""
    last = 0
    while page := messages.following(tx, session, after=last, limit=PAGE):
        yield from page
        last = page[-1].seq


def turns(tx: Transaction, session: SessionId) -> Iterator[TurnRecord]:
    """The turns in the order of their queue."""
    last = 0
    while rows := tx.rows(
        f"select position, {TURN_COLUMNS} from turns where session = :session and position > :last order by position limit :limit",
        {"session": session, "last": last, "limit": PAGE},
    ):
        yield from (turn(session, row[1:]) for row in rows)
        last = rows[-1][0]


def usage(tx: Transaction, session: SessionId) -> Iterator[UsageRecord]:
    """What each call used, in order."""
    last = 0
    while rows := tx.rows(
        f"select id, {USAGE_COLUMNS} from usage where session = :session and id > :last order by id limit :limit",
        {"session": session, "last": last, "limit": PAGE},
    ):
        yield from (used(session, row[1:]) for row in rows)
        last = rows[-1][0]


def records_of(tx: Transaction, session: SessionId) -> Iterator[records.Entry]:
    """Everything of a session but itself: messages, then turns, then usage."""
    yield from (records.of_message(m) for m in said(tx, session))
    yield from turns(tx, session)
    yield from usage(tx, session)


def files(tx: Transaction, session: SessionId, *, known: set[str]) -> Iterator[MediaRecord]:
    """The files that a session shows, chunk by chunk, but for those that are `known`, which then has them too."""
    for file in media.linked(tx, session):
        if file.id in known:
            continue
        known.add(file.id)
        for n, body in enumerate(media.chunks(tx, file.id)):
            yield MediaRecord(
                session=session, id=file.id, n=n, size=file.size, body=body, mime=file.mime, name=file.name
            )


def turn(session: SessionId, row: Row) -> TurnRecord:
    (
        id_, asker, state, mode, input_seq, created_at, surface, attempts, started_at, finished_at, interrupted_at,
        reply, error, merged_into,
    ) = row  # fmt: skip
    return TurnRecord(
        session=session,
        id=id_,
        asker=asker,
        state=TurnState(state),
        mode=BusyMode(mode),
        input_seq=input_seq,
        created_at=moment(created_at),
        surface=surface,
        attempts=attempts,
        started_at=maybe_moment(started_at),
        finished_at=maybe_moment(finished_at),
        interrupted_at=maybe_moment(interrupted_at),
        reply=wire.loads(reply, Target) if reply else None,
        error=wire.loads(error, str) if error else None,
        merged_into=merged_into,
    )


def used(session: SessionId, row: Row) -> UsageRecord:
    turn, at, surface, model, task, input_, output, reasoning, cache_read, cache_write, cost, estimated = row
    return UsageRecord(
        session=session,
        turn=turn,
        at=moment(at),
        surface=surface,
        model=model,
        task=task,
        input=input_,
        output=output,
        reasoning=reasoning,
        cache_read=cache_read,
        cache_write=cache_write,
        cost=cost,
        estimated=bool(estimated),
    )


def _project(tx: Transaction, session: Session) -> ProjectRecord | None:
    if session.project is None:
        return None
    row = tx.row("select id, name, colour, created_at from projects where id = :id", {"id": session.project})
    if row is None:
        return None
    return ProjectRecord(id=row[0], name=row[1], colour=row[2], created_at=moment(row[3]))
